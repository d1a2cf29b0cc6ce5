"""USPS (Hull 1994) as a private domain: 7,291 + 2,007 grey digits of 16×16 from postal envelopes.

In LIBSVM's text form, one digit a line: ``label 1:value … 256:value``, labels 1..10 for digits 0..9,
values −1..1, row by row; or in the form ``usps.h5``: ``/train/data`` (N, 256) of 0..1 and
``/train/target`` (N,) of 0..9, ``/test`` the same.
"""

from functools import partial
from pathlib import Path

import h5py
import numpy as np

from data_prep.archives import Tree
from data_prep.digits import Labelled, digits_domain, wanted_parts
from data_prep.raw import binary, check_file, fetch, find, open_raw, require, unpacked
from data_prep.source import Options, Recipe, Source, domain_path
from fccl_mpi.core.errors import UserError

URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
FILES = {"train": "usps.bz2", "test": "usps.t.bz2"}
KNOWN = {"usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197", "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118"}
SIZES = {"train": 7291, "test": 2007}
MOST_BYTES = 1 << 28


def plan(options: Options) -> list[Recipe]:
    """One domain, ``digits/usps.h5``."""
    tree = open_raw(options, download)
    parts = wanted_parts(options)
    if path := find(tree, "usps.h5"):
        paths, read = [path], {part: partial(_read_h5, tree, path, part, options) for part in parts}
    else:
        hint = "see --list for where it is published, add --download, or say --part if you have but one part"
        found = {part: require(tree, FILES[part], FILES[part][:-4], hint=hint) for part in parts}
        paths = list(found.values())
        read = {part: partial(_read_libsvm, tree, path, part, options) for part, path in found.items()}
    source = f"USPS (Hull 1994), {' and '.join(parts)} part, {', '.join(paths)} in {tree.shown}"
    return [
        Recipe(
            path=domain_path(options, "digits", "usps"),
            fingerprint=options.fingerprint(tree.stamp(paths)),
            make=partial(digits_domain, "usps", read, source, options),
        )
    ]


def download(folder: Path) -> None:
    """Fetch the two files that are not there yet."""
    for name, md5 in KNOWN.items():
        fetch(folder, name, [f"{URL}/{name}"], md5)


def _read_libsvm(tree: Tree, path: str, part: str, options: Options) -> Labelled:
    shown = f"{tree.shown}/{path}"
    text, whole = unpacked(check_file(tree, path, KNOWN, options), shown, MOST_BYTES)
    lines = text.splitlines()
    if not whole:
        raise UserError(
            f"{shown} is cut short after {len(lines):,} of {SIZES[part]:,} digits: fetch it again"
        )
    pixels = np.zeros((len(lines), 256), np.float32)  # what a line leaves out is 0
    labels = np.zeros(len(lines), np.int64)
    for row, line in enumerate(lines):
        try:
            label, *features = map(float, line.replace(b":", b" ").split())
            indices = np.array(features[::2], int)
            pixels[row, indices - 1] = features[1::2]
            labels[row] = label - 1
        except (ValueError, IndexError) as error:
            raise UserError(
                f"{shown}, line {row + 1}: {line[:40]!r}… is no digit of USPS: fetch the file again"
            ) from error
    return _checked(shown, (pixels + 1) / 2, labels, part, options)


def _read_h5(tree: Tree, path: str, part: str, options: Options) -> Labelled:
    shown = f"{tree.shown}/{path}"
    try:
        with binary(tree.read(path)) as raw, h5py.File(raw, "r") as file:
            pixels = np.asarray(file[f"{part}/data"], np.float32).reshape(-1, 256)
            labels = np.asarray(file[f"{part}/target"]).astype(np.int64)
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{shown} cannot be read as usps.h5 ({error}): fetch it again") from error
    return _checked(shown, pixels, labels, part, options)


def _checked(shown: str, pixels: np.ndarray, labels: np.ndarray, part: str, options: Options) -> Labelled:
    """``pixels`` (N, 256) of 0..1 as grey values 0..255, uint8 (N, 16, 16), to the nearest."""
    if len(labels) != SIZES[part] and not options.any_checksum:
        raise UserError(
            f"{shown} holds {len(labels):,} digits where its publisher's {part} part has {SIZES[part]:,}: "
            "fetch it again, or add --any-checksum if you know why it differs"
        )
    if len(labels) != len(pixels) or not set(labels.tolist()) <= set(range(10)):
        raise UserError(f"{shown} holds labels that stand for no digit: fetch it again")
    if not (pixels.min() > -0.01 and pixels.max() < 1.01):
        raise UserError(f"{shown} holds pixels outside of their range: fetch it again")
    return np.rint(pixels.clip(0, 1) * 255).astype(np.uint8).reshape(-1, 16, 16), labels


SOURCE = Source(
    name="usps",
    title="USPS handwritten digits",
    makes="digits/usps.h5",
    wants="usps.bz2 and usps.t.bz2 (LIBSVM text), or usps.h5",
    published=f"{URL}.html#usps",
    options=frozenset({"filter", "checksum", "part", "split", "seed"}),
    plan=plan,
    download=download,
)
