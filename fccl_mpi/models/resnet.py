"""ResNets of basic blocks: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.

Fitted to 32×32: the stem is a 3×3 convolution of stride 1 without max-pooling, instead of 7×7 of stride 2
with it, so the four stages see 32, 16, 8 and 4 pixels a side; the blocks keep the paper's strides.
"""

from torch import nn
from torchvision.models.resnet import BasicBlock
from torchvision.ops import Conv2dNormActivation

from fccl_mpi.models.base import Backbone, scaled


def resnet10(*, classes: int, width: float = 1.0) -> Backbone:
    """ResNet-10: one block a stage; images (B, 3, 32, 32) -> 512·width features -> logits (B, classes)."""
    return _resnet((1, 1, 1, 1), classes, width)


def resnet12(*, classes: int, width: float = 1.0) -> Backbone:
    """The "ResNet12" of FCCL's released program: ResNet-10 with a second block in the first stage.

    Not the ResNet-12 of few-shot learning, which has three convolutions a block.
    """
    return _resnet((2, 1, 1, 1), classes, width)


def resnet18(*, classes: int, width: float = 1.0) -> Backbone:
    """ResNet-18: two blocks a stage; images (B, 3, 32, 32) -> 512·width features -> logits (B, classes)."""
    return _resnet((2, 2, 2, 2), classes, width)


def resnet34(*, classes: int, width: float = 1.0) -> Backbone:
    """ResNet-34: images (B, 3, 32, 32) -> 512·width features -> logits (B, classes)."""
    return _resnet((3, 4, 6, 3), classes, width)


def _resnet(depths: tuple[int, ...], classes: int, width: float) -> Backbone:
    channels = scaled(64, width)
    layers: list[nn.Module] = [Conv2dNormActivation(3, channels)]
    for stage, depth in enumerate(depths):
        wider = scaled(64 << stage, width)
        for block in range(depth):
            layers.append(_block(channels, wider, stride=2 if stage and not block else 1))
            channels = wider
    return Backbone(layers, channels, classes=classes)


def _block(channels: int, wider: int, *, stride: int) -> BasicBlock:
    """A basic block; the shortcut is a 1×1 convolution where the shapes differ (the paper's option B)."""
    if stride == 1 and channels == wider:
        return BasicBlock(channels, wider)
    shortcut = Conv2dNormActivation(channels, wider, kernel_size=1, stride=stride, activation_layer=None)
    return BasicBlock(channels, wider, stride, shortcut)
