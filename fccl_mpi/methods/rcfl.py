"""RCFL: Gudur, Balaji, Perepu, "Resource-Constrained Federated Learning with Heterogeneous Labels and
Models", KDD 2020 workshop (arXiv 2011.03206).

CVPR 2022 calls it RCFL and says no more than that it kept its key features. Kept: participants exchange
class scores on public images; the global scores are averages label by label, a participant counting for
a label by its accuracy β on it, so that one who does not know a label does not blur it; every
participant distils the global scores with its own mixed in by α = N_i / N_0. Changed, and why:

- The original measures β on a labelled public set. Ours is unlabelled and of other classes, and test
  images are for testing; so β is measured on the participant's own training images, once a round. There
  it comes close to 1 for whoever has fitted them: the average is then nearly even, and far from it only
  where labels are missing (`label_skew`).
- The original adds up β-weighted scores and α-weighted local ones as they are. Ours are divided by the
  weights and each row by its sum, so that the target is a distribution, with KL as the distance.
- The original's participants have different labels; ours all have all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fccl_mpi import maths
from fccl_mpi.methods.base import LogitsMethod, PublicBatch

if TYPE_CHECKING:
    from torch import Tensor

    from fccl_mpi.federation.participant import Participant
    from fccl_mpi.federation.server import Server


@dataclass(kw_only=True)
class Rcfl(LogitsMethod):
    """Distillation of public scores, averaged label by label by who knows the label (KDD 2020 workshop)."""

    def collaborate(self, me: Participant, round: int) -> dict[str, float]:
        """Exchange accuracies by label, (C,) each, then distil."""
        logits = me.predict(me.private.images)
        accuracies = me.share(maths.accuracy.accuracy_by_label(logits, me.private.labels), "accuracies")
        return self.learn_publicly(me, round, lambda batch: self.score_loss(batch, accuracies))

    def serve(self, server: Server, round: int) -> None:
        """The same."""
        server.exchange.share("accuracies", None, (server.classes,))
        super().serve(server, round)

    def score_loss(self, batch: PublicBatch, accuracies: Tensor) -> Tensor:
        """KL(target || own scores), accuracies (K, C)."""
        me = batch.me
        scores = batch.everyone["logits"].softmax(dim=2)
        alpha = len(me.private) / len(me.public.images)
        target = maths.aggregation.mean_by_label(scores, accuracies) + alpha * scores[me.index]
        return maths.distillation.kl_from_scores(target / target.sum(1, keepdim=True), batch.own["logits"])
