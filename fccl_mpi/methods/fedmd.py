"""FedMD: Li, Wang, "FedMD: Heterogenous Federated Learning via Model Distillation", NeurIPS 2019
workshop.

Every round the models approach the consensus of their logits on public images in L1 distance, then
revisit their private images. The original begins differently: every model is trained on the public set
with its labels, which are of other classes than the private ones, and then on its own images. As an
option, so it is here, in round 1. The original gives its models outputs for both sets of classes; since
ours have the private classes alone, the public labels are learnt by a linear head on the features that
is dropped afterwards, and the private training that follows, `pretrain_epochs` long, starts from what
the features have become.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fccl_mpi import maths
from fccl_mpi.config.schema import require
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.seeds import generator
from fccl_mpi.methods.base import LogitsMethod
from fccl_mpi.methods.features import features_of, require_features

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fccl_mpi.federation.participant import Participant


@dataclass(kw_only=True)
class FedMd(LogitsMethod):
    """L1 distance to the consensus of all logits on public images (NeurIPS 2019 workshop)."""

    mean_suffices: ClassVar[bool] = True
    public_pretraining_epochs: int = 0
    """Epochs on the public set's labels before round 1 (the original: until it stops improving), private
    pretraining anew after it; 0, as CVPR 2022 compares it: all methods start from the same models."""

    def __post_init__(self) -> None:
        super().__post_init__()
        epochs = self.public_pretraining_epochs
        require(epochs >= 0, "method.public_pretraining_epochs", epochs, "0 or more")

    def prepare(self, me: Participant) -> dict[str, nn.Module]:
        """The first phase needs public labels, and a model that gives features."""
        if self.public_pretraining_epochs:
            require_features(me, "method.public_pretraining_epochs")
            if me.public.labels is None:
                raise UserError(
                    f"method.public_pretraining_epochs needs public labels, and {me.config.public.file} "
                    "has none: choose another public=, or leave it at 0"
                )
        return {}

    def collaborate(self, me: Participant, round: int) -> dict[str, float]:
        """The original's first phase where asked for, then the steps towards the consensus."""
        losses = {}
        if round == 1 and self.public_pretraining_epochs:
            losses = self.learn_public_labels(me)
            me.train_privately(self.private_terms, me.config.pretrain_epochs, "pretrain", "again")
        return losses | super().collaborate(me, round)

    def public_loss(self, logits: Tensor, everyone: Tensor, start: Tensor | None, me: Participant) -> Tensor:
        """Mean absolute difference of own and mean logits."""
        return (logits - me.consensus(list(everyone))).abs().mean()

    def private_terms(self, logits: Tensor, labels: Tensor, chosen: Tensor) -> dict[str, Tensor]:
        """Cross entropy."""
        return self.local_loss(logits, labels, {})

    def learn_public_labels(self, me: Participant) -> dict[str, float]:
        """Train the features on the public images as they are, with a head of their own for this once."""
        import torch

        from fccl_mpi.data.partition import batches

        images, labels = me.public.images, me.public.labels
        assert labels is not None
        me.seed_everything("public labels")
        me.model.eval()
        with torch.no_grad():
            width = features_of(me.model, me.public.normalise(images[:1])).shape[1]
        me.model.train()
        head = torch.nn.Linear(width, int(labels.max()) + 1).to(me.device)
        optimizer = me.optimizer(me.model, head)
        total: Tensor | float = 0.0
        for epoch in range(self.public_pretraining_epochs):
            order = generator(me.config.seed, me.name, "public labels", epoch).permutation(len(images))
            for batch in batches(len(images), me.config.local_batch_size, order):
                chosen = torch.from_numpy(batch).to(me.device)
                logits = head(features_of(me.model, me.public.normalise(images[chosen])))
                loss = maths.distillation.cross_entropy(logits, labels[chosen])
                me.step(optimizer, loss)
                total = total + loss.detach() * len(batch)
        count = self.public_pretraining_epochs * len(images)
        return me.means({"public_labels": total}, count, count)
