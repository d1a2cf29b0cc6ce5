"""ShuffleNetV2: Ma et al., "Practical Guidelines for Efficient CNN Architecture Design", ECCV 2018."""

from torch import nn
from torchvision.models.shufflenetv2 import InvertedResidual
from torchvision.ops import Conv2dNormActivation

from fccl_mpi.models.base import Backbone, scaled

STAGES = ((116, 4), (232, 8), (464, 4))  # channels and units at 1×, the paper's table 5


def shufflenet_v2(*, classes: int, width: float = 1.0) -> Backbone:
    """ShuffleNetV2; images (B, 3, 32, 32) -> 1024·width features -> logits (B, classes).

    Fitted to 32×32: the stem has stride 1 instead of 2 and no max-pooling, so the three stages see 16, 8
    and 4 pixels a side where the paper's strides would leave 1×1 at the end. All channels are slimmed,
    the stem's and the last convolution's too, which the paper keeps.
    """
    channels = scaled(24, width)
    layers: list[nn.Module] = [Conv2dNormActivation(3, channels)]
    for base, units in STAGES:
        wider = scaled(base, width, divisor=4)  # 8 would make 120 of the paper's 116
        for unit in range(units):
            layers.append(InvertedResidual(channels, wider, 1 if unit else 2))
            channels = wider
    last = scaled(1024, width)
    layers.append(Conv2dNormActivation(channels, last, kernel_size=1))
    return Backbone(layers, last, classes=classes)
