"""Augmentation of public images: the same pixels on every rank and every kind of device.

As released: random crop of 32 with padding 4, horizontal flip, rotation within ±15 degrees with the
nearest pixel, black outside. The three compose to one lookup of a source pixel for each target pixel.
The lookup is drawn and worked out on the CPU from a seed, in double precision, and only gathered on
the device, so no device's rounding can make two participants see different images.
"""

import numpy as np
import torch
from torch import Tensor

PADDING = 4
DEGREES = 15.0


def augment(images: Tensor, generator: np.random.Generator) -> Tensor:
    """Augment uint8 images (B, 3, S, S), each in its own way; returns the same shape, dtype and device."""
    count, channels, side, _ = images.shape
    source, inside = source_pixels(count, side, generator)
    index = torch.from_numpy(source).to(images.device)[:, None].expand(-1, channels, -1)
    pixels = images.flatten(2).gather(2, index) * torch.from_numpy(inside).to(images.device)[:, None]
    return pixels.view(images.shape).contiguous(memory_format=torch.channels_last)


def source_pixels(count: int, side: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """For every image and target pixel: the flat source pixel, int64 (B, S*S), and whether it lies inside."""
    shift_y, shift_x = generator.integers(-PADDING, PADDING + 1, (2, count, 1))
    flip = generator.random((count, 1)) < 0.5
    angle = np.deg2rad(generator.uniform(-DEGREES, DEGREES, (count, 1)))
    centre = (side - 1) / 2
    y, x = (axis.reshape(1, -1) - centre for axis in np.mgrid[:side, :side])
    rotated_x = np.rint(np.cos(angle) * x + np.sin(angle) * y + centre).astype(np.int64)
    rotated_y = np.rint(np.cos(angle) * y - np.sin(angle) * x + centre).astype(np.int64)
    source_x = np.where(flip, side - 1 - rotated_x, rotated_x) + shift_x
    source_y = rotated_y + shift_y
    inside = np.ones(source_x.shape, bool)
    for axis in (rotated_x, rotated_y, source_x, source_y):
        inside &= (axis >= 0) & (axis < side)
    return np.where(inside, source_y * side + source_x, 0), inside
