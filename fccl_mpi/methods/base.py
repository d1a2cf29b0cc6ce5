"""What a federated method is: what participants and server do in each phase of a round.

A method is a keyword-only dataclass; its fields are its hyperparameters, which ``method.<field>=`` sets.
Every collective that its participants reach its server reaches too: for each phase both sides stand
below one another here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fccl_mpi import maths
from fccl_mpi.config.schema import require_choice

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fccl_mpi.federation.participant import Participant
    from fccl_mpi.federation.server import Server


@dataclass(kw_only=True)
class Method:
    """Nothing is exchanged, and local updates minimise cross entropy: the base of all methods."""

    name: str = ""
    averaged: ClassVar[bool] = True  # whether homogeneous=true adds an average of parameters
    mean_suffices: ClassVar[bool] = True  # whether the mean is all it wants of what others send: allreduce

    # --- before the first round: no collectives ---

    def prepare(self, me: Participant) -> dict[str, nn.Module]:
        """Check what the method needs, and make the networks that it keeps beside the model, by name.

        They are found at ``me.companions`` and saved with the model in every checkpoint: what a method
        remembers from round to round stands there and nowhere else. The model has its first weights
        here, before any training. Raises UserError for what does not fit, on all ranks together.
        """
        return {}

    # --- collaborative update ---

    def collaborate(self, me: Participant, round: int) -> dict[str, float]:
        """Learn from the others on public images; returns losses for the record."""
        return {}

    def serve(self, server: Server, round: int) -> None:
        """The server's part in `collaborate`: the same collectives in the same order."""

    # --- local update: no collectives ---

    def teachers(self, me: Participant) -> dict[str, Tensor]:
        """Constants of the round on the private images, (N, ...) each, before the collaborative update."""
        return {}

    def update_locally(self, me: Participant, teachers: dict[str, Tensor], round: int) -> dict[str, float]:
        """Train on the private images; returns the mean of each term of `local_loss`."""

        def loss_terms(logits: Tensor, labels: Tensor, chosen: Tensor) -> dict[str, Tensor]:
            return self.local_loss(logits, labels, {name: rows[chosen] for name, rows in teachers.items()})

        return me.train_privately(loss_terms, me.own.local_epochs, round, "local")

    def local_loss(self, logits: Tensor, labels: Tensor, teachers: dict[str, Tensor]) -> dict[str, Tensor]:
        """Loss of a private batch: "local" is minimised, other terms are for the record.

        ``logits`` (B, C), ``labels`` (B,), ``teachers`` the batch's rows of `teachers`.
        """
        return {"local": maths.distillation.cross_entropy(logits, labels)}


@dataclass(kw_only=True)
class PublicBatch:
    """A public batch as one participant sees it once all have said what they make of it."""

    me: Participant
    images: Tensor
    """uint8 (B, 3, 32, 32), augmented, the same for everyone."""
    own: dict[str, Tensor]
    """What the model says now, with gradient, by kind: logits (B, C), and what else `outputs` names."""
    everyone: dict[str, Tensor]
    """What all participants exchanged, (K, B, ...) by the same kinds, own rows at ``me.index``; with
    ``collective=allreduce`` their mean alone, (1, B, ...)."""
    start: dict[str, Tensor] | None
    """What the model said as the round began, in eval mode, where `needs_start` asks for it."""


