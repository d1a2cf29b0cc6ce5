"""Which images are for training and which for testing: the same on every machine, for the same files."""

import hashlib
from collections.abc import Sequence

import numpy as np

from fccl_mpi.core.seeds import generator


def split_by_class(
    labels: np.ndarray, classes: Sequence[str], *, share: float, seed: int, purpose: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint ascending indices for training and testing, drawn within each class.

    Of n images of a class, n·(1 − share) rounded down are for testing, but at least one where n > 1, and
    always one for training. The draw depends on the seed, ``purpose`` (task and domain), the class's name
    and n alone: not on what other classes or domains there are.
    """
    train, test = [], []
    for label, name in enumerate(classes):
        members = np.flatnonzero(labels == label)
        count = len(members)
        tests = min(max(int(count * (1 - share) + 1e-9), 1), max(count - 1, 0))
        shuffled = generator(seed, *purpose, name, "split").permutation(members)
        test.append(shuffled[:tests])
        train.append(shuffled[tests:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def draw(count: int, wanted: int, *, seed: int, purpose: str) -> np.ndarray:
    """Ascending indices of ``wanted`` of ``count`` images, without replacement; all of them for 0."""
    return np.sort(generator(seed, purpose, "draw").permutation(count)[: wanted or count])


def duplicates(train: np.ndarray, test: np.ndarray) -> int:
    """How many images of ``test`` (M, 32, 32, 3) are byte for byte also in ``train`` (N, 32, 32, 3)."""
    seen = {_digest(image) for image in train}
    return sum(_digest(image) in seen for image in test)


def _digest(image: np.ndarray) -> bytes:
    return hashlib.blake2b(image.tobytes(), digest_size=16).digest()
