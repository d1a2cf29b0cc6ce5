"""All methods by the word after ``method=``."""

from fccl_mpi.methods.base import Method
from fccl_mpi.methods.fccl import Fccl
from fccl_mpi.methods.solo import Solo

METHODS: dict[str, type[Method]] = {
    "solo": Solo,
    "fccl": Fccl,
}
