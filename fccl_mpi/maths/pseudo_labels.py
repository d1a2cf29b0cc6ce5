"""Learning from unlabelled images with helpers (Jeong et al., FedMatch, ICLR 2021)."""

import torch
import torch.nn.functional as F
from torch import Tensor


def nearest(scores: Tensor, index: int, count: int) -> list[int]:
    """The ``count`` participants whose scores (K, B, C) are nearest to those of ``index``, or all others.

    Euclidean distance; of equal ones the first in participant order.
    """
    distances = (scores - scores[index]).square().sum((1, 2)).tolist()
    others = [other for other in range(len(scores)) if other != index]
    return sorted(others, key=lambda other: distances[other])[:count]


def agreed_labels(own: Tensor, helpers: Tensor) -> Tensor:
    """The class that most put first, int64 (B,): own (B, C) and helpers' (H, B, C) scores, a vote each.

    Of equally many votes, the lowest class, as in the original.
    """
    votes = F.one_hot(own.argmax(dim=1), own.shape[1]) + F.one_hot(helpers.argmax(dim=2), own.shape[1]).sum(0)
    return votes.argmax(dim=1)


def consistency(helpers: Tensor, logits: Tensor, chosen: Tensor) -> Tensor:
    """Mean over H helpers of KL(helper || softmax(logits)), over the chosen images, a scalar.

    Helpers' scores (H, B, C), own logits (B, C), ``chosen`` bool (B,). 0 without helpers or chosen images.
    """
    log_own = F.log_softmax(logits, dim=1).expand(helpers.shape)
    each = F.kl_div(log_own, helpers, reduction="none").sum(2).sum(0) / max(len(helpers), 1)
    return _mean_of(each, chosen)


def pseudo_label_loss(logits: Tensor, labels: Tensor, chosen: Tensor) -> Tensor:
    """Cross entropy of logits (B, C) with pseudo-labels (B,), over the chosen images (B,), a scalar."""
    return _mean_of(F.cross_entropy(logits, labels, reduction="none"), chosen)


def _mean_of(terms: Tensor, chosen: Tensor) -> Tensor:
    """Mean of the terms (B,) that are chosen; 0 where none is."""
    return torch.where(chosen, terms, 0).sum() / chosen.sum().clamp_min(1)


def decayed(psi: Tensor, sigma: Tensor, *, l1: float, l2: float, steps: int) -> Tensor:
    """psi after ``steps`` gradient steps on l1 |psi| + l2 (sigma - psi)^2; l1, l2 include the step size.

    The steps on the square are taken first, all at once; those on the absolute value stop at 0.
    """
    psi = sigma + max(0.0, 1 - 2 * l2) ** steps * (psi - sigma)
    return psi.sign() * (psi.abs() - steps * l1).clamp_min(0)