@dataclass(kw_only=True)
class LogitsMethod(Method):
    """Participants exchange logits on public images and minimise `public_loss` of them."""

    mean_suffices: ClassVar[bool] = False
    public_optimizer: str = "batch"
    """Lifetime of Adam in the collaborative update: new for every public `batch` (as released) or `round`."""

    def __post_init__(self) -> None:
        require_choice("method.public_optimizer", self.public_optimizer, ("batch", "round"))

    def public_loss(self, logits: Tensor, everyone: Tensor, start: Tensor | None, me: Participant) -> Tensor:
        """Collaborative loss of a public batch, a scalar.

        ``logits`` (B, C) are the model's own, with gradient; ``everyone`` (K, B, C) all participants' as
        exchanged, own ones at ``me.index``; ``start`` (B, C) those of the own model as the round began,
        where `needs_start` asks for them.
        """
        raise NotImplementedError

    def batch_loss(self, batch: PublicBatch) -> Tensor:
        """The same for a method whose loss is of more than logits: it overrides this instead."""
        start = None if batch.start is None else batch.start["logits"]
        return self.public_loss(batch.own["logits"], batch.everyone["logits"], start, batch.me)

    def exchanges(self) -> bool:
        """Whether there is a collaborative update at all."""
        return True

    def needs_start(self) -> bool:
        """Whether the loss takes what the model said when the round began."""
        return False

    def outputs(self, images: Tensor, me: Participant) -> dict[str, Tensor]:
        """What is exchanged of a normalised public batch (B, 3, 32, 32), by kind: first logits (B, C)."""
        return {"logits": me.model(images)}

    def widths(self, server: Server) -> dict[str, int]:
        """The server's part in `outputs`: kind and columns of what follows the logits there, in its order."""
        return {}

    def collaborate(self, me: Participant, round: int) -> dict[str, float]:
        """A step for every public batch, on what is exchanged right then or once as the round began."""
        return self.learn_publicly(me, round, self.batch_loss) if self.exchanges() else {}

    def learn_publicly(
        self, me: Participant, round: int, loss_of: Callable[[PublicBatch], Tensor]
    ) -> dict[str, float]:
        """The exchanges and steps of `collaborate`, minimising ``loss_of``; its mean as "collaborative"."""
        batches = me.public.batches_of(round)
        if not batches:
            return {}
        once, mean = me.config.exchange == "round", me.config.collective == "allreduce"
        starts, everyone = self._as_the_round_begins(batches, me) if once or self.needs_start() else ([], [])
        me.seed_everything(round, "public")
        optimizer = None
        total: Tensor | float = 0.0
        steps = 0
        for step, images in enumerate(batches):
            own = self.outputs(me.public.normalise(images), me)
            batch = PublicBatch(
                me=me,
                images=images,
                own=own,
                everyone=everyone[step]
                if once
                else {kind: me.share(rows, kind, mean) for kind, rows in own.items()},
                start=starts[step] if self.needs_start() else None,
            )
            if me.exchange.skips_nonfinite and not all(
                rows.isfinite().all() for rows in batch.everyone.values()
            ):
                me.skip_batch()
                continue
            loss = loss_of(batch)
            if optimizer is None or self.public_optimizer == "batch":
                optimizer = me.optimizer()
            if me.step(optimizer, loss):
                total = total + loss.detach()
                steps += 1
        return me.means({"collaborative": total}, steps, len(batches))

    def serve(self, server: Server, round: int) -> None:
        """Receive what `collaborate` exchanges."""
        if not (self.exchanges() and server.public_batches):
            return
        size, kinds = server.config.public_batch_size, {"logits": server.classes} | self.widths(server)
        underway: list[Callable[[], None]] = []
        for _ in range(server.public_batches):
            for kind, columns in kinds.items():
                underway.append(server.begin_to_receive(kind, (size, columns)))
                if server.config.exchange == "batch":
                    underway.pop()()
        for finish in underway:
            finish()

    def _as_the_round_begins(
        self, batches: Sequence[Tensor], me: Participant
    ) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
        """`outputs` of each batch, in eval mode and without gradient; with exchange=round everyone's too.

        A batch travels while the next ones are computed.
        """
        import torch

        starts, underway = [], []
        mean = me.config.collective == "allreduce"
        me.model.eval()
        with torch.no_grad():
            for images in batches:
                starts.append(self.outputs(me.public.normalise(images), me))
                if me.config.exchange == "round":
                    sent = starts[-1].items()
                    underway.append({kind: me.begin_to_share(rows, kind, mean) for kind, rows in sent})
        me.model.train()
        return starts, [{kind: receive() for kind, receive in batch.items()} for batch in underway]
