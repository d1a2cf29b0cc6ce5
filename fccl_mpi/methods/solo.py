"""SOLO: every participant stays by itself. The baseline of CVPR 2022, Tables 1 to 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fccl_mpi.methods.base import Method

if TYPE_CHECKING:
    from torch import Tensor

    from fccl_mpi.federation.participant import Participant


@dataclass(kw_only=True)
class Solo(Method):
    """Nothing is exchanged: the pretrained models are evaluated as they are."""

    averaged: ClassVar[bool] = False
    keep_training: bool = False
    """Go on with local updates by cross entropy in every round."""

    def update_locally(self, me: Participant, teachers: dict[str, Tensor], round: int) -> dict[str, float]:
        """Nothing, unless training goes on."""
        return super().update_locally(me, teachers, round) if self.keep_training else {}
