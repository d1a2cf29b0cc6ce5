"""EfficientNet: Tan & Le, "Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019."""

from torch import nn
from torchvision.models.efficientnet import MBConv, MBConvConfig
from torchvision.ops import Conv2dNormActivation

from fccl_mpi.models.base import Backbone, scaled

# Expansion, kernel, stride of the first block, channels in and out, blocks: the paper's table 1.
STAGES = (
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)
DROPOUT = 0.2
STOCHASTIC_DEPTH = 0.2


def efficientnet_b0(*, classes: int, width: float = 1.0) -> Backbone:
    """EfficientNet-B0; images (B, 3, 32, 32) -> 1280·width features -> logits (B, classes).

    Fitted to 32×32 as in FCCL's released program: the stem has stride 1 instead of 2, so the last maps
    are 2×2 where the paper's strides would leave 1×1.

    In train mode features are dropped with chance 0.2, and an image skips a residual branch with a chance
    that grows from 0 at the first block towards 0.2. Both draw from torch's global generators, which the
    caller seeds.
    """
    layers: list[nn.Module] = [Conv2dNormActivation(3, scaled(32, width), activation_layer=nn.SiLU)]
    blocks = [
        MBConvConfig(expansion, kernel, 1 if block else stride, out if block else into, out, 1, width)
        for expansion, kernel, stride, into, out, depth in STAGES
        for block in range(depth)
    ]
    for depth, block in enumerate(blocks):
        layers.append(MBConv(block, STOCHASTIC_DEPTH * depth / len(blocks), nn.BatchNorm2d))
    last = scaled(1280, width)
    layers.append(Conv2dNormActivation(scaled(320, width), last, kernel_size=1, activation_layer=nn.SiLU))
    return Backbone(layers, last, classes=classes, dropout=DROPOUT)
