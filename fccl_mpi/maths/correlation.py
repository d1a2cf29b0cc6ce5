"""Federated cross-correlation learning (Huang, Ye, Du, CVPR 2022, Eq. 1 and 2)."""

import torch
from torch import Tensor


def cross_correlation(logits: Tensor, consensus: Tensor, *, unbiased_std: bool = True) -> Tensor:
    """Cross-correlation matrix M of Eq. 1, shape (C, C), entries in [-1, 1].

    ``M = standardise(Z_i)^T standardise(Z_bar) / B`` with ``logits`` Z_i and ``consensus`` Z_bar of
    shape (B, C). With ``unbiased_std`` (as released) the deviation divides by B - 1 while M divides by
    B, so a perfect diagonal is (B - 1) / B.
    """
    own, mean = (standardise(z, unbiased=unbiased_std) for z in (logits, consensus))
    return own.T @ mean / len(logits)


def cross_correlation_loss(matrix: Tensor, off_diag_weight: float) -> Tensor:
    """Collaborative loss L_Col of Eq. 2, a scalar.

    ``sum_u (1 - M_uu)^2 + lambda_Col sum_u sum_{v != u} (1 + M_uv)^2``: the target is +1 on the
    diagonal and -1 (not Barlow Twins' 0) off it.
    """
    diagonal = matrix.diagonal()
    on_diag = (1 - diagonal).square().sum()
    off_diag = (1 + matrix).square().sum() - (1 + diagonal).square().sum()
    return on_diag + off_diag_weight * off_diag


def standardise(logits: Tensor, *, unbiased: bool) -> Tensor:
    """Every column of (B, C) to mean 0 and deviation 1 over the batch.

    A column that does not vary beyond rounding becomes 0 with a finite gradient, where dividing by its
    deviation would give NaN or noise; so B = 1 gives zeros.
    """
    centred = logits - logits.mean(0)
    variance = centred.square().sum(0) / max(len(logits) - unbiased, 1)
    rounding = torch.finfo(logits.dtype).eps * logits.detach().abs().amax(0)
    varies = variance.detach() > rounding.square()
    return torch.where(varies, centred / torch.where(varies, variance, 1).sqrt(), 0 * centred)
