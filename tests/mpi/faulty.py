"""`fccl_mpi.run` with a fault on rank 1, named by FCCL_TEST_FAULT.

stall: its second round does not come to the exchange. early: SIGTERM while the program is still importing.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence

from fccl_mpi.run import main


class Early:
    """Looks for no module: it sends SIGTERM when Hydra, the first of the slow imports, is looked for."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        """Python's question for a module."""
        if name == "hydra":
            os.kill(os.getpid(), signal.SIGTERM)


def stall() -> None:
    """Let the participant on rank 1 sleep in round 2."""
    from fccl_mpi.methods.fccl import Fccl

    collaborate = Fccl.collaborate

    def stalled(self: Fccl, me: object, round: int) -> dict[str, float]:
        if round == 2 and me.exchange.rank == 1:
            time.sleep(60)
        return collaborate(self, me, round)

    Fccl.collaborate = stalled


if os.environ["FCCL_TEST_FAULT"] == "stall":
    stall()
else:
    sys.meta_path.insert(0, Early())
sys.exit(main())
