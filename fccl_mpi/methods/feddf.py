"""FedDF: Lin, Kong, Stich, Jaggi, "Ensemble Distillation for Robust Model Fusion in Federated Learning",
NeurIPS 2020.

Its heterogeneous form, as CVPR 2022 compares it: there is no model at the server, every participant's
model is student and, in the ensemble, teacher. The original distils with Adam for thousands of steps and
stops early on a validation set; here it takes as many steps as every other method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fccl_mpi import maths
from fccl_mpi.config.schema import require
from fccl_mpi.methods.base import LogitsMethod

if TYPE_CHECKING:
    from torch import Tensor

    from fccl_mpi.federation.participant import Participant
    from fccl_mpi.federation.server import Server


@dataclass(kw_only=True)
class FedDf(LogitsMethod):
    """Distillation from the ensemble of all participants on public images (NeurIPS 2020)."""

    mean_suffices: ClassVar[bool] = True
    temperature: float = 1.0
    """Temperature of the distillation (1 in the original)."""
    average_groups: bool = False
    """First average, weighted by N_i, the models of participants that share an architecture and width, as the
    original does (its Algorithm 3). The averages are then the ensemble too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.temperature > 0, "method.temperature", self.temperature, "above 0")

    def collaborate(self, me: Participant, round: int) -> dict[str, float]:
        """Average within groups where asked, then distil."""
        if self.average_groups:
            me.average(weight=len(me.private), group=f"{me.own.model} × {me.own.width:g}")
        return super().collaborate(me, round)

    def serve(self, server: Server, round: int) -> None:
        """The same."""
        if self.average_groups:
            server.receive_average()
        super().serve(server, round)

    def public_loss(self, logits: Tensor, everyone: Tensor, start: Tensor | None, me: Participant) -> Tensor:
        """KL(softmax(mean logits) || softmax(own logits))."""
        return maths.distillation.kl_divergence(me.consensus(list(everyone)), logits, self.temperature)
