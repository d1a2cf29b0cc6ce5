"""The HDF5 files that hold image sets, written by data_prep and read by every participant.

A **domain** is one file::

    /train/images  uint8 (N, 32, 32, 3)      /test/images  uint8 (M, 32, 32, 3)
    /train/labels  int64 (N,)                /test/labels  int64 (M,)
    /classes       strings (C,)

with root attributes ``schema``, ``kind`` ("domain"), ``task``, ``domain``, ``source``, ``digest`` and,
written last, ``complete``; each of ``/train`` and ``/test`` bears its own ``digest``, so that a reader
checks what it reads without opening what is not its own.

A **public set** is one file with ``/images``, optionally ``/labels`` and ``/classes``, the root
attributes ``schema``, ``kind`` ("public"), ``name``, ``source``, ``digest``, ``complete``.

Arrays are stored plainly, without filters. Files are written under a temporary name and renamed; what is
read is checked as `core.hdf5` says.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from fccl_mpi.core import hdf5
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.hdf5 import UnfitError, attribute, dataset

SCHEMA = 2
SIDE = 32


@dataclass(frozen=True, kw_only=True)
class Split:
    """Labelled images: ``images`` uint8 (N, 32, 32, 3), ``labels`` int64 (N,) in [0, C)."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, kw_only=True)
class DomainHeader:
    """What a domain file says about itself, read without touching an image."""

    path: Path
    task: str
    domain: str
    source: str
    digest: str
    classes: tuple[str, ...]
    train_size: int
    test_size: int


@dataclass(frozen=True, kw_only=True)
class PublicHeader:
    """What a public file says about itself, read without touching an image."""

    path: Path
    name: str
    source: str
    digest: str
    size: int
    labelled: bool


