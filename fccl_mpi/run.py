"""One federation: ``mpirun -n <participants + 1> python -m fccl_mpi.run [key=value ...]``.

Rank 0 is the server, every other rank trains one participant.
"""

import sys
from collections.abc import Sequence

from fccl_mpi.core.stopping import listening


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    0: done; 1: a bug; 2: something for the user to mend; 75: stopped on request.
    """
    with listening() as stop:
        from fccl_mpi.federation.job import run

        return run(arguments, stop)


if __name__ == "__main__":
    sys.exit(main())
