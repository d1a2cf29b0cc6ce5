"""Measures of the paper (CVPR 2022, Eq. 7 to 9)."""

import torch.nn.functional as F
from torch import Tensor


def count_correct(logits: Tensor, labels: Tensor, k: int) -> Tensor:
    """How many of the labels (B,) are among the k largest logits (B, C); an int64 scalar on the device."""
    return (logits.topk(k, dim=1).indices == labels[:, None]).sum()


def accuracy_by_label(logits: Tensor, labels: Tensor) -> Tensor:
    """Part of each class's labels (N,) that the logits (N, C) put first, (C,); 0 for a class without any."""
    is_label = F.one_hot(labels, logits.shape[1]).to(logits.dtype)
    right = (logits.argmax(dim=1) == labels).to(logits.dtype)
    return (is_label * right[:, None]).sum(0) / is_label.sum(0).clamp_min(1)
