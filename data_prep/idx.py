"""The idx format of MNIST: a magic number, big-endian sizes, then the bytes; plain or gzipped.

http://yann.lecun.com/exdb/mnist (the page's section on file formats).
"""

import hashlib
import math

import numpy as np

from data_prep.archives import Tree, what_is_wrong
from data_prep.raw import check_md5, require, unpacked
from data_prep.source import Options
from fccl_mpi.core.errors import UserError

PARTS = {"train": "train", "test": "t10k"}
MOST_BYTES = 1 << 30
"""Far more than any published idx file unpacks to."""


def read_part(
    tree: Tree, part: str, known: dict[str, str], options: Options
) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (N, 28, 28) and labels int64 (N,) of ``"train"`` or ``"test"``.

    ``known`` are the md5 of the published files' unpacked content: however they were packed.
    """
    images = _read(tree, f"{PARTS[part]}-images-idx3-ubyte", 3, known, options)
    labels = _read(tree, f"{PARTS[part]}-labels-idx1-ubyte", 1, known, options)
    if images.shape[1:] != (28, 28) or len(images) != len(labels) or labels.max(initial=0) > 9:
        raise UserError(
            f"{tree.shown} holds {part} images {images.shape} with labels {labels.shape} up to "
            f"{labels.max(initial=0)}, not 28×28 pixels each with a label of 0 to 9: fetch the files again"
        )
    return images, labels.astype(np.int64)


def part_paths(tree: Tree, part: str) -> list[str]:
    """The paths of the images and labels of a part. Raises UserError if either is missing."""
    kinds = ("images-idx3", "labels-idx1")
    return [_path(tree, f"{PARTS[part]}-{kind}-ubyte") for kind in kinds]


def _path(tree: Tree, name: str) -> str:
    variants = [name, name.replace("-idx", ".idx")]
    hint = (
        "see --list for where it is published, add --download, or say --part if you have but one of the parts"
    )
    return require(tree, *(variant + end for end in (".gz", "") for variant in variants), hint=hint)


def _read(tree: Tree, name: str, dimensions: int, known: dict[str, str], options: Options) -> np.ndarray:
    path = _path(tree, name)
    shown = f"{tree.shown}/{path}"
    content, _ = unpacked(tree.read(path), shown, MOST_BYTES)
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < header:
        wrong = what_is_wrong(
            content, f"it begins with {content[:4].hex(' ')}, not with 00 00 08 0{dimensions}"
        )
        raise UserError(f"{shown} is no idx file of {dimensions} dimensions: {wrong}; fetch it again")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, 4))
    if math.prod(shape) != len(content) - header:
        raise UserError(
            f"{shown} should hold {math.prod(shape):,} bytes of {shape} and holds {len(content) - header:,}: "
            "it is cut short or damaged, fetch it again"
        )
    check_md5(shown, hashlib.md5(content, usedforsecurity=False).hexdigest(), known.get(name), options)
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
