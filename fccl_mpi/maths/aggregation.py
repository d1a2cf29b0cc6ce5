"""How logits of several participants become one."""

from collections.abc import Sequence

import torch
from torch import Tensor


def mean(entries: Sequence[Tensor]) -> Tensor:
    """Mean of K tensors of one shape, summed in their order: bit-equal wherever the entries are."""
    total = entries[0].clone()
    for entry in entries[1:]:
        total += entry
    return total / len(entries)


def median(entries: Sequence[Tensor]) -> Tensor:
    """Median of each entry over K tensors; of an even K, the mean of the two in the middle.

    Up to (K - 1) / 2 participants cannot move it beyond what the others say (Yin et al., ICML 2018).
    """
    return _middle(entries, (len(entries) - 1) // 2)


def trimmed_mean(entries: Sequence[Tensor]) -> Tensor:
    """Mean of each entry without its lowest and highest quarter, at least one each where K allows.

    For K = 4 the mean of the middle two (Yin et al., ICML 2018, with β = 1/4).
    """
    return _middle(entries, min(max(1, len(entries) // 4), (len(entries) - 1) // 2))


def _middle(entries: Sequence[Tensor], cut: int) -> Tensor:
    """Mean of each entry but the ``cut`` lowest and highest."""
    ranked = torch.stack(list(entries)).sort(dim=0).values
    return mean(list(ranked[cut : len(ranked) - cut]))


def mean_by_label(scores: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean of scores (K, B, C) over K, weighted label by label: weights (K, C), result (B, C).

    A label on which all weights are 0 is averaged evenly.
    """
    weights = torch.where(weights.sum(0) > 0, weights, 1)
    return (scores * (weights / weights.sum(0))[:, None]).sum(0)


AGGREGATES = {"mean": mean, "median": median, "trimmed_mean": trimmed_mean}
