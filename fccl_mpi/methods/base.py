"""What a federated method is: what participants and server do in each phase of a round.

A method is a keyword-only dataclass; its fields are its hyperparameters, which ``method.<field>=`` sets.
Every collective that its participants reach its server reaches too: for each phase both sides stand
below one another here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fccl_mpi import maths
from fccl_mpi.config.schema import require_choice

if TYPE_CHECKING:
    from torch import Tensor

    from fccl_mpi.federation.participant import Participant
    from fccl_mpi.federation.server import Server


@dataclass(kw_only=True)
class Method:
    """Nothing is exchanged, and local updates minimise cross entropy: the base of all methods."""

    name: str = ""
    averaged: ClassVar[bool] = True  # whether homogeneous=true adds an average of parameters

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
class LogitsMethod(Method):
    """Participants exchange logits on public images and minimise `public_loss` of them."""

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

    def exchanges(self) -> bool:
        """Whether there is a collaborative update at all."""
        return True

    def needs_start(self) -> bool:
        """Whether `public_loss` takes the logits of the model as it was when the round began."""
        return False

    def collaborate(self, me: Participant, round: int) -> dict[str, float]:
        """A step for every public batch, on logits exchanged right then or once as the round began."""
        if not self.exchanges():
            return {}
        batches, size = me.public.batches_of(round), me.public.batch_size
        once = me.config.exchange == "round"
        if once or self.needs_start():
            start = me.predict(batches, me.public.normalise)
        if once:
            everyone = me.share(start)
        me.seed_everything(round, "public")
        optimizer = None
        total: Tensor | float = 0.0
        for step, images in enumerate(batches):
            rows = slice(step * size, (step + 1) * size)
            logits = me.model(me.public.normalise(images))
            shared = everyone[:, rows] if once else me.share(logits)
            loss = self.public_loss(logits, shared, start[rows] if self.needs_start() else None, me)
            if optimizer is None or self.public_optimizer == "batch":
                optimizer = me.optimizer()
            me.step(optimizer, loss)
            total = total + loss.detach()
        return me.means({"collaborative": total}, len(batches))

    def serve(self, server: Server, round: int) -> None:
        """Receive what `collaborate` exchanges."""
        if not self.exchanges():
            return
        batches, size = server.public_batches, server.config.public_batch_size
        if server.config.exchange == "round":
            server.receive(batches * size)
        else:
            for _ in range(batches):
                server.receive(size)