def write_domain(
    path: Path,
    *,
    task: str,
    domain: str,
    classes: Sequence[str],
    train: Split,
    test: Split,
    source: str,
    notes: Mapping[str, str | int] | None = None,
    lists: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Write a domain file atomically and return its digest.

    ``notes`` are further root attributes and ``lists`` further root datasets of strings (how the set was
    made). Raises UserError, before anything is written, where the arrays do not fit the schema.
    """
    with _naming(path):
        for name, split in (("train", train), ("test", test)):
            _check_arrays(name, split.images, split.labels, len(classes))
    with hdf5.writing(path) as file:
        hdf5.write_strings(file, "classes", classes)
        digests = []
        for name, split in (("train", train), ("test", test)):
            group = file.create_group(name)
            group.create_dataset("images", data=split.images)
            group.create_dataset("labels", data=split.labels)
            digests.append(content_digest(split.images, split.labels))
            hdf5.describe(group, {"digest": digests[-1]})
        digest = _combine(*classes, *digests)
        about = {"kind": "domain", "task": task, "domain": domain, "source": source, "digest": digest}
        _finish(file, about, notes, lists)
    return digest


def write_public(
    path: Path,
    *,
    name: str,
    images: np.ndarray,
    source: str,
    labels: np.ndarray | None = None,
    classes: Sequence[str] = (),
    notes: Mapping[str, str | int] | None = None,
    lists: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Write a public file atomically and return its digest; ``labels`` (N,) only where the set has them.

    ``notes`` and ``lists`` as for a domain. Raises UserError, before anything is written, where the
    arrays do not fit the schema.
    """
    with _naming(path):
        _check_arrays("public", images, labels, len(classes))
    with hdf5.writing(path) as file:
        file.create_dataset("images", data=images)
        if labels is not None:
            file.create_dataset("labels", data=labels)
            hdf5.write_strings(file, "classes", classes)
        digest = content_digest(images, labels)
        about = {"kind": "public", "name": name, "source": source, "digest": digest}
        _finish(file, about, notes, lists)
    return digest


def read_domain_header(path: Path) -> DomainHeader:
    """Read and check a domain file's header. Raises UserError naming the file and the reason."""
    with _reading(path, "domain") as file:
        classes = tuple(hdf5.strings(file, "classes"))
        sizes = [len(_split(file, name)[0]) for name in ("train", "test")]
        digest = attribute(file, "digest", str)
        parts = [attribute(file[name], "digest", str) for name in ("train", "test")]
        if digest != _combine(*classes, *parts):
            raise UnfitError("its parts do not match its digest, so the file is damaged")
        return DomainHeader(
            path=path,
            task=attribute(file, "task", str),
            domain=attribute(file, "domain", str),
            source=attribute(file, "source", str),
            digest=digest,
            classes=classes,
            train_size=sizes[0],
            test_size=sizes[1],
        )


def read_public_header(path: Path) -> PublicHeader:
    """Read and check a public file's header. Raises UserError naming the file and the reason."""
    with _reading(path, "public") as file:
        images, labels = _public(file)
        return PublicHeader(
            path=path,
            name=attribute(file, "name", str),
            source=attribute(file, "source", str),
            digest=attribute(file, "digest", str),
            size=len(images),
            labelled=labels is not None,
        )


def read_split(path: Path, split: str) -> Split:
    """Read ``"train"`` or ``"test"`` of a domain file, digest and label range checked.

    Raises UserError naming the file and the reason.
    """
    with _reading(path, "domain") as file:
        images, labels = (array[:] for array in _split(file, split))
        _check_arrays(split, images, labels, len(dataset(file, "classes")))
        _check_digest(split, file[split], content_digest(images, labels))
        return Split(images=images, labels=labels)


def read_public(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read a public file: images uint8 (N, 32, 32, 3) and labels int64 (N,) or None, digest checked.

    Raises UserError naming the file and the reason.
    """
    with _reading(path, "public") as file:
        stored, stored_labels = _public(file)
        images, labels = stored[:], None if stored_labels is None else stored_labels[:]
        _check_arrays("public", images, labels, 0 if labels is None else len(dataset(file, "classes")))
        _check_digest("public", file, content_digest(images, labels))
        return images, labels


def read_kind(path: Path) -> str:
    """``"domain"`` or ``"public"``. Raises UserError naming the file and the reason if it is neither."""
    with _reading(path, "domain", "public") as file:
        return attribute(file, "kind", str)


def verify(path: Path) -> str:
    """Recompute every digest of a domain or public file and return that of the whole.

    Raises UserError naming the file and the reason.
    """
    if read_kind(path) == "public":
        read_public(path)
        return read_public_header(path).digest
    for name in ("train", "test"):
        read_split(path, name)
    return read_domain_header(path).digest


def content_digest(images: np.ndarray, labels: np.ndarray | None) -> str:
    """Hex sha256 of the arrays' shapes, dtypes and bytes; equal exactly where the content is."""
    digest = hashlib.sha256()
    for array in (images, labels):
        if array is not None:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


# --- what both kinds of file share ---------------------------------------------------------------


def _finish(
    file: h5py.File,
    about: Mapping[str, str | int],
    notes: Mapping[str, str | int] | None,
    lists: Mapping[str, Sequence[str]] | None,
) -> None:
    for name, lines in (lists or {}).items():
        hdf5.write_strings(file, name, lines)
    hdf5.seal(file, {"schema": SCHEMA, **(notes or {}), **about})


@contextmanager
def _reading(path: Path, *kinds: str) -> Iterator[h5py.File]:
    if not path.is_file():
        raise UserError(f"{path} does not exist: make it with data_prep, or let data= name its folder")
    with _naming(path), hdf5.reading(path) as file:
        if not attribute(file, "complete", bool):
            raise UnfitError("its making was interrupted")
        if (found := attribute(file, "schema", int)) != SCHEMA:
            raise UnfitError(f"its schema is {found}, this program reads {SCHEMA}")
        if (kind := attribute(file, "kind", str)) not in kinds:
            raise UserError(f"{path} is a {kind} file where a {' or '.join(kinds)} file is needed")
        yield file


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the file's name and what to do to an UnfitError."""
    try:
        yield
    except UnfitError as error:
        raise UserError(f"{path} is no fit image set: {error}; make it again with data_prep") from error


def _split(file: h5py.File, name: str) -> tuple[h5py.Dataset, h5py.Dataset]:
    """Images and labels of a domain's split, not read yet."""
    images, labels = dataset(file, f"{name}/images"), dataset(file, f"{name}/labels")
    _check_shapes(name, images, labels)
    return images, labels


def _public(file: h5py.File) -> tuple[h5py.Dataset, h5py.Dataset | None]:
    """Images and, where there are any, labels of a public set, not read yet."""
    images, labels = dataset(file, "images"), dataset(file, "labels") if "labels" in file else None
    _check_shapes("public", images, labels)
    return images, labels


def _check_shapes(
    name: str, images: h5py.Dataset | np.ndarray, labels: h5py.Dataset | np.ndarray | None
) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (SIDE, SIDE, 3):
        raise UnfitError(f"{name} images are {images.dtype} {images.shape}, not uint8 (N, {SIDE}, {SIDE}, 3)")
    if labels is not None and (labels.dtype != np.int64 or labels.shape != images.shape[:1]):
        raise UnfitError(f"{name} labels are {labels.dtype} {labels.shape}, not int64 ({len(images)},)")


def _check_arrays(name: str, images: np.ndarray, labels: np.ndarray | None, classes: int) -> None:
    _check_shapes(name, images, labels)
    if len(images) == 0:
        raise UnfitError(f"{name} holds no image")
    if labels is not None and not (labels.min() >= 0 and labels.max() < classes):
        raise UnfitError(f"{name} labels run from {labels.min()} to {labels.max()} with {classes} classes")


def _check_digest(name: str, holder: h5py.Group, found: str) -> None:
    if attribute(holder, "digest", str) != found:
        raise UnfitError(f"the content of {name} does not match its digest, so the file is damaged")


def _combine(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
