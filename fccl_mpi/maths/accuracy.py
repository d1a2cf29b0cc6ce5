"""Measures of the paper (CVPR 2022, Eq. 7 to 9)."""

from torch import Tensor


def count_correct(logits: Tensor, labels: Tensor, k: int) -> Tensor:
    """How many of the labels (B,) are among the k largest logits (B, C); an int64 scalar on the device."""
    return (logits.topk(k, dim=1).indices == labels[:, None]).sum()
