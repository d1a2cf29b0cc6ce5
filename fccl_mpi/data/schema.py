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

Files are written under a temporary name and renamed; they are opened for reading without locks, since
nobody ever changes one in place and locking fails on many network file systems.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import replacing

SCHEMA = 1
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
    for name, split in (("train", train), ("test", test)):
        _check_arrays(path, name, split.images, split.labels, len(classes))
    with _writing(path) as file:
        file.create_dataset("classes", data=list(classes), dtype=h5py.string_dtype())
        digests = []
        for name, split in (("train", train), ("test", test)):
            group = file.create_group(name)
            group.create_dataset("images", data=split.images)
            group.create_dataset("labels", data=split.labels)
            group.attrs["digest"] = content_digest(split.images, split.labels)
            digests.append(group.attrs["digest"])
        _write_lists(file, lists)
        digest = _combine(*classes, *digests)
        _seal(
            file,
            digest,
            {**(notes or {}), "kind": "domain", "task": task, "domain": domain, "source": source},
        )
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
    _check_arrays(path, "public", images, labels, len(classes))
    with _writing(path) as file:
        file.create_dataset("images", data=images)
        if labels is not None:
            file.create_dataset("labels", data=labels)
            file.create_dataset("classes", data=list(classes), dtype=h5py.string_dtype())
        _write_lists(file, lists)
        digest = content_digest(images, labels)
        _seal(file, digest, {**(notes or {}), "kind": "public", "name": name, "source": source})
    return digest


def read_domain_header(path: Path) -> DomainHeader:
    """Read and check a domain file's header. Raises UserError naming the file and the reason."""
    with _reading(path, "domain") as file:
        classes = tuple(_strings(path, file, "classes"))
        sizes = {}
        for name in ("train", "test"):
            images, labels = (_dataset(path, file, f"{name}/{part}") for part in ("images", "labels"))
            _check_shapes(path, name, images, labels)
            sizes[name] = len(images)
        return DomainHeader(
            path=path,
            task=_text(path, file, "task"),
            domain=_text(path, file, "domain"),
            source=_text(path, file, "source"),
            digest=_text(path, file, "digest"),
            classes=classes,
            train_size=sizes["train"],
            test_size=sizes["test"],
        )


def read_public_header(path: Path) -> PublicHeader:
    """Read and check a public file's header. Raises UserError naming the file and the reason."""
    with _reading(path, "public") as file:
        images = _dataset(path, file, "images")
        labels = _dataset(path, file, "labels") if "labels" in file else None
        _check_shapes(path, "public", images, labels)
        return PublicHeader(
            path=path,
            name=_text(path, file, "name"),
            source=_text(path, file, "source"),
            digest=_text(path, file, "digest"),
            size=len(images),
            labelled=labels is not None,
        )


def read_split(path: Path, split: str) -> Split:
    """Read ``"train"`` or ``"test"`` of a domain file, digest and label range checked.

    Raises UserError naming the file and the reason.
    """
    with _reading(path, "domain") as file:
        classes = len(_dataset(path, file, "classes"))
        images, labels = (_dataset(path, file, f"{split}/{part}") for part in ("images", "labels"))
        _check_shapes(path, split, images, labels)
        found = Split(images=_load(path, images), labels=_load(path, labels))
        _check_arrays(path, split, found.images, found.labels, classes)
        _check_digest(path, split, file[split], content_digest(found.images, found.labels))
        return found


