"""One federation: ``mpirun -n <participants + 1> python -m fccl_mpi.run [key=value ...]``.

Rank 0 is the server, every other rank trains one participant.
"""

import sys
from collections.abc import Sequence

from fccl_mpi.core.stopping import StopRequest, die_with_launcher


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    0: done; 1: a bug; 2: something for the user to mend; 75: stopped on request.
    """
    stop = StopRequest()  # before the imports, which take a second: a request must find someone who listens
    die_with_launcher()
    from fccl_mpi.federation.job import run

    code = run(arguments, stop)
    stop.ignore()
    return code


if __name__ == "__main__":
    sys.exit(main())
