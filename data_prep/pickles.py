"""CIFAR's pickles read without executing anything that they name.

A pickle is a program that may call any function it can import. The batches of CIFAR are dictionaries of
numbers, strings and one NumPy array; the array is the only thing that names functions. Those names are
bound here to inert stand-ins, which keep the array's bytes and shape; any other name is an error.
"""

import pickle
from io import BufferedIOBase
from typing import Any

import numpy as np

from fccl_mpi.core.errors import UserError


def read_pickle(file: BufferedIOBase, shown: str) -> dict[str, Any]:
    """The dictionary in ``file``, keys as text, arrays as uint8. Raises UserError if it is anything else."""
    try:
        found = _Unpickler(file, encoding="latin1").load()
    except _ForbiddenError as error:
        raise UserError(f"{shown} asks for {error}, which no batch of CIFAR does: do not trust it") from error
    except Exception as error:  # a damaged pickle raises all manner of things
        raise UserError(
            f"{shown} cannot be read as a batch of CIFAR ({type(error).__name__}: {error}): fetch it again"
        ) from error
    if not isinstance(found, dict):
        raise UserError(f"{shown} holds a {type(found).__name__}, not a batch of CIFAR: fetch it again")
    named = {
        key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in found.items()
    }
    return {key: value.array if isinstance(value, _Array) else value for key, value in named.items()}


class _ForbiddenError(Exception):
    """A name that no batch of CIFAR contains."""


class _Array:
    """Stands for ``numpy.ndarray``, and for the function that makes an empty one."""

    def __init__(self, *arguments: Any) -> None:
        self.array = np.zeros(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        if not isinstance(kind, _Kind) or kind.code not in ("u1", "|u1"):
            raise ValueError("its array is not one of bytes")
        raw = content.encode("latin1") if isinstance(content, str) else content
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Kind:
    """Stands for ``numpy.dtype``."""

    def __init__(self, code: str = "", *arguments: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like, which single bytes have not."""


def _encode(text: str, encoding: str) -> bytes:
    """Stands for ``_codecs.encode``, by which Python 3 writes bytes into old pickles."""
    return text.encode("latin1")


class _Unpickler(pickle.Unpickler):
    _STAND_INS: dict[tuple[str, str], Any] = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Kind,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._STAND_INS[module, name]
        except KeyError:
            raise _ForbiddenError(f"{module}.{name}") from None
