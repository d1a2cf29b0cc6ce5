"""Federated instance similarity (Huang, Ye, Shi, Du, FCCL+, TPAMI 2023)."""

import torch.nn.functional as F
from torch import Tensor

SHORTEST = 1e-6  # features shorter than this have no direction: their gradient stays finite


def similarities(features: Tensor) -> Tensor:
    """Cosines of each image's features (B, F) with those of the batch's other images, (B, B - 1).

    Row b has the others in their order, b itself left out. The shape does not depend on F, so that models of
    different width can be compared.
    """
    directions = F.normalize(features, dim=1, eps=SHORTEST)
    return without_diagonal(directions @ directions.T)


def without_diagonal(matrix: Tensor) -> Tensor:
    """A square matrix (B, B) without its diagonal, rows kept: (B, B - 1)."""
    size = len(matrix)
    return matrix.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)
