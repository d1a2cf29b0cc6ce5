"""``inspect`` and ``verify``: what a file holds, whether it still does, and what its images look like."""

from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from data_prep.build import attributes
from data_prep.progress import printable, say
from fccl_mpi.core import hdf5
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import replacing
from fccl_mpi.data import schema

if TYPE_CHECKING:
    from PIL import Image

COLUMNS = 10
"""So many images of each class and split on a contact sheet."""
ROWS = 200
"""A sheet of more classes would be taller than viewers like."""
GAP, LABEL = 4, 120

Splits = dict[str, tuple[np.ndarray, np.ndarray | None]]


def verify(path: Path) -> None:
    """Recompute every digest in the file and say so. Raises UserError if one does not match."""
    say(f"{path}: whole, digest {schema.verify(path)}")


def inspect(path: Path, sheet: Path | None) -> None:
    """Print what a file holds and write its contact sheet, beside it unless ``sheet`` names another place."""
    splits, classes = _read(path)
    for line in _counts(splits, classes):
        say(line)
    for name, (images, _) in splits.items():
        mean, std = _moments(images)
        say(f"{name}: {len(images):,} images, red green blue mean {_listed(mean)} std {_listed(std)}")
    for name, value in sorted(attributes(path).items()):
        say(f"  {name} = {value}")
    for name, lines in _lists(path).items():
        say(f"  {name}: {', '.join(lines[:5])}{f' and {len(lines) - 5} more' if len(lines) > 5 else ''}")
    sheet = sheet or path.with_suffix(".png")
    _save(_sheet(splits, classes), sheet)
    say(f"contact sheet: {sheet}")


def _read(path: Path) -> tuple[Splits, tuple[str, ...]]:
    if schema.read_kind(path) == "public":
        with hdf5.reading(path) as file:
            classes = tuple(hdf5.strings(file, "classes")) if "classes" in file else ()
        return {"public": schema.read_public(path)}, classes
    splits = {name: schema.read_split(path, name) for name in ("train", "test")}
    return {name: (split.images, split.labels) for name, split in splits.items()}, schema.read_domain_header(
        path
    ).classes


def _counts(splits: Splits, classes: tuple[str, ...]) -> list[str]:
    """A table of classes × splits, aligned."""
    if not classes:
        return ["no classes"]
    width = max(len("class"), *map(len, classes))
    lines = [" ".join([f"{'class':{width}}", *(f"{name:>8}" for name in splits)])]
    counts = [
        np.bincount(labels, minlength=len(classes)) for _, labels in splits.values() if labels is not None
    ]
    for label, name in enumerate(classes):
        lines.append(" ".join([f"{name:{width}}", *(f"{count[label]:>8,}" for count in counts)]))
    return lines


def _moments(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation per channel, (3,) each, of values in 0..1; exact, from a histogram."""
    values = np.arange(256) / 255
    counts = np.stack([np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(3)])
    share = counts / counts.sum(axis=1, keepdims=True)
    mean = share @ values
    return mean, np.sqrt(share @ values**2 - mean**2)


def _listed(numbers: np.ndarray) -> str:
    return " ".join(f"{number:.4f}" for number in numbers)


def _lists(path: Path) -> dict[str, list[str]]:
    """The lists of strings that say how the file was made."""
    with hdf5.reading(path) as file:
        names = [name for name, found in file.items() if isinstance(found, h5py.Dataset)]
        kinds = {name: h5py.check_string_dtype(file[name].dtype) for name in names if name != "classes"}
        return {name: hdf5.strings(file, name) for name, kind in kinds.items() if kind}


def _sheet(splits: Splits, classes: tuple[str, ...]) -> "Image.Image":
    """A row for each class: its name, then some images of every split; without classes, rows of images."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise UserError('a contact sheet needs Pillow: pip install "fccl_mpi[data_prep]"') from error
    cell = schema.SIDE + GAP
    rows = classes[:ROWS] or tuple(str(row * COLUMNS) for row in range(COLUMNS))
    width = LABEL + len(splits) * (COLUMNS * cell + 4 * GAP)
    sheet = Image.new("RGB", (width, (len(rows) + 1) * cell), "white")
    draw = ImageDraw.Draw(sheet)
    for column, (split, (images, labels)) in enumerate(splits.items()):
        left = LABEL + column * (COLUMNS * cell + 4 * GAP)
        draw.text((left, GAP), f"{split}, {len(images):,} images", "black")
        for row, name in enumerate(rows):
            top = (row + 1) * cell
            if not column:
                draw.text(
                    (GAP, top + cell // 4), printable(name).encode("ascii", "replace").decode()[:18], "black"
                )
            if labels is None or not classes:
                chosen = list(range(row * COLUMNS, min((row + 1) * COLUMNS, len(images))))
            else:
                chosen = np.flatnonzero(labels == row)[:COLUMNS].tolist()
            for place, index in enumerate(chosen):
                sheet.paste(Image.fromarray(images[index]), (left + place * cell, top))
    return sheet


def _save(sheet: "Image.Image", path: Path) -> None:
    try:
        with replacing(path) as temporary:
            sheet.save(temporary, format="PNG")
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error}): name another place with --sheet") from error
