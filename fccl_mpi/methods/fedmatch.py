"""FedMatch: Jeong, Yoon, Yang, Hwang, "Federated Semi-Supervised Learning with Inter-Client Consistency
& Disjoint Learning", ICLR 2021, its scenario "labels at client".

Kept: the labelled images are the private, the unlabelled the public ones. Where the model is confident
on a public image, it is pulled to what its nearest helpers say (inter-client consistency), and on a
harder view of the image to the label on which most of them agree. Weights are σ + ψ: σ learns from
labels, ψ from unlabelled images, ψ being drawn to zero and to σ. Hyperparameters are those of the
original program. Changed, and why:

- Helpers' models cannot travel between architectures: helpers are known by the logits of the exchange.
  They are the participants whose scores on the batch are nearest, found anew at each, where the original
  compares models on one noise image every ten rounds.
- The original's unlabelled images are of the task's classes; public images are not, so what is agreed on
  is often no truth, and confidence may be rare. That is the benchmark's setting.
- The harder view is the released augmentation (crop, flip, rotation) a second time, not RandAugment.
- The original trains by SGD, where the losses' small weights and the strong pull between σ and ψ add up.
  Adam, as everywhere here, sees only ratios, and would follow the pull alone. So the pull is decoupled
  from Adam (as weight decay is in AdamW): after a round's public batches ψ makes as many plain steps on
  it, with the same lr.
- Factors that Adam ignores are left out (the original's λ_s = 10 on the supervised loss).
- σ and ψ split the kernels, of convolutions and linear layers, as in the original, whose model has
  nothing else. Biases and BatchNorm learn from both kinds of images.
- σ and ψ are averaged over participants only in homogeneous federations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fccl_mpi import maths
from fccl_mpi.config.schema import require
from fccl_mpi.methods.base import LogitsMethod, PublicBatch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fccl_mpi.federation.participant import Participant
    from fccl_mpi.federation.server import Server


@dataclass(kw_only=True)
class FedMatch(LogitsMethod):
    """Consistency with the nearest participants and pseudo-labels they agree on (ICLR 2021)."""

    helpers: int = 2
    """Nearest participants asked (the original program's)."""
    confidence: float = 0.75
    """Least probability of the own first class for a public image to count (the original program's)."""
    consistency_weight: float = 0.01
    """λ_ICCS: weight of the divergence from the helpers (the original program's)."""
    agreement_weight: float = 0.01
    """λ_a: weight of the pseudo-labels (the original program's)."""
    l2_weight: float = 10.0
    """λ_L2: pull of ψ to σ (the original program's)."""
    l1_weight: float = 1e-4
    """λ_L1: pull of ψ to zero (the original program's)."""
    psi_factor: float = 0.2
    """ψ as a part of σ before round 1 (the original program's)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.helpers >= 0, "method.helpers", self.helpers, "0 or more")
        require(0 <= self.confidence <= 1, "method.confidence", self.confidence, "from 0 to 1")
        for key in ("consistency_weight", "agreement_weight", "l2_weight", "l1_weight", "psi_factor"):
            require(getattr(self, key) >= 0, f"method.{key}", getattr(self, key), "0 or more")

    def prepare(self, me: Participant) -> dict[str, nn.Module]:
        """ψ of every kernel; its first value is set when the model is pretrained."""
        from torch import nn

        parts = [nn.Parameter(kernel.detach().clone(), requires_grad=False) for kernel in kernels(me.model)]
        return {"psi": nn.ParameterList(parts)}

    def collaborate(self, me: Participant, round: int) -> dict[str, float]:
        """Train ψ on public images, σ being frozen."""
        import torch

        psi: list[Tensor] = list(me.companions["psi"].parameters())
        with torch.no_grad():
            if round == 1:
                for kernel, part in zip(kernels(me.model), psi, strict=True):
                    part.copy_(kernel * (self.psi_factor / (1 + self.psi_factor)))
            sigma = [kernel - part for kernel, part in zip(kernels(me.model), psi, strict=True)]
        losses = super().collaborate(me, round)
        steps = len(me.public.images) // me.public.batch_size * me.public.epochs
        lr = me.config.lr
        with torch.no_grad():
            for kernel, part, rest in zip(kernels(me.model), psi, sigma, strict=True):
                part.copy_(
                    maths.pseudo_labels.decayed(
                        kernel - rest, rest, l1=lr * self.l1_weight, l2=lr * self.l2_weight, steps=steps
                    )
                )
                kernel.copy_(rest + part)
        if me.config.homogeneous:
            me.average(me.companions["psi"])  # the model, σ + ψ, is averaged as in every method
        return losses

    def serve(self, server: Server, round: int) -> None:
        """The same."""
        super().serve(server, round)
        if server.config.homogeneous:
            server.receive_average()

    def batch_loss(self, batch: PublicBatch) -> Tensor:
        """Consistency with the helpers and cross entropy with agreed labels, where the model is confident."""
        logits = batch.own["logits"]
        own, everyone = logits.detach().softmax(1), batch.everyone["logits"].softmax(2)
        helpers = everyone[maths.pseudo_labels.nearest(everyone, batch.me.index, self.helpers)]
        confident = own.amax(1) >= self.confidence
        labels = maths.pseudo_labels.agreed_labels(own, helpers)
        consistency = maths.pseudo_labels.consistency(helpers, logits, confident)
        agreement = maths.pseudo_labels.pseudo_label_loss(self.harder(batch), labels, confident)
        return self.consistency_weight * consistency + self.agreement_weight * agreement

    def harder(self, batch: PublicBatch) -> Tensor:
        """Logits (B, C) of the batch augmented once more, in the participant's own way."""
        import numpy as np
        import torch

        from fccl_mpi.data.augment import augment

        randomness = np.random.default_rng(int(torch.randint(1 << 62, ())))  # seeded for the round
        return batch.me.model(batch.me.public.normalise(augment(batch.images, randomness)))


def kernels(model: nn.Module) -> list[Tensor]:
    """What σ and ψ split: all parameters but biases and those of normalisation."""
    return [parameter for parameter in model.parameters() if parameter.ndim > 1]
