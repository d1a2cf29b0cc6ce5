"""The course of a federation: what a participant and what the server do, side by side.

`participate` and `serve` make the same collectives in the same order; both number them (1) to (8).
Neither imports torch by itself: the server needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import UserError
from fccl_mpi.federation.diagnostics import collect, diagnose
from fccl_mpi.federation.exchange import Exchange, agree
from fccl_mpi.federation.preflight import Card, card_of_participant, card_of_server, compare, introduce
from fccl_mpi.federation.pretraining import evaluate_pretrained, pretrain
from fccl_mpi.federation.server import Server
from fccl_mpi.federation.voice import Voice
from fccl_mpi.federation.world import Place
from fccl_mpi.store.board import require_tensorboard
from fccl_mpi.store.checkpoint import Checkpoints, ModelWriter, read_model
from fccl_mpi.store.folder import RunFolder

if TYPE_CHECKING:
    import torch

    from fccl_mpi.federation.participant import Participant


def participate(
    config: Config,
    exchange: Exchange,
    place: Place,
    device: torch.device,
    stop: object = False,
    probe: Callable[[Participant], None] | None = None,
) -> bool:
    """A rank above 0, from reading its images to the last round. Collective with `serve`.

    Returns whether the federation stopped before its last round because ``stop``, looked at after each
    round and while pretraining, was true on some rank. ``probe`` is called between the rounds, before
    round 1 and after the last: it may be collective, and must leave everything as it was. Raises
    AgreedError on every rank where any of them cannot begin.
    """
    from fccl_mpi.federation.participant import Participant

    exchange.skips_nonfinite = config.on_nonfinite == "skip_batch"
    me, error = None, None
    try:
        me = Participant(config, place.who, exchange, device)
    except UserError as found:
        error = found
    agree(exchange, error)  # (1)
    assert me is not None
    compare(exchange.allgather("card", card_of_participant(me, place)))  # (2)
    agree(exchange, None)  # (3)
    folder, done = exchange.tell("folder", None)  # (4)
    checkpoints, writer = Checkpoints(Path(folder) / "checkpoints"), ModelWriter()

    def deliver() -> None:
        """Make what is being written a checkpoint: at once if the rounds end, else behind the teachers."""
        if writer.busy:
            with me.timed("checkpoint"):
                exchange.gather("digest", writer.finish())  # (7)

    method = config.method
    with me.timed("pretrain"):
        pretrained = pretrain(me, stop)
    if not all(exchange.allgather("pretrained", pretrained)):  # (5)
        return True
    me.pretrained_logits = me.predict(me.private.images)
    if done is not None:
        me.load_whole(read_model(checkpoints.model_path(done, me.name), like=me.whole_state()))
    for round in rounds_to_do(done, config.rounds):
        if probe and round > 0:
            probe(me)
        loss: dict[str, float] = {}
        exchange.round = round
        if round > 0:
            with me.timed("teachers"):
                teachers = method.teachers(me)
            deliver()
            with me.timed("collaborate"):
                loss |= method.collaborate(me, round)
                if config.homogeneous and method.averaged:
                    me.average()
            with me.timed("local"):
                loss |= method.update_locally(me, teachers, round)
        if me.skipped:
            loss["skipped_batches"], me.skipped = me.skipped, 0
        with me.timed("evaluate"):
            me.refuse_nonfinite()
            correct = None
            if is_evaluated(round, config):
                correct = me.evaluate() if round > 0 else evaluate_pretrained(me)
        report = {"loss": loss, "correct": correct, "seconds": dict(me.seconds), "stop": bool(stop)}
        me.seconds.clear()
        stopping = any(told["stop"] for told in exchange.allgather("report", report))  # (6)
        if stopping or is_due(round, config):
            with me.timed("checkpoint"):
                about: dict[str, str | int] = {"participant": me.name, "round": round}
                writer.begin(checkpoints.model_path(round, me.name), me.whole_state(), about)
        if stopping or round == config.rounds:
            deliver()
        if stopping and round < config.rounds:
            return True
    if probe:
        probe(me)
    diagnose(me, Path(folder))  # (8)
    return False


def serve(
    config: Config,
    exchange: Exchange,
    place: Place,
    stop: object = False,
    probe: Callable[[Server], None] | None = None,
) -> bool:
    """Rank 0, from comparing what the ranks have to the last commit. Collective with `participate`.

    Returns and raises as it does.
    """
    exchange.skips_nonfinite = config.on_nonfinite == "skip_batch"
    agree(exchange, None)  # (1)
    cards: list[Card] = exchange.allgather("card", card_of_server(config, place))
    compare(cards)  # (2)
    folder, voice, error = RunFolder(config), Voice(config.rounds), None
    data = {card.place.who: card.domain for card in cards[1:]} | {"public": cards[1].public}
    done = None
    try:
        require_tensorboard(config.tensorboard)
        folder.claim()
        voice.log_to(folder.log)
        introduce(voice, config, cards)
        done = resume_from(folder, data, voice)
    except UserError as found:
        error = found
    agree(exchange, error)  # (3)
    exchange.tell("folder", (str(folder.path), done))  # (4)

    method = config.method
    server = Server(config, exchange, folder, voice, cards[1].classes, data)
    if not all(exchange.allgather("pretrained", True)):  # (5)
        voice.say("stopped on request while pretraining; the same command does the unfinished models again")
        voice.close()
        return True
    being_written: int | None = None

    def commit() -> None:
        """What `deliver` is at the participants."""
        nonlocal being_written
        if being_written is not None:
            _, *written = exchange.gather("digest", None) or []  # (7)
            server.commit(being_written, written)
            being_written = None

    for round in rounds_to_do(done, config.rounds):
        if probe and round > 0:
            probe(server)
        exchange.round = round
        server.begin_round()
        if round > 0:
            commit()
            method.serve(server, round)
            if config.homogeneous and method.averaged:
                server.receive_average()
        own, *reports = exchange.allgather("report", {"stop": bool(stop)})  # (6)
        server.record(round, reports)
        stopping = any(told["stop"] for told in (own, *reports))
        if stopping or is_due(round, config):
            being_written = round
        if stopping or round == config.rounds:
            commit()
        if stopping and round < config.rounds:
            voice.say(f"stopped on request after round {round}; the same command goes on from here")
            voice.close()
            return True
    if probe:
        probe(server)
    collect(server)  # (8)
    server.conclude()
    voice.close()
    return False


def rounds_to_do(done: int | None, rounds: int) -> Iterator[int]:
    """Round 0, after pretraining, to the last; only those after ``done`` where a checkpoint has it."""
    return iter(range(0 if done is None else done + 1, rounds + 1))


def is_evaluated(round: int, config: Config) -> bool:
    """Whether a round ends with an evaluation: every so often, and the last."""
    return round == config.rounds or round % config.evaluate_every == 0


def is_due(round: int, config: Config) -> bool:
    """Whether a checkpoint follows a round: every so often, and after the last."""
    return round == config.rounds or (round > 0 and round % config.checkpoint_every == 0)


def resume_from(folder: RunFolder, data: dict[str, str], voice: Voice) -> int | None:
    """The last round that an intact checkpoint holds, or None; forgets what the history has beyond it.

    Raises UserError where the checkpoint was made from other data.
    """
    found = folder.checkpoints.newest_intact(
        lambda damage: voice.warn(f"{damage}: this checkpoint is damaged, an earlier one serves")
    )
    if found is None:
        folder.history.cut(-1)
        return None
    round, commit = found
    changed = sorted(name for name in data if commit["data"].get(name) != data[name])
    if changed:
        raise UserError(
            f"{folder.path} was begun with other image sets ({', '.join(changed)} changed): "
            "restore them, or choose another out="
        )
    folder.history.cut(round)
    if round >= folder.config.rounds:
        voice.say(f"this run is finished: it has {round} rounds")
    else:
        voice.say(f"resuming after round {round}")
    return round
