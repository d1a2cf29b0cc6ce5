"""`fccl_mpi.run` that is asked to stop in its second round: rank 2 alone, or mpirun, by FCCL_TEST_SIGNAL."""

import os
import signal
import sys
import time
from pathlib import Path

from fccl_mpi.methods.fccl import Fccl
from fccl_mpi.run import main

collaborate = Fccl.collaborate


def asked(self: Fccl, me: object, round: int) -> dict[str, float]:
    """Send the signal, wait until it has come, go on."""
    if round == 2 and me.exchange.rank == 2:
        if os.environ["FCCL_TEST_SIGNAL"] == "rank":
            os.kill(os.getpid(), signal.SIGUSR1)
        else:
            os.kill(launcher(), signal.SIGUSR1)
            time.sleep(1)
    return collaborate(self, me, round)


def launcher() -> int:
    """The process of mpirun: the ancestor below which all ranks live."""
    ancestor = os.getppid()
    while name(ancestor) not in ("mpirun", "mpiexec", "mpiexec.hydra", "prterun"):
        ancestor = int(Path(f"/proc/{ancestor}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return ancestor


def name(process: int) -> str:
    """What a process is called."""
    return Path(f"/proc/{process}/comm").read_text().strip()


Fccl.collaborate = asked
sys.exit(main())
