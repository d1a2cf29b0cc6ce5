"""Which images a run uses: draws that depend on the seed and the set alone."""

import numpy as np

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.seeds import generator


def draw(size: int, wanted: int, seed: int, name: str, purpose: str) -> np.ndarray:
    """Indices of ``wanted`` of ``size`` images, int64, ascending; all of them where ``wanted`` is 0.

    Drawn without replacement from (seed, name, purpose), so the same on every rank and independent of
    how many participants there are. Raises UserError where the set is too small.
    """
    if wanted > size:
        raise UserError(f"{name}: {wanted} {purpose} images are asked for, but its file has {size}")
    return np.sort(generator(seed, name, purpose).permutation(size)[: wanted or size])


def batches(size: int, batch_size: int, order: np.ndarray | None = None) -> list[np.ndarray]:
    """Split 0..size-1, or an order of them, into batches of at most ``batch_size`` indices.

    A last batch of a single image joins the batch before it: BatchNorm cannot train on one image.
    """
    order = np.arange(size) if order is None else order
    cuts = list(range(batch_size, size, batch_size))
    if cuts and size - cuts[-1] == 1:
        cuts.pop()
    return np.split(order, cuts)