def read_public(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read a public file: images uint8 (N, 32, 32, 3) and labels int64 (N,) or None, digest checked.

    Raises UserError naming the file and the reason.
    """
    with _reading(path, "public") as file:
        images = _dataset(path, file, "images")
        labels = _dataset(path, file, "labels") if "labels" in file else None
        _check_shapes(path, "public", images, labels)
        loaded = _load(path, images), None if labels is None else _load(path, labels)
        _check_digest(path, "public", file, content_digest(*loaded))
        return loaded


def read_kind(path: Path) -> str:
    """``"domain"`` or ``"public"``. Raises UserError naming the file and the reason if it is neither."""
    with _reading(path, "domain", "public") as file:
        return _text(path, file, "kind")


def verify(path: Path) -> str:
    """Recompute every digest of a domain or public file and return that of the whole.

    Raises UserError naming the file and the reason.
    """
    if read_kind(path) == "public":
        read_public(path)
        return read_public_header(path).digest
    header = read_domain_header(path)
    splits = [read_split(path, name) for name in ("train", "test")]
    found = _combine(*header.classes, *(content_digest(split.images, split.labels) for split in splits))
    if found != header.digest:
        raise _unfit(path, "its content does not match its digest, so the file is damaged")
    return found


def content_digest(images: np.ndarray, labels: np.ndarray | None) -> str:
    """Hex sha256 of the arrays' shapes, dtypes and bytes; equal exactly where the content is."""
    digest = hashlib.sha256()
    for array in (images, labels):
        if array is not None:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


# --- what both kinds of file share ---------------------------------------------------------------


@contextmanager
def _writing(path: Path) -> Iterator[h5py.File]:
    with replacing(path) as temporary:
        try:
            with h5py.File(temporary, "w") as file:
                yield file
        except RuntimeError as error:  # on a full disk h5py cannot close the file either, and says only that
            cause = error.__context__
            raise (cause if isinstance(cause, OSError) else OSError(str(error))) from None


def _write_lists(file: h5py.File, lists: Mapping[str, Sequence[str]] | None) -> None:
    for name, lines in (lists or {}).items():
        file.create_dataset(name, data=list(lines), dtype=h5py.string_dtype())


def _seal(file: h5py.File, digest: str, attributes: Mapping[str, str | int]) -> None:
    file.attrs.update({"schema": SCHEMA, **attributes, "digest": digest})
    file.flush()
    file.attrs["complete"] = True


@contextmanager
def _reading(path: Path, *kinds: str) -> Iterator[h5py.File]:
    if not path.is_file():
        raise UserError(f"{path} does not exist: make it with data_prep, or let data= name its folder")
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        raise UserError(f"{path} cannot be read as HDF5 ({error}): make it again with data_prep") from error
    with file:
        if not file.attrs.get("complete", False):
            raise _unfit(path, "its making was interrupted")
        if file.attrs.get("schema") != SCHEMA:
            raise _unfit(path, f"its schema is {file.attrs.get('schema')}, this program reads {SCHEMA}")
        if _text(path, file, "kind") not in kinds:
            needed = " or ".join(kinds)
            raise UserError(f"{path} is a {_text(path, file, 'kind')} file where a {needed} file is needed")
        yield file


def _unfit(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is no fit image set: {reason}; make it again with data_prep")


def _text(path: Path, file: h5py.File, name: str) -> str:
    value = file.attrs.get(name)
    if not isinstance(value, str):
        raise _unfit(path, f"attribute {name!r} is missing or no text")
    return value


def _dataset(path: Path, file: h5py.File, name: str) -> h5py.Dataset:
    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise _unfit(path, f"dataset /{name} is missing")
    return found


def _strings(path: Path, file: h5py.File, name: str) -> list[str]:
    found = _dataset(path, file, name)
    if found.ndim != 1 or h5py.check_string_dtype(found.dtype) is None:
        raise _unfit(path, f"dataset /{name} is no list of strings")
    return list(found.asstr()[:])


def _load(path: Path, dataset: h5py.Dataset) -> np.ndarray:
    try:
        return dataset[:]
    except (OSError, MemoryError) as error:
        raise _unfit(path, f"{dataset.name} cannot be read ({error})") from error


def _check_shapes(path: Path, name: str, images: h5py.Dataset, labels: h5py.Dataset | None) -> None:
    """From the header alone, before memory is asked for."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (SIDE, SIDE, 3):
        raise _unfit(
            path, f"{name} images are {images.dtype} {images.shape}, not uint8 (N, {SIDE}, {SIDE}, 3)"
        )
    if labels is not None and (labels.dtype != np.int64 or labels.shape != images.shape[:1]):
        raise _unfit(path, f"{name} labels are {labels.dtype} {labels.shape}, not int64 ({len(images)},)")


def _check_arrays(path: Path, name: str, images: np.ndarray, labels: np.ndarray | None, classes: int) -> None:
    _check_shapes(path, name, images, labels)
    if len(images) == 0:
        raise _unfit(path, f"{name} holds no image")
    if labels is not None and not (labels.min() >= 0 and labels.max() < classes):
        raise _unfit(path, f"{name} labels run from {labels.min()} to {labels.max()} with {classes} classes")


def _check_digest(path: Path, name: str, holder: h5py.Group, found: str) -> None:
    if holder.attrs.get("digest") != found:
        raise _unfit(path, f"the content of {name} does not match its digest, so the file is damaged")


def _combine(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
