"""fccl_mpi with another `run`."""

from pathlib import Path

__path__.append(str(Path(__file__).parents[4] / "fccl_mpi"))
