"""MATLAB files of digits: ``X`` uint8 (32, 32, 3, N), that is height, width, channel, image; ``y`` (N, 1)."""

from pathlib import Path

import numpy as np

from data_prep.archives import what_is_wrong
from data_prep.digits import Labelled
from data_prep.raw import binary
from fccl_mpi.core.errors import UserError

CHUNK = 4096


def read_mat(content: Path | bytes, shown: str) -> Labelled:
    """Images uint8 (N, 32, 32, 3) and labels int64 (N,) of 0..9, where the file may call the 0 a 10."""
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise UserError('.mat files need SciPy: pip install "fccl_mpi[data_prep]"') from error
    with binary(content) as file:
        head = file.read(512)
        file.seek(0)
        try:
            table = loadmat(file, variable_names=["X", "y"])
            images, labels = table["X"], table["y"].reshape(-1)
        except Exception as error:  # at a damaged file SciPy raises all manner of things
            wrong = what_is_wrong(head, f"it is cut short or damaged ({type(error).__name__}: {error})")
            wrong = f"{wrong}; fetch it again"
            raise UserError(
                f"{shown} cannot be read as a MATLAB file with X and y: {wrong}; fetch it again"
            ) from error
    if images.dtype != np.uint8 or images.shape != (32, 32, 3, len(labels)):
        raise UserError(
            f"{shown} holds X {images.dtype} {images.shape} with {len(labels):,} labels, "
            f"not uint8 (32, 32, 3, N) with N labels: fetch it again"
        )
    found = set(np.unique(labels).tolist())
    if not found <= set(range(11)) or found >= {0, 10}:
        raise UserError(
            f"{shown} holds the labels {sorted(found)}, which are not the ten digits: fetch it again"
        )
    return _images_first(images), labels.astype(np.int64) % 10


def _images_first(images: np.ndarray) -> np.ndarray:
    """(32, 32, 3, N) to (N, 32, 32, 3) in the same memory: Ganin's set has 1.5 GB of it.

    MATLAB stores the first axis fastest, so that an image's 3,072 bytes lie together already, as
    (channel, width, height).
    """
    if not images.flags.f_contiguous or not images.flags.writeable:
        return np.ascontiguousarray(images.transpose(3, 0, 1, 2))
    stored = images.T  # (N, 3, 32, 32): image, channel, width, height
    flat = stored.reshape(len(stored), -1)
    for start in range(0, len(stored), CHUNK):
        chunk = slice(start, start + CHUNK)
        flat[chunk] = stored[chunk].transpose(0, 3, 2, 1).copy().reshape(-1, flat.shape[1])
    return flat.reshape(-1, 32, 32, 3)
