"""HDF5 files as anyone may have made them: written whole, opened without locks, read without trust.

What is read here lies in the file itself and plainly: no links, no values taken from other files, no
filters, nothing that is claimed and not there, no text of variable length. So no other file is opened, and
memory stays below the file's size, whatever it claims. What is written has checksums on all metadata.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import h5py
import numpy as np

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import replacing

Kind = TypeVar("Kind", bool, int, str)


class UnfitError(Exception):
    """Why a file cannot be read, without its name: for the reader, who knows what to do, to complete."""


@contextmanager
def reading(path: Path) -> Iterator[h5py.File]:
    """Open a file. Whatever HDF5 or h5py has against it, now or while it is read, is raised as UnfitError."""
    if not path.is_file():  # a pipe would be waited for
        raise UnfitError("it does not exist, or is no file")
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except (UnfitError, UserError):
        raise
    except Exception as error:  # damage is told by errors of nearly every kind
        raise UnfitError(f"it cannot be read as HDF5 ({error})") from error


@contextmanager
def writing(path: Path) -> Iterator[h5py.File]:
    """Write a file that is there, whole, or not at all. Raises OSError where it cannot be written."""
    with replacing(path) as temporary:
        try:
            with h5py.File(temporary, "w", locking=False, libver="v110") as file:
                yield file
        except RuntimeError as error:  # on a full disk h5py cannot close the file either, and says only that
            cause = error.__context__
            raise (cause if isinstance(cause, OSError) else OSError(str(error))) from None


def describe(holder: h5py.Group, attributes: Mapping[str, str | int]) -> None:
    """Set attributes."""
    for name, value in attributes.items():
        if isinstance(value, str):
            holder.attrs.create(name, value.encode(), dtype=_text_type([value]))
        else:
            holder.attrs[name] = value


def seal(file: h5py.File, attributes: Mapping[str, str | int]) -> None:
    """Set the root attributes, and last of all ``complete``."""
    describe(file, attributes)
    file.flush()
    file.attrs["complete"] = True


def attributes(holder: h5py.Group) -> dict[str, bool | int | float | str]:
    """All attributes that are one number or one text."""
    found = {}
    for name in holder.attrs:
        identifier = holder.attrs.get_id(name)
        text = h5py.check_string_dtype(identifier.dtype)
        if identifier.shape == () and (text is None or text.length is not None):
            value = holder.attrs[name]
            value = value.item() if isinstance(value, np.generic) else value
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def attribute(holder: h5py.Group, name: str, kind: type[Kind]) -> Kind:
    """A bool, an int or a text among the attributes. Raises UnfitError where there is none of that kind."""
    value = attributes(holder).get(name)
    if type(value) is not kind:
        raise UnfitError(f"attribute {name!r} is missing or not of type {kind.__name__}")
    return value


def dataset(file: h5py.Group, name: str) -> h5py.Dataset:
    """The dataset of that path below ``file``. Raises UnfitError unless it lies there plainly."""
    found: object = file
    for part in name.split("/"):
        if not isinstance(found, h5py.Group) or part not in found:
            raise UnfitError(f"dataset /{name} is missing")
        if not isinstance(found.get(part, getlink=True), h5py.HardLink):
            raise UnfitError(f"/{name} is a link to elsewhere")
        found = found[part]
    if not isinstance(found, h5py.Dataset) or found.shape is None:
        raise UnfitError(f"dataset /{name} is missing")
    if found.is_virtual or found.external:
        raise UnfitError(f"/{name} takes its values from other files")
    if found.id.get_create_plist().get_nfilters():
        raise UnfitError(f"/{name} is compressed or otherwise filtered, and not read like that")
    claimed = math.prod(found.shape) * found.dtype.itemsize
    if claimed > min(found.id.get_storage_size(), Path(file.file.filename).stat().st_size):
        raise UnfitError(f"/{name} claims {claimed:,} bytes, which the file does not hold")
    return found


def write_strings(file: h5py.Group, name: str, texts: Sequence[str]) -> None:
    """Write a list of texts, each with room for the longest."""
    file.create_dataset(name, data=[text.encode() for text in texts], dtype=_text_type(texts))


def strings(file: h5py.Group, name: str) -> list[str]:
    """A list of texts. Raises UnfitError where it is no such list."""
    found = dataset(file, name)
    text = h5py.check_string_dtype(found.dtype)
    if found.ndim != 1 or text is None or text.length is None:
        raise UnfitError(f"dataset /{name} is no list of strings of fixed length")
    return list(found.asstr()[:])


def _text_type(texts: Sequence[str]) -> np.dtype:
    """Of fixed length: HDF5 keeps other texts in a heap, and from a damaged heap it may never come back."""
    return h5py.string_dtype("utf-8", max([1, *(len(text.encode()) for text in texts)]))
