"""Models by name. Importing this imports no torch, so that checking a name costs nothing."""

from __future__ import annotations

import pkgutil
from difflib import get_close_matches
from inspect import signature
from typing import TYPE_CHECKING

from fccl_mpi.core.errors import UserError

if TYPE_CHECKING:
    from torch import nn

MODELS = {
    "resnet10": "fccl_mpi.models.resnet:resnet10",
    "resnet12": "fccl_mpi.models.resnet:resnet12",
    "resnet18": "fccl_mpi.models.resnet:resnet18",
    "resnet34": "fccl_mpi.models.resnet:resnet34",
    "efficientnet_b0": "fccl_mpi.models.efficientnet:efficientnet_b0",
    "mobilenet_v2": "fccl_mpi.models.mobilenet:mobilenet_v2",
    "googlenet": "fccl_mpi.models.googlenet:googlenet",
    "shufflenet_v2": "fccl_mpi.models.shufflenet:shufflenet_v2",
}


def build(name: str, *, classes: int, width: float = 1.0) -> nn.Module:
    """Build a model from images (B, 3, 32, 32) to logits (B, classes), its channels times ``width``.

    ``name`` is one of MODELS or a user's own builder, ``package.module:function``, which is called with
    ``classes`` and ``width`` by keyword. Weights are drawn from torch's global generator. Raises UserError
    for an unknown name, and for a builder that cannot be imported or called so, or returns no nn.Module.
    """
    from torch import nn

    path = MODELS.get(name, name)
    if ":" not in path:
        nearest = get_close_matches(name, MODELS, n=1)
        raise UserError(
            f"there is no model {name!r}{f' (did you mean {nearest[0]}?)' if nearest else ''}: "
            f"choose one of {', '.join(MODELS)}, or name your own builder as package.module:function"
        )
    try:
        builder = pkgutil.resolve_name(path)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise UserError(f"model {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    try:
        signature(builder).bind(classes=classes, width=width)
    except (TypeError, ValueError) as error:
        raise UserError(f"model {name!r} cannot be called with classes= and width=: {error}") from error
    model = builder(classes=classes, width=width)
    if not isinstance(model, nn.Module):
        raise UserError(f"model {name!r} must return a torch.nn.Module, not {type(model).__name__}")
    return model
