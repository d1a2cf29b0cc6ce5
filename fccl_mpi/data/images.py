"""Image sets on the device: whole, as uint8; normalised a batch at a time where they are used."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class ImageSet:
    """Labelled images on a device.

    ``images`` uint8 (N, 3, 32, 32), channels last in memory; ``labels`` int64 (N,).
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, device: torch.device) -> None:
        """Take ``images`` as stored, (N, 32, 32, 3)."""
        self.images = to_device(images, device)
        self.labels = torch.from_numpy(labels).to(device)

    def __len__(self) -> int:
        return len(self.labels)


class Normaliser:
    """Pixels 0..255 to (x / 255 - mean) / std per channel, in float32."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], device: torch.device) -> None:
        mean_, std_ = (torch.tensor(list(v), device=device).view(1, 3, 1, 1) for v in (mean, std))
        self.scale = 1 / (255 * std_)
        self.offset = -mean_ / std_

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 (B, 3, H, W) to float32 of the same shape and memory format."""
        return images.to(torch.float32).mul_(self.scale).add_(self.offset)


def to_device(images: np.ndarray, device: torch.device) -> Tensor:
    """(N, H, W, 3) as stored to a (N, 3, H, W) view of the same bytes on the device: channels last."""
    return torch.from_numpy(images).to(device).permute(0, 3, 1, 2)
