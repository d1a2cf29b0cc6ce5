"""SYN Numbers (Ganin et al. 2016) as a private domain: drawn numbers, 32×32 RGB, the middle digit the label.

Three forms: the authors' MATLAB files ``synth_train_32x32.mat`` and ``synth_test_32x32.mat`` (479,400 +
9,553 images); the class folders of the program released with FCCL, ``imgs_train/<digit>`` and
``imgs_valid/<digit>`` (10,000 + 2,000); and, where neither is to be had, ``--raw rendered``: as many as
that, drawn anew after the paper's recipe.
"""

from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np

from data_prep.archives import Tree
from data_prep.classes import DIGITS
from data_prep.decoding import decode_all
from data_prep.digits import Labelled, digits_domain, wanted_parts
from data_prep.layout import File, find_classes, own_parts
from data_prep.matlab import read_mat
from data_prep.pixels import SIDE
from data_prep.progress import progress
from data_prep.raw import find, open_raw
from data_prep.source import Options, Recipe, Source, domain_path
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.seeds import generator

RENDERED = Path("rendered")
RENDERED_SIZES = {"train": 10_000, "test": 2_000}
FILES = {"train": "synth_train_32x32.mat", "test": "synth_test_32x32.mat"}


def plan(options: Options) -> list[Recipe]:
    """One domain, ``digits/syn.h5``."""
    parts = wanted_parts(options)
    if options.raw == RENDERED and not RENDERED.exists():
        drawn_by = _renderer()
        parts_are, stamp = "each drawn by itself", f"rendered {RENDERED_SIZES} {drawn_by}"
        source = f"after SYN Numbers (Ganin et al. 2016), drawn by data_prep with {drawn_by}"
        read = {part: partial(_rendered, part, options) for part in parts}
    else:
        tree = open_raw(options)
        paths, read = _published(tree, parts, options)
        parts_are, stamp = "as published", tree.stamp(paths)
        source = f"SYN Numbers (Ganin et al. 2016), {' and '.join(parts)} part, in {tree.shown}"
    return [
        Recipe(
            path=domain_path(options, "digits", "syn"),
            fingerprint=options.fingerprint(stamp),
            make=partial(digits_domain, "syn", read, source, options, parts_are=parts_are),
        )
    ]


def _published(tree: Tree, parts: list[str], options: Options) -> "tuple[list[str], dict]":
    """The paths of the raw files, and how each part is read."""
    mats = {part: find(tree, FILES[part]) for part in parts}
    found = {part: path for part, path in mats.items() if path is not None}
    if len(found) == len(parts):
        return list(found.values()), {part: partial(_mat, tree, path) for part, path in found.items()}
    folders = {} if found else own_parts(find_classes(tree, DIGITS))
    files = {part: folders.get(part, []) for part in parts}
    if not all(files.values()):
        raise UserError(
            f"{tree.shown} holds neither {' and '.join(FILES[part] for part in parts)} nor class folders 0 "
            "to 9 in imgs_train and imgs_valid: see --list for where the set is published, say --part if you "
            "have but one part, or --raw rendered for images drawn after its recipe"
        )
    paths = [file.path for part in parts for file in files[part]]
    return paths, {part: partial(_folder, tree, files[part], options) for part in parts}


def _mat(tree: Tree, path: str) -> Labelled:
    return read_mat(tree.read(path), f"{tree.shown}/{path}")


def _folder(tree: Tree, files: list[File], options: Options) -> Labelled:
    decoded = decode_all(tree, [file.path for file in files], options, "digits/syn")
    labels = np.array([file.label for file in files], np.int64)
    return decoded.images[decoded.kept], labels[decoded.kept]


def _renderer() -> str:
    """The versions that decide what rendered digits look like."""
    try:
        return ", ".join(f"{name} {metadata.version(name)}" for name in ("matplotlib", "pillow"))
    except metadata.PackageNotFoundError as error:
        raise UserError(f'--raw rendered needs {error.name}: pip install "fccl_mpi[demo]"') from error


def _rendered(part: str, options: Options) -> Labelled:
    """As many digits as the released layout has, each class equally often, drawn like quickstart's."""
    from data_prep import quickstart

    size = RENDERED_SIZES[part]
    fonts = quickstart._fonts(quickstart._present(quickstart.FONTS, at_least=10))
    rng = generator(options.seed, "digits", "syn", part, "drawing")
    labels = rng.permutation(np.arange(size) % 10)
    images = np.empty((size, SIDE, SIDE, 3), np.uint8)
    with progress("digits/syn", size) as advance:
        for image, label in zip(images, labels.tolist(), strict=True):
            image[:] = quickstart._drawn(str(label), quickstart.DIGITS, fonts, rng)
            advance(1)
    return images, labels


SOURCE = Source(
    name="syn",
    title="SYN Numbers, synthetic digits",
    makes="digits/syn.h5",
    wants="synth_train_32x32.mat and synth_test_32x32.mat, or class folders in imgs_train and imgs_valid, "
    "or --raw rendered to draw 12,000 anew",
    published="http://yaroslav.ganin.net (SynthDigits.zip)",
    options=frozenset({"filter", "files", "part", "split", "seed"}),
    plan=plan,
)
