"""GoogLeNet: Szegedy et al., "Going Deeper with Convolutions", CVPR 2015."""

from torch import nn
from torchvision.models.googlenet import BasicConv2d, Inception

from fccl_mpi.models.base import Backbone, scaled

# The paper's table 1. A module: 1×1; 3×3 reduce, 3×3; 5×5 reduce, 5×5; pool projection. A stage: modules.
STAGES = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def googlenet(*, classes: int, width: float = 1.0) -> Backbone:
    """GoogLeNet with BatchNorm; images (B, 3, 32, 32) -> 1024·width features -> logits (B, classes).

    Fitted to 32×32 as in FCCL's released program: one 3×3 convolution of stride 1 stands for the stem of
    three convolutions and two max-pools, of stride 8 in all, so the three stages see 32, 16 and 8 pixels
    a side. Neither auxiliary classifiers nor dropout, as released. The 5×5 convolutions are 3×3 ones, as
    in torchvision.
    """
    channels = scaled(192, width)
    layers: list[nn.Module] = [BasicConv2d(3, channels, kernel_size=3, padding=1)]
    for stage, modules in enumerate(STAGES):
        if stage:
            layers.append(nn.MaxPool2d(3, stride=2, ceil_mode=True))
        for module in modules:
            one, three_reduce, three, five_reduce, five, pool = (scaled(base, width) for base in module)
            layers.append(Inception(channels, one, three_reduce, three, five_reduce, five, pool))
            channels = one + three + five + pool
    return Backbone(layers, channels, classes=classes)
