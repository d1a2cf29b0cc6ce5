"""MobileNetV2: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018."""

from torch import nn
from torchvision.models.mobilenetv2 import InvertedResidual
from torchvision.ops import Conv2dNormActivation

from fccl_mpi.models.base import Backbone, scaled

# Expansion, channels, blocks, stride of the first block: the paper's table 2 but for one stride.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),  # stride 2 in the paper
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(*, classes: int, width: float = 1.0) -> Backbone:
    """MobileNetV2; images (B, 3, 32, 32) -> 1280·width features -> logits (B, classes).

    Fitted to 32×32 as in FCCL's released program: the stem and the second stage have stride 1 instead of
    2, so the last maps are 4×4 where the paper's strides would leave 1×1. No dropout, as released. The
    last convolution is slimmed too, which the paper spares at widths below 1.
    """
    channels = scaled(32, width)
    layers: list[nn.Module] = [Conv2dNormActivation(3, channels, activation_layer=nn.ReLU6)]
    for expansion, base, blocks, stride in STAGES:
        wider = scaled(base, width)
        for block in range(blocks):
            layers.append(InvertedResidual(channels, wider, 1 if block else stride, expansion))
            channels = wider
    last = scaled(1280, width)
    layers.append(Conv2dNormActivation(channels, last, kernel_size=1, activation_layer=nn.ReLU6))
    return Backbone(layers, last, classes=classes)
