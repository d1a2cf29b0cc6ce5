"""From recipes to files: what is up to date stays, the rest is made whole, then written."""

import errno
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from data_prep.progress import printable, say, warn
from data_prep.source import DomainImages, Options, PublicImages, Recipe
from data_prep.splits import duplicates
from fccl_mpi.core import hdf5
from fccl_mpi.core.errors import UserError
from fccl_mpi.data.schema import read_domain_header, write_domain, write_public

_NOT_WRITABLE = {
    errno.ENOSPC: "no space is left",
    errno.EDQUOT: "your quota is used up",
    errno.EFBIG: "the file would be larger than is allowed",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "you may not write there",
    errno.EPERM: "you may not write there",
    errno.EEXIST: "a file is in the way of its folder",
    errno.ENOTDIR: "a file is in the way of its folder",
}


def build(recipes: Sequence[Recipe], options: Options) -> list[Path]:
    """Make every file that is absent or out of date; all of them if forced. Returns the paths of all.

    Nothing is written before everything is made, so an error in the last raw file leaves no half a task.
    """
    stale = []
    for recipe in recipes:
        if options.force or not _is_up_to_date(recipe):
            stale.append(recipe)
        else:
            say(f"{recipe.path} is up to date; --force makes it again")
    _check_writable(stale)
    start = time.monotonic()
    made = [(recipe, recipe.make()) for recipe in stale]
    for recipe, product in made:
        _check_not_empty(recipe.path, product)
    _check_one_class_list(made)
    for recipe, product in made:
        _write(recipe, product)
        say(f"{_described(recipe.path, product)}, {time.monotonic() - start:.1f} s")
        _warn_of_shared_digits(recipe.path, product)
    return [recipe.path for recipe in recipes]


def attributes(path: Path) -> dict[str, object]:
    """The root attributes of a complete file; none if it is absent, incomplete or no HDF5."""
    try:
        with hdf5.reading(path) as file:
            found = hdf5.attributes(file)
            return {**found} if found.get("complete") else {}
    except hdf5.UnfitError:
        return {}


def _is_up_to_date(recipe: Recipe) -> bool:
    return attributes(recipe.path).get("made_from") == _short(recipe.fingerprint)


def _check_writable(recipes: Sequence[Recipe]) -> None:
    """Say so before the work, not after it, if there is no writing at the target."""
    for folder in {recipe.path.parent for recipe in recipes}:
        existing = next(parent for parent in [folder, *folder.parents] if parent.exists())
        if not existing.is_dir():
            raise _unwritable(folder, OSError(errno.ENOTDIR, ""))
        if not os.access(existing, os.W_OK):
            raise _unwritable(folder, OSError(errno.EACCES, ""))


def _write(recipe: Recipe, product: DomainImages | PublicImages) -> None:
    notes = {name: _text(note) for name, note in product.notes.items() if note not in ("", 0)}
    notes["made_from"] = _short(recipe.fingerprint)
    try:
        if isinstance(product, DomainImages):
            shared = duplicates(product.train.images, product.test.images)
            write_domain(
                recipe.path,
                task=product.task,
                domain=product.domain,
                classes=product.classes,
                train=product.train,
                test=product.test,
                source=printable(product.source),
                notes={**notes, "test_images_also_in_train": shared},
                lists=product.lists,
            )
            if shared:
                say(f"{recipe.path}: {shared:,} test images are byte for byte also training images")
        else:
            write_public(
                recipe.path,
                name=product.name,
                images=product.images,
                labels=product.labels,
                classes=product.classes,
                source=printable(product.source),
                notes=notes,
                lists=product.lists,
            )
    except OSError as error:
        raise _unwritable(recipe.path, error) from error


def _text(note: str | int) -> str | int:
    return printable(note) if isinstance(note, str) else note


def _unwritable(path: Path, error: OSError) -> UserError:
    reason = _NOT_WRITABLE.get(error.errno or 0, str(error))
    return UserError(
        f"{path} cannot be written ({reason}): make room there or name another folder with --data"
    )


def _check_not_empty(path: Path, product: DomainImages | PublicImages) -> None:
    if isinstance(product, PublicImages):
        images = {"public": product.images}
    else:
        images = {"training": product.train.images, "test": product.test.images}
    for name, found in images.items():
        if not len(found):
            raise UserError(f"{path} would hold no {name} image: complete the raw files")


def _check_one_class_list(made: Sequence[tuple[Recipe, DomainImages | PublicImages]]) -> None:
    """All domains of a task have the same classes in the same order, those made earlier too."""
    rewritten = {recipe.path for recipe, _ in made}
    for recipe, product in made:
        if not isinstance(product, DomainImages):
            continue
        for sibling in sorted(set(recipe.path.parent.glob("*.h5")) - rewritten):
            if attributes(sibling).get("kind") != "domain":
                continue
            if read_domain_header(sibling).classes != tuple(product.classes):
                raise UserError(
                    f"{sibling} has other classes than {recipe.path} would have: make all domains of a task "
                    "from one raw folder, or name another --data folder"
                )


def _described(path: Path, product: DomainImages | PublicImages) -> str:
    if isinstance(product, PublicImages):
        return f"{path}: {len(product.images):,} public images"
    train, test = (len(split.images) for split in (product.train, product.test))
    return f"{path}: {len(product.classes)} classes, {train:,} training and {test:,} test images"


def _warn_of_shared_digits(path: Path, product: DomainImages | PublicImages) -> None:
    """MNIST-M is made of MNIST's digits: what one domain trains on must not be what the other tests on."""
    for sibling in sorted(path.parent.glob("*.h5")) if "train_origin" in product.notes else []:
        other = attributes(sibling)
        if sibling != path and (origin := _leak(product.notes, other) or _leak(other, product.notes)):
            warn(
                f"of {path} and {sibling} one trains on {origin} and the other tests on them: "
                "do not put both into one federation"
            )


def _leak(trains: Mapping[str, object], tests: Mapping[str, object]) -> object:
    origin = trains.get("train_origin")
    return origin if origin == tests.get("test_origin") else None


def _short(fingerprint: str) -> str:
    """The fingerprint as an attribute of fixed size."""
    return hashlib.sha256(fingerprint.encode(errors="surrogateescape")).hexdigest()
