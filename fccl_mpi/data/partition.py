"""Which images a run uses: draws that depend on the seed and the set alone."""

from collections.abc import Mapping

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


def split_domain(
    labels: np.ndarray, shares: Mapping[str, float], skew: float, seed: int, domain: str
) -> dict[str, np.ndarray]:
    """Split a domain's training images over its participants; indices by name, int64, ascending.

    Class by class, the parts follow ``shares``; with ``skew`` α > 0 they are drawn from a Dirichlet
    distribution of mean ``shares`` and concentration α a participant (Hsu et al. 2019), so that
    participants differ in their labels. Raises UserError where one gets fewer than two images.
    """
    randomness = generator(seed, domain, "split")
    weights = np.array(list(shares.values())) / sum(shares.values())
    parts: dict[str, list[np.ndarray]] = {name: [] for name in shares}
    for label in np.unique(labels):
        ours = randomness.permutation(np.flatnonzero(labels == label))
        drawn = randomness.dirichlet(weights * len(shares) * skew) if skew else weights
        cuts = np.rint(np.cumsum(drawn)[:-1] * len(ours)).astype(int)
        for name, part in zip(shares, np.split(ours, cuts), strict=True):
            parts[name].append(part)
    found = {name: np.sort(np.concatenate(part)) for name, part in parts.items()}
    for name, part in found.items():
        if len(part) < 2:
            raise UserError(
                f"label_skew={skew}: {name} gets {len(part)} images of {domain}; choose a larger one"
            )
    return found


def batches(size: int, batch_size: int, order: np.ndarray | None = None) -> list[np.ndarray]:
    """Split 0..size-1, or an order of them, into batches of at most ``batch_size`` indices.

    A last batch of a single image joins the batch before it: BatchNorm cannot train on one image.
    """
    order = np.arange(size) if order is None else order
    cuts = list(range(batch_size, size, batch_size))
    if cuts and size - cuts[-1] == 1:
        cuts.pop()
    return np.split(order, cuts)
