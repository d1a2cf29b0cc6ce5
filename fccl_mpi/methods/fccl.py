"""FCCL: Huang, Ye, Du, "Learn from Others and Be Yourself in Heterogeneous Federated Learning", CVPR 2022."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fccl_mpi import maths
from fccl_mpi.config.schema import require, require_choice
from fccl_mpi.methods.base import LogitsMethod

if TYPE_CHECKING:
    from torch import Tensor

    from fccl_mpi.federation.participant import Participant


@dataclass(kw_only=True)
class Fccl(LogitsMethod):
    """Cross-correlation of public logits, then distillation from the own past (CVPR 2022)."""

    mean_suffices: ClassVar[bool] = True
    off_diag_weight: float = 0.0051
    """λ_Col of Eq. 2: weight of the off-diagonal entries."""
    local_weight: float = 1.0
    """λ_Loc: weight of the two teachers against cross entropy in the local update."""
    temperature: float = 1.0
    """Temperature of both teachers (Eq. 4 and 5)."""
    own_entry: str = "previous"
    """What enters the mean Z̄ for the participant itself: logits of its `previous`-round model in eval mode
    (as released) or its `current` ones (the paper's Eq. 1)."""
    unbiased_std: bool = True
    """Standardise by the deviation over B - 1 (as released) instead of B."""
    correlation: bool = True
    """The collaborative update; false for the ablation without it."""
    distillation: bool = True
    """The two teachers; false for the ablation "w/o CON", cross entropy alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("method.own_entry", self.own_entry, ("previous", "current"))
        require(self.off_diag_weight >= 0, "method.off_diag_weight", self.off_diag_weight, "0 or more")
        require(self.local_weight >= 0, "method.local_weight", self.local_weight, "0 or more")
        require(self.temperature > 0, "method.temperature", self.temperature, "above 0")

    def exchanges(self) -> bool:
        """Not in the ablation without the collaborative update."""
        return self.correlation

    def needs_start(self) -> bool:
        """Only where the previous model's logits are the own entry."""
        return self.own_entry == "previous"

    def public_loss(self, logits: Tensor, everyone: Tensor, start: Tensor | None, me: Participant) -> Tensor:
        """L_Col of Eq. 2 between own logits and the participants' mean."""
        entries: Sequence[Tensor] = list(everyone)
        if start is not None and me.config.exchange == "batch":  # else it is what was sent
            entries = me.with_own(everyone, own=start, sent=logits)
        matrix = maths.correlation.cross_correlation(
            logits, me.consensus(entries), unbiased_std=self.unbiased_std
        )
        return maths.correlation.cross_correlation_loss(matrix, self.off_diag_weight)

    def teachers(self, me: Participant) -> dict[str, Tensor]:
        """Logits on the private images of the model as the round began, and of the pretrained one."""
        if not self.distillation:
            return {}
        return {"inter": me.predict(me.private.images), "intra": me.pretrained_logits}

    def local_loss(self, logits: Tensor, labels: Tensor, teachers: dict[str, Tensor]) -> dict[str, Tensor]:
        """L_Loc = L_CE + λ_Loc (L_Inter + L_Intra), Eq. 3 to 6."""
        ce = maths.distillation.cross_entropy(logits, labels)
        if not self.distillation:
            return {"local": ce, "ce": ce}
        inter = maths.distillation.kl_divergence(teachers["inter"], logits, self.temperature)
        intra = maths.distillation.kl_divergence(teachers["intra"], logits, self.temperature)
        return {"local": ce + self.local_weight * (inter + intra), "ce": ce, "inter": inter, "intra": intra}
