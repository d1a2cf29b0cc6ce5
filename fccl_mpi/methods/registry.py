"""All methods by the word after ``method=``."""

from fccl_mpi.methods.base import Method
from fccl_mpi.methods.fccl import Fccl
from fccl_mpi.methods.fccl_plus import FcclPlus
from fccl_mpi.methods.fedavg import FedAvg
from fccl_mpi.methods.feddf import FedDf
from fccl_mpi.methods.fedmatch import FedMatch
from fccl_mpi.methods.fedmd import FedMd
from fccl_mpi.methods.fml import Fml
from fccl_mpi.methods.rcfl import Rcfl
from fccl_mpi.methods.solo import Solo

METHODS: dict[str, type[Method]] = {
    "solo": Solo,
    "fedavg": FedAvg,
    "fedmd": FedMd,
    "feddf": FedDf,
    "fml": Fml,
    "rcfl": Rcfl,
    "fedmatch": FedMatch,
    "fccl": Fccl,
    "fccl_plus": FcclPlus,
}
