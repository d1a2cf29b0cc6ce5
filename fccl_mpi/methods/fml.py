"""FML: Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu, "Federated Mutual Learning", 2020 (arXiv
2006.16765).

A small network of one architecture for all, the "meme", travels; the participant's own model stays at
home. On private images the two learn from the labels and from each other. A round begins with the
average of the memes as the last one left them, which for the models is the same as to end with it; in
round 1 all have the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fccl_mpi import maths
from fccl_mpi.config.schema import require
from fccl_mpi.core.seeds import derive
from fccl_mpi.methods.base import Method
from fccl_mpi.models.registry import build

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fccl_mpi.federation.participant import Participant
    from fccl_mpi.federation.server import Server


@dataclass(kw_only=True)
class Fml(Method):
    """Mutual learning of the own model with a small one that is averaged (arXiv 2020)."""

    alpha: float = 0.5
    """α: the model's weight of cross entropy, with 1 - α for the meme's opinion (the original program's)."""
    beta: float = 0.5
    """β: the meme's weight of cross entropy, with 1 - β for the model's opinion (the original program's)."""
    meme_model: str = "shufflenet_v2"
    """The meme's architecture; by default the smallest of fccl_mpi.models."""
    meme_width: float = 0.0
    """Factor on its channel counts; 0 takes the smallest width of the participants."""

    def __post_init__(self) -> None:
        require(0 <= self.alpha <= 1, "method.alpha", self.alpha, "from 0 to 1")
        require(0 <= self.beta <= 1, "method.beta", self.beta, "from 0 to 1")
        require(self.meme_width >= 0, "method.meme_width", self.meme_width, "0 or more")

    def prepare(self, me: Participant) -> dict[str, nn.Module]:
        """The meme, with the same first weights for everyone."""
        import torch

        torch.manual_seed(derive(me.config.seed, "meme"))
        width = self.meme_width or min(own.width for own in me.config.participants.values())
        meme = build(self.meme_model, classes=me.classes, width=width)
        return {"meme": me.adopt(meme)}

    def collaborate(self, me: Participant, round: int) -> dict[str, float]:
        """Average the memes, evenly as in the original program."""
        me.average(me.companions["meme"])
        return {}

    def serve(self, server: Server, round: int) -> None:
        """The same."""
        server.receive_average()

    def update_locally(self, me: Participant, teachers: dict[str, Tensor], round: int) -> dict[str, float]:
        """Train model and meme side by side: each step, both learn from what the other said before it."""
        meme = me.companions["meme"]
        optimizer = me.optimizer(meme)

        def loss_terms(logits: Tensor, labels: Tensor, chosen: Tensor) -> dict[str, Tensor]:
            meme_logits = meme(me.normalise(me.private.images[chosen]))
            own, meme_loss = self.mutual_losses(logits, meme_logits, labels)
            me.step(optimizer, meme_loss)
            return {"local": own, "meme": meme_loss}

        return me.train_privately(loss_terms, me.own.local_epochs, round, "local")

    def mutual_losses(self, own: Tensor, meme: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Losses of model and meme, of their logits (B, C): no gradient goes from one to the other."""
        ce, kl = maths.distillation.cross_entropy, maths.distillation.kl_divergence
        return (
            self.alpha * ce(own, labels) + (1 - self.alpha) * kl(meme.detach(), own),
            self.beta * ce(meme, labels) + (1 - self.beta) * kl(own.detach(), meme),
        )
