"""A cost model of a round, from bench files: how long it takes with K participants on N nodes.

The K participants are the measured ones, repeated in turn, and stand on the N nodes in blocks, as evenly as
they can; a node is like the smallest measured one, with as many cores as other programs left of it (in the
row of a number that another file has measured, as they left of that file's). A round is ::

    T = (compute + evaluation + overhead + imbalance) · (1 + other) + exchange

- *compute*: what a node needs for its participants' passes and steps alone, the slowest node's. That is its
  busiest participant's time, or the work of all of them divided by its cores (GPUs, where they compute on
  these), whichever is more. Assumes that cores share the work perfectly and that a participant uses as many
  as it did in its floor (as it has threads, if the measured node had fewer cores than threads).
- *evaluation*: what the test sets add to it. Assumes as many domains as measured, however many participants.
- *overhead*: what all else that participants compute adds: images, losses, polling, checkpoints. What of it
  grows with K (the consensus of K logits) is taken as measured, and so is too little far beyond that.
- *imbalance*: what is lost since everybody waits for everybody twice, in exchanges and at the end of the
  round, if the busiest in the one half is not the busiest in the other. No chance: equal participants are
  taken to be equally fast, so the spread between nodes is too small where machines differ.
- *exchange*: calls · (a + b · (ranks - 1)) + c · bytes. Latency a + b per other rank and c seconds a byte are
  fitted to the exchanges of all files, which ranks began together, by least squares of relative errors, none
  below 0. Files of one K cannot tell a from b, and all is b. Bytes grow as K, calls do not. Assumes a network
  between the nodes as between the measured ranks: measure on two nodes to predict for more.
- *other*: what the terms before lack of the measured round, of the first file, as a part of them.

The server's own work is left out; the bench shows it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from fccl_mpi.bench.summary import KIND, SCHEMA, TRAINING
from fccl_mpi.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Work:
    """A participant's seconds of a round on one core, or on its GPU."""

    apart: float
    """Passes and steps up to the last exchange: teachers and collaborative update."""
    local: float
    """Those of the local update."""
    evaluation: float
    overhead: float
    """All else."""
    cores: float = 1.0
    """It uses at once; GPUs, if it computes on one."""
    gpu: bool = False


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What the model takes from a bench file."""

    path: str
    participants: list[Work]
    wall: float
    nodes: int
    lanes: dict[bool, float]
    """GPUs of a node (True) and cores that others leave (False)."""
    calls: int
    bytes: float
    exchanges: list[tuple[float, float]]
    """Bytes and seconds of exchanges alone."""

    @property
    def size(self) -> tuple[int, int]:
        """How many participants on how many nodes."""
        return len(self.participants), self.nodes


@dataclass(frozen=True)
class Latency:
    """Seconds of a collective: ``call`` + ``rank`` · (ranks - 1) + ``byte`` · bytes."""

    call: float
    rank: float
    byte: float


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Seconds of a round of so many ``participants`` on so many ``nodes``, by term."""

    participants: int
    nodes: int
    compute: float
    evaluation: float
    overhead: float
    imbalance: float
    exchange: float
    other: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of the round."""
        return sum(getattr(self, item.name) for item in fields(self)[2:])


def read(path: Path) -> Bench:
    """Read a bench file. Raises UserError where it is none."""
    remedy = "make one with mpirun -n <participants + 1> python -m fccl_mpi.bench --json FILE"
    try:
        found = json.loads(path.read_text("utf-8"))
        if not isinstance(found, dict) or found.get("kind") != KIND:
            raise ValueError("it is something else")
        if found.get("schema") != SCHEMA:
            raise ValueError(f"it is of schema {found.get('schema')}, not {SCHEMA}")
        return understand(found, str(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no bench file ({error}): {remedy}") from error
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}): {remedy}") from error


def understand(found: dict[str, Any], path: str) -> Bench:
    """What the model takes from the content of a bench file."""
    entries = found["ranks"][1:]
    if not entries:
        raise ValueError("it has no participants")
    hosts = {entry["host"] for entry in entries}
    there = [found["nodes"][host] for host in hosts]
    left = min(max(node["cores"] - node["others"], 0.1 * node["cores"]) for node in there)
    bench = Bench(
        path=path,
        participants=[work_of(entry, found) for entry in entries],
        wall=found["round"]["wall"],
        nodes=len(hosts),
        lanes={False: left, True: max(1, *(node["devices"] for node in there))},
        calls=found["round"]["calls"],
        bytes=found["round"]["bytes"],
        exchanges=[(one["bytes"], one["share_ms"]["median"] / 1e3) for one in found["exchanges"]],
    )
    numbers = [bench.wall, bench.calls, bench.bytes, *itertools.chain(*bench.exchanges)]
    numbers += [getattr(work, item.name) for work in bench.participants for item in fields(work)]
    sound = all(math.isfinite(number) and number >= 0 for number in numbers)
    timed = bench.wall > 0 and all(min(one) > 0 for one in bench.exchanges)
    if not (bench.exchanges and sound and timed):
        raise ValueError("its numbers are no measurements")
    return bench


def work_of(entry: dict[str, Any], found: dict[str, Any]) -> Work:
    """A participant's work. On a GPU the time it is busy counts, else its CPU seconds."""
    gpu = entry["device"].startswith("cuda")
    wall, cpu = [
        sum(entry[floor].get(phase, 0.0) for phase in (*TRAINING, "evaluate"))
        for floor in ("floor", "floor_cpu")
    ]
    neighbours = [other["threads"] for other in found["ranks"][1:] if other["host"] == entry["host"]]
    crowded = sum(neighbours) > found["nodes"][entry["host"]]["cores"]
    used = entry["threads"] if crowded or not wall else min(entry["threads"], cpu / wall)
    floor = entry["floor" if gpu else "floor_cpu"]
    busy = found["round"]["wall"] - entry["waited"] if gpu else entry["cpu"]
    return Work(
        apart=floor.get("teachers", 0.0) + floor.get("collaborate", 0.0),
        local=floor.get("local", 0.0),
        evaluation=floor.get("evaluate", 0.0),
        overhead=max(0.0, busy - (wall if gpu else cpu)),
        cores=1.0 if gpu else max(1.0, used),
        gpu=gpu,
    )


