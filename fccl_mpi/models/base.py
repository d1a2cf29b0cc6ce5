"""What all backbones share: features, a linear classifier, slimming and initialisation."""

import math
from collections.abc import Iterable

from torch import Tensor, nn

from fccl_mpi.core.errors import UserError


class Backbone(nn.Module):
    """A convolutional network for float32 images (B, 3, 32, 32): a trunk and a linear classifier.

    ``layers`` map images to the last feature maps, of ``channels`` channels, which are averaged over
    their pixels into F = ``channels`` features. ``dropout`` is the chance of a feature to be dropped
    before the classifier, in train mode. Raises UserError for fewer than 2 ``classes``.
    """

    trunk: nn.Sequential
    classifier: nn.Linear

    def __init__(
        self, layers: Iterable[nn.Module], channels: int, *, classes: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if classes < 2:
            raise UserError(f"a model for {classes} classes cannot be built: it takes 2 or more")
        self.trunk = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(channels, classes)
        _initialise(self)

    @property
    def feature_width(self) -> int:
        """F, the number of features of an image."""
        return self.classifier.in_features

    def features(self, images: Tensor) -> Tensor:
        """Penultimate features (B, F) of images (B, 3, 32, 32), before any dropout."""
        return self.trunk(images)

    def classify(self, features: Tensor) -> Tensor:
        """Logits (B, C) of features (B, F): for who wants both from one pass through the trunk."""
        return self.classifier(self.dropout(features))

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, C) of images (B, 3, 32, 32), in train and eval mode alike."""
        return self.classify(self.features(images))


def scaled(channels: int, width: float, divisor: int = 8) -> int:
    """``channels`` times ``width``, rounded to a multiple of ``divisor``: at least 8, at most 10 % too few.

    The rule of MobileNet's authors, which torchvision's own blocks follow. Raises UserError unless
    ``width`` is a finite number above 0.
    """
    if not 0 < width < math.inf:
        raise UserError(f"width={width} is out of range: it must be a finite number above 0")
    exact = channels * width
    nearest = max(8, divisor * math.floor(exact / divisor + 0.5))
    return nearest if nearest >= 0.9 * exact else nearest + divisor


def _initialise(model: nn.Module) -> None:
    """Kaiming normal over fan-in for convolutions: He et al., "Delving Deep into Rectifiers", ICCV 2015.

    torchvision takes fan-out, which for a depthwise convolution counts the channels that it does not mix
    and shrinks its output. BatchNorm evens that out in train mode, but its running variance, which begins
    at 1, then stays far off for more than 50 steps. A private set of one batch trains for 50 before the
    first round, and in eval mode the model would guess. Fan-in keeps variances near 1 from the start.
    BatchNorm (1 and 0) and the classifier keep PyTorch's own initialisation.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
