"""What a source of images is: how it is listed, what a user may ask of it, and what it makes."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from data_prep.progress import printable
from fccl_mpi.core.errors import UserError
from fccl_mpi.data.schema import Split


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks for; a source reads what concerns it."""

    raw: Path
    data: Path = Path("data")
    download: bool = False
    force: bool = False
    processes: int = 1
    filter: str = "bicubic"
    background: str = "white"
    any_checksum: bool = False
    skip_broken: bool = False
    allow_missing_classes: bool = False
    part: str = ""
    released_split: bool = False
    train_share: float = 0.7
    seed: int = 0
    images: int = 0
    domain: tuple[str, ...] = ()
    task: str = ""
    public: str = ""

    def fingerprint(self, *raw: str) -> str:
        """What the content of an output depends on: these options and the stamps of its raw files."""
        chosen = (
            self.filter,
            self.background,
            self.skip_broken,
            self.part,
            self.released_split,
            self.train_share,
            self.seed,
            self.images,
        )
        return "\n".join([f"recipe {RECIPE}", *map(str, chosen), *raw])


RECIPE = 1
"""Raise it whenever the same raw files and options come to give other pixels, labels or splits."""


@dataclass(frozen=True, kw_only=True)
class DomainImages:
    """A private domain ready to be written."""

    task: str
    domain: str
    classes: Sequence[str]
    train: Split
    test: Split
    source: str
    notes: Mapping[str, str | int] = field(default_factory=dict)
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PublicImages:
    """A public set ready to be written; ``labels`` (N,) and ``classes`` only where it has them."""

    name: str
    images: np.ndarray
    source: str
    labels: np.ndarray | None = None
    classes: Sequence[str] = ()
    notes: Mapping[str, str | int] = field(default_factory=dict)
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One output file: where it goes, what it depends on, and how its images come about.

    A source lists its recipes without decoding an image, so that what is up to date is not made again.
    """

    path: Path
    fingerprint: str
    make: Callable[[], DomainImages | PublicImages]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One entry of the registry."""

    name: str
    title: str
    makes: str
    wants: str
    published: str
    options: frozenset[str]
    plan: Callable[[Options], list[Recipe]]
    download: Callable[[Path], None] | None = None


def domain_path(options: Options, task: str, domain: str) -> Path:
    """Where a private domain lies: ``<data>/<task>/<domain>.h5``."""
    return options.data / _on_disk(task) / f"{_on_disk(domain)}.h5"


def public_path(options: Options, name: str) -> Path:
    """Where a public set lies: ``<data>/public/<name>.h5``."""
    return options.data / "public" / f"{_on_disk(name)}.h5"


def file_name(name: str) -> str:
    """A name given by users or folders as a file's: lower case, words joined by ``_``.

    Raises UserError where that is no name of a file of images.
    """
    words = "_".join(printable(name).replace("-", " ").replace("/", " ").lower().split())
    if not words.strip(".") or words == "public":
        raise UserError(f"{name!r} cannot be the name of a task, domain or public set: choose another")
    return words


def _on_disk(name: str) -> str:
    """The name such that its UTF-8 reaches the disk in any locale."""
    return os.fsdecode(name.encode())
