"""FCCL+: Huang, Ye, Shi, Du, "Generalizable Heterogeneous Federated Cross-Correlation and Instance
Similarity Learning", TPAMI 2023. Constants are those of the program released with it.

To FCCL's logits it adds similarities between the images of a public batch, which have one shape in every
architecture: (B, B - 1) instead of features. They are what it costs. A round of S public batches
exchanges

    FCCL    4 K S B C             bytes:  0.7 MB for Digits (K = 4, S = 9, B = 512, C = 10)
    FCCL+   4 K S B (C + B - 1)   bytes: 38.4 MB
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fccl_mpi import maths
from fccl_mpi.config.schema import require
from fccl_mpi.methods.base import LogitsMethod, PublicBatch
from fccl_mpi.methods.features import features_and_logits, require_features

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fccl_mpi.federation.participant import Participant
    from fccl_mpi.federation.server import Server


@dataclass(kw_only=True)
class FcclPlus(LogitsMethod):
    """Cross-correlation and image similarities on public images, non-target distillation (TPAMI 2023)."""

    mean_suffices: ClassVar[bool] = True
    off_diag_weight: float = 0.0051
    """λ_Col: weight of the off-diagonal entries in the cross-correlation loss (FCCL's)."""
    unbiased_std: bool = True
    """Standardise by the deviation over B - 1 (as released) instead of B."""
    similarity_weight: float = 3.0
    """Weight of the similarities against cross-correlation (as released; 1 for Office-Home)."""
    similarity_temperature: float = 0.02
    """What cosines are divided by before softmax (as released)."""
    temperature: float = 3.0
    """Temperature T of the teacher in the local update (as released; 1 for Office-Home). Keep it below the
    number of classes C: from T = C on, distillation takes back what cross entropy gives the label, round by
    round, until scores are even."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("off_diag_weight", "similarity_weight"):
            require(getattr(self, key) >= 0, f"method.{key}", getattr(self, key), "0 or more")
        for key in ("similarity_temperature", "temperature"):
            require(getattr(self, key) > 0, f"method.{key}", getattr(self, key), "above 0")

    def prepare(self, me: Participant) -> dict[str, nn.Module]:
        """Similarities are those of features."""
        require_features(me, "method=fccl_plus")
        return {}

    def outputs(self, images: Tensor, me: Participant) -> dict[str, Tensor]:
        """Logits (B, C) and similarities (B, B - 1)."""
        features, logits = features_and_logits(me.model, images)
        return {"logits": logits, "similarities": maths.similarity.similarities(features)}

    def widths(self, server: Server) -> dict[str, int]:
        """The same."""
        return {"similarities": server.config.public_batch_size - 1}

    def batch_loss(self, batch: PublicBatch) -> Tensor:
        """L_Col + w KL(softmax(mean similarities / τ) || softmax(own similarities / τ)), row by row."""
        mean = {kind: batch.me.consensus(list(entries)) for kind, entries in batch.everyone.items()}
        matrix = maths.correlation.cross_correlation(
            batch.own["logits"], mean["logits"], unbiased_std=self.unbiased_std
        )
        correlation = maths.correlation.cross_correlation_loss(matrix, self.off_diag_weight)
        similarity = maths.distillation.kl_divergence(
            mean["similarities"] / self.similarity_temperature,
            batch.own["similarities"] / self.similarity_temperature,
        )
        return correlation + self.similarity_weight * similarity

    def teachers(self, me: Participant) -> dict[str, Tensor]:
        """Logits on the private images of the model as the round began."""
        return {"previous": me.predict(me.private.images)}

    def local_loss(self, logits: Tensor, labels: Tensor, teachers: dict[str, Tensor]) -> dict[str, Tensor]:
        """L_CE + T² KL of the classes that are not the label."""
        ce = maths.distillation.cross_entropy(logits, labels)
        kl = maths.distillation.non_target_divergence(teachers["previous"], logits, labels, self.temperature)
        return {"local": ce + kl, "ce": ce, "non_target": kl}