def fit(benches: Sequence[Bench]) -> Latency:
    """The cost of a collective, from the exchanges of all files."""
    rows, seconds = [], []
    for bench in benches:
        for size, took in bench.exchanges:
            rows.append([1.0, len(bench.participants), size])
            seconds.append(took)
    columns = [1, 2] if len({row[1] for row in rows}) == 1 else [0, 1, 2]
    relative = np.array(rows) / np.array(seconds)[:, None]
    best = nonnegative(relative[:, columns], np.ones(len(rows)))
    found = np.zeros(3)
    found[columns] = best
    return Latency(*found.tolist())


def nonnegative(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """x >= 0 with the least |matrix x - target|: the best of the least squares over any of the columns."""
    best, least = np.zeros(matrix.shape[1]), float(np.square(target).sum())
    for count in range(1, matrix.shape[1] + 1):
        for chosen in itertools.combinations(range(matrix.shape[1]), count):
            part, *_ = np.linalg.lstsq(matrix[:, chosen], target, rcond=None)
            error = float(np.square(matrix[:, chosen] @ part - target).sum())
            if (part >= 0).all() and error < least:
                best, least = np.zeros(matrix.shape[1]), error
                best[list(chosen)] = part
    return best


def predict(
    bench: Bench, latency: Latency, participants: int, nodes: int, lanes: dict[bool, float] | None = None
) -> Terms:
    """A round of ``participants`` like those of ``bench`` on ``nodes``, each with ``lanes`` (as measured)."""
    own = terms(bench, latency, *bench.size, bench.lanes)
    computed = own.total - own.exchange
    share = max(0.0, (bench.wall - own.total) / computed) if computed else 0.0
    asked = terms(bench, latency, participants, nodes, lanes or bench.lanes)
    return Terms(**vars(asked) | {"other": share * (asked.total - asked.exchange)})


def terms(bench: Bench, latency: Latency, participants: int, nodes: int, lanes: dict[bool, float]) -> Terms:
    """All terms but "other"."""
    cast = [bench.participants[index % len(bench.participants)] for index in range(participants)]
    edges = [participants * node // nodes for node in range(nodes + 1)]
    blocks = [cast[start:end] for start, end in itertools.pairwise(edges) if start < end]

    def span(*parts: str) -> float:
        """Seconds until the last node has done these parts of its participants' work."""
        return max(node_seconds(block, parts, lanes) for block in blocks)

    # each term is what it adds to those before
    compute = span("apart", "local")
    evaluated = span("apart", "local", "evaluation")
    done = span("apart", "local", "evaluation", "overhead")
    together = span("apart") + span("local", "evaluation", "overhead") if bench.bytes else done
    call = latency.call + latency.rank * participants
    return Terms(
        participants=participants,
        nodes=nodes,
        compute=compute,
        evaluation=evaluated - compute,
        overhead=done - evaluated,
        imbalance=max(0.0, together - done),  # but for rounding it is never less
        exchange=bench.calls * call + latency.byte * bench.bytes * participants / len(bench.participants),
    )


def node_seconds(block: Sequence[Work], parts: Sequence[str], lanes: dict[bool, float]) -> float:
    """Seconds that a node needs for these parts of its participants' work."""
    load = {False: 0.0, True: 0.0}
    longest = 0.0
    for work in block:
        seconds = sum(getattr(work, part) for part in parts)
        load[work.gpu] += seconds
        longest = max(longest, seconds / work.cores)
    return max(longest, *(load[gpu] / lanes[gpu] for gpu in load))
