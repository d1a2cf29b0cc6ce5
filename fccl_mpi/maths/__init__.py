"""Pure functions of tensors: the paper's equations.

Modules load on first use (``maths.correlation``), since torch takes seconds to import and the server,
``--help`` and the sweep planner do without it.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fccl_mpi.maths import accuracy as accuracy
    from fccl_mpi.maths import aggregation as aggregation
    from fccl_mpi.maths import correlation as correlation
    from fccl_mpi.maths import distillation as distillation
    from fccl_mpi.maths import pseudo_labels as pseudo_labels
    from fccl_mpi.maths import similarity as similarity

_MODULES = ("accuracy", "aggregation", "correlation", "distillation", "pseudo_labels", "similarity")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
