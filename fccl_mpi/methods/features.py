"""Features, for the methods that use more of a model than its logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fccl_mpi.core.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fccl_mpi.federation.participant import Participant


def require_features(me: Participant, asker: str) -> None:
    """Raise UserError unless the model, which may be a user's own, gives features."""
    if not callable(getattr(me.model, "features", None)):
        raise UserError(
            f"participants.{me.name}.model={me.own.model} has no method features(images) -> (B, F), "
            f"which {asker} needs"
        )


def features_of(model: nn.Module, images: Tensor) -> Tensor:
    """Features (B, F) of normalised images (B, 3, 32, 32)."""
    return model.features(images)  # type: ignore[operator]


def features_and_logits(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Features (B, F) and logits (B, C), from one pass through the trunk where the model offers it."""
    features, classify = features_of(model, images), getattr(model, "classify", None)
    return features, model(images) if classify is None else classify(features)
