"""Public sets: what class folders and arrays of images have in common on the way to one file."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from data_prep.archives import Tree
from data_prep.decoding import decode_all
from data_prep.digits import Labelled
from data_prep.layout import File, find_any_classes
from data_prep.pixels import Look, resize
from data_prep.progress import say
from data_prep.raw import open_raw
from data_prep.source import Options, PublicImages, Recipe, file_name, public_path
from data_prep.splits import draw
from fccl_mpi.core.errors import UserError


def public_arrays(
    name: str,
    read: Sequence[Callable[[], Labelled]],
    classes: Sequence[str],
    source: str,
    options: Options,
) -> PublicImages:
    """A public set from arrays, the parts that ``read`` gives one after the other."""
    parts = [part() for part in read]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    rows = _drawn(name, len(images), options)
    return PublicImages(
        name=name,
        images=resize(images[rows], Look(options.filter, options.background)),
        labels=labels[rows],
        classes=classes,
        source=source,
        notes={"resized_by": options.filter, **_drawn_note(len(rows), len(images), options)},
    )


def plan_public_folder(
    options: Options, name: str = "", title: str = "", default_images: int = 0
) -> list[Recipe]:
    """A public set from a tree of class folders, or of image files alone."""
    tree = open_raw(options)
    files, classes = find_any_classes(tree)
    name = name or file_name(options.public)
    return [
        public_files(
            tree, name, title or f"images of {tree.shown}", files, classes.names, options, default_images
        )
    ]


def public_files(
    tree: Tree,
    name: str,
    title: str,
    files: Sequence[File],
    classes: Sequence[str],
    options: Options,
    default_images: int = 0,
) -> Recipe:
    """The recipe of a public set from files; of those in ``--part``, ``--images`` are drawn and read."""
    there = {file.part for file in files}
    if "test" not in there:  # the validation part serves for it
        files = [file._replace(part="test") if file.part == "val" else file for file in files]
    part = options.part or ("train" if "train" in there else "all")
    wanted = [file for file in files if part in ("all", file.part)]
    if not wanted:
        parts = ", ".join(sorted(there - {""})) or "none"
        raise UserError(f"{tree.shown} has no images of part {part}; its parts: {parts}. Leave out --part")
    chosen = [wanted[row] for row in _drawn(name, len(wanted), options, default_images)]
    say(f"{tree.shown}: {len(chosen):,} of {len(wanted):,} files")
    note = _drawn_note(len(chosen), len(wanted), options)
    return Recipe(
        path=public_path(options, name),
        fingerprint=options.fingerprint(tree.stamp([file.path for file in chosen]), *classes),
        make=partial(_make, tree, name, title, chosen, classes, note, options),
    )


def _make(
    tree: Tree,
    name: str,
    title: str,
    files: Sequence[File],
    classes: Sequence[str],
    note: dict[str, str | int],
    options: Options,
) -> PublicImages:
    decoded = decode_all(tree, [file.path for file in files], options, name)
    labels = np.array([file.label for file in files], np.int64)
    kept = decoded.kept if decoded.broken else slice(None)
    return PublicImages(
        name=name,
        images=decoded.images[kept],
        labels=labels[kept] if classes else None,
        classes=classes,
        source=f"{title}, in {tree.shown}",
        notes={
            "resized_by": options.filter,
            "background": options.background,
            "passed_over": ", ".join(f"{count:,} {what}" for what, count in sorted(tree.passed_over.items())),
            "broken": len(decoded.broken),
            **note,
        },
        lists={"broken_files": decoded.broken} if decoded.broken else {},
    )


def _drawn(name: str, count: int, options: Options, default: int = 0) -> np.ndarray:
    wanted = options.images or min(default, count)
    if wanted > count:
        raise UserError(
            f"--images {wanted:,} asks for more than the {count:,} that {options.raw} has: ask for less"
        )
    return draw(count, wanted, seed=options.seed, purpose=name)


def _drawn_note(drawn: int, count: int, options: Options) -> dict[str, str | int]:
    return {"drawn": f"{drawn} of {count} from seed {options.seed}"} if drawn < count else {}
