"""FedAvg: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fccl_mpi.config.schema import require_choice
from fccl_mpi.core.errors import UserError
from fccl_mpi.methods.base import Method

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fccl_mpi.federation.participant import Participant
    from fccl_mpi.federation.server import Server


@dataclass(kw_only=True)
class FedAvg(Method):
    """Local epochs, then the average of all parameters; takes one architecture for all (AISTATS 2017)."""

    averaged: ClassVar[bool] = False  # it is the average
    weights: str = "samples"
    """Weight of a participant in the average: its `samples` N_i / N (Algorithm 1) or `uniform` 1 / K
    (as released with FCCL+)."""
    average: str = "after"
    """`after` the local update, so that the common model is what is evaluated (Algorithm 1), or `before` it,
    so that the locally trained models are (as released with FCCL+)."""

    def __post_init__(self) -> None:
        require_choice("method.weights", self.weights, ("samples", "uniform"))
        require_choice("method.average", self.average, ("after", "before"))

    def prepare(self, me: Participant) -> dict[str, nn.Module]:
        """Refuse different architectures before anything is trained."""
        kinds = {f"{own.model} × {own.width:g}" for own in me.config.participants.values()}
        if len(kinds) > 1:
            raise UserError(
                f"method=fedavg averages parameters, and these participants have {', '.join(sorted(kinds))}: "
                "give all of them one model, or use homogeneous=true"
            )
        return {}

    def collaborate(self, me: Participant, round: int) -> dict[str, float]:
        """The average, preceded by the local update where it comes after that."""
        losses = {} if self.average == "before" else super().update_locally(me, {}, round)
        me.average(weight=len(me.private) if self.weights == "samples" else 1)
        return losses

    def serve(self, server: Server, round: int) -> None:
        """The average."""
        server.receive_average()

    def update_locally(self, me: Participant, teachers: dict[str, Tensor], round: int) -> dict[str, float]:
        """Cross entropy, unless `collaborate` has done it."""
        return super().update_locally(me, teachers, round) if self.average == "before" else {}
