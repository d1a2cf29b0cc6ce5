"""A model small enough to follow with NumPy: logits linear in the mean colour."""

import torch
from torch import nn


class Linear(nn.Module):
    """Logits (B, C) of images (B, 3, H, W): W mean-colour + b."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, classes)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Mean colours (B, 3)."""
        return images.mean((2, 3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (B, C)."""
        return self.layer(self.features(images))


def build(*, classes: int, width: float = 1.0) -> nn.Module:
    """A user's own builder."""
    return Linear(classes)


def blind(*, classes: int, width: float = 1.0) -> nn.Module:
    """The same for logits, without features."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes))


def places(*, classes: int, width: float = 1.0) -> nn.Module:
    """Logits linear in the mean colour of each of 8 x 8 places."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(192, classes))
