"""SOLO: every participant stays by itself. The baseline of CVPR 2022, Tables 1 to 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fccl_mpi.methods.base import Method

if TYPE_CHECKING:
    from fccl_mpi.federation.participant import Participant


@dataclass(kw_only=True)
class Solo(Method):
    """Nothing is exchanged: the pretrained models are evaluated as they are."""

    keep_training: bool = False
    """Go on with local updates by cross entropy in every round."""

    def local_epochs(self, me: Participant) -> int:
        """None, unless training goes on."""
        return me.own.local_epochs if self.keep_training else 0
