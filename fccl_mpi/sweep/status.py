"""How far the points of a sweep are, read from their own folders alone."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from fccl_mpi.config.compose import parse
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.stopping import EXIT_CODE
from fccl_mpi.store.checkpoint import Checkpoints
from fccl_mpi.store.history import History
from fccl_mpi.sweep.folder import RUNNING, SweepFolder
from fccl_mpi.sweep.points import Point

WAITING, FINISHED, FAILED = "waiting", "finished", "failed"  # and RUNNING
STARTED = "--- started "  # the line in a log before what one start of a point has printed
MEASURES = ("intra_top1", "inter_top1", "intra_top5", "inter_top5")


@dataclass(frozen=True, kw_only=True)
class Status:
    """How far one point is."""

    point: Point
    state: str
    """WAITING, RUNNING, FINISHED or FAILED."""
    line: Mapping[str, Any] | None
    """Its last round in metrics.jsonl; that of `rounds` where it is finished."""
    queued: bool = False
    """Whether SLURM has it."""
    error: str = ""
    """The last thing a failed one said."""


def statuses(folder: SweepFolder, points: Iterable[Point], queue: Mapping[str, str]) -> list[Status]:
    """Of each point; ``queue`` has the states of those that SLURM has, by their names."""
    driven = bool(folder.starter())
    return [_status(folder, point, queue.get(point.name), driven) for point in points]


def _status(folder: SweepFolder, point: Point, queued: str | None, driven: bool) -> Status:
    def status(state: str, line: Mapping[str, Any] | None, error: str = "") -> Status:
        return Status(point=point, state=state, line=line, queued=queued is not None, error=error)

    try:
        line = last_line(point)
        if line and line["round"] >= point.rounds and is_committed(point):
            if line["round"] > point.rounds:
                line = History(Path(point.folder) / "metrics.jsonl").read()[point.rounds]
            return status(FINISHED, line)
    except UserError as damage:
        return status(FAILED, None, str(damage))
    state = folder.state(point)
    if state == RUNNING and (queued == "RUNNING" or (driven and queued is None)):
        return status(RUNNING, line)
    if queued not in (None, "RUNNING") or state in ("", "0", str(EXIT_CODE)):
        return status(WAITING, line)
    reason = "it ended without a word" if state == RUNNING else f"exit code {state}"
    return status(FAILED, line, last_words(folder.log(point)) or reason)


def last_line(point: Point) -> dict[str, Any] | None:
    """Its last round in metrics.jsonl. Raises UserError where that is damaged."""
    return History(Path(point.folder) / "metrics.jsonl").last()


def is_committed(point: Point) -> bool:
    """Whether a checkpoint of its last round is there."""
    return max(Checkpoints(Path(point.folder) / "checkpoints").rounds(), default=-1) >= point.rounds


def last_words(log: Path) -> str:
    """What the last start of a run complained of: its own sentence, else its last line; empty for none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 20_000))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = [line for line in text.rpartition(STARTED)[2].splitlines()[1:] if line.strip()]
    own = [number for number, line in enumerate(lines) if line.startswith("fccl_mpi: ")]
    if not own:
        return lines[-1].strip() if lines else ""
    sentence, after = lines[own[-1]].removeprefix("fccl_mpi: "), lines[own[-1] + 1 :]
    if sentence.endswith("failed:"):  # a traceback follows, whose last line says what it was
        raised = [line for line in after if not line.startswith((" ", "Traceback"))]
        sentence += f" {raised[0]}" if raised else ""
    return sentence


def verdict(status: Status) -> str:
    """How a point that has ended did."""
    line = status.line or {}
    if status.state == FINISHED:
        return f"finished, intra {percent(line.get('intra_top1'))}, inter {percent(line.get('inter_top1'))}"
    if status.state == FAILED:
        return f"failed: {status.error}"
    return f"stopped after round {line['round']}" if line else "stopped"


def summary(found: Sequence[Status]) -> str:
    """Such as "12 points: 4 finished, 2 running, 6 waiting, 0 failed"."""
    counts = Counter(status.state for status in found)
    return f"{len(found)} points: " + ", ".join(
        f"{counts[state]} {state}" for state in (FINISHED, RUNNING, WAITING, FAILED)
    )


def status_table(found: Sequence[Status]) -> Table:
    """A row for each point."""
    table = Table("point", "state", box=None, pad_edge=False)
    for column in ("round", "intra", "inter"):
        table.add_column(column, justify="right")
    table.add_column("what it said")
    points = [status.point for status in found]
    common = common_settings(points)
    for status in found:
        line = status.line or {}
        table.add_row(
            Text(difference(status.point, common)),  # brackets are lists, not markup
            status.state,
            f"{line.get('round', '-')}/{status.point.rounds}",
            percent(line.get("intra_top1")),
            percent(line.get("inter_top1")),
            Text(status.error),
        )
    return table


def results_table(found: Sequence[Status]) -> Table:
    """Accuracy of the finished points, mean ± standard deviation over their seeds, grouped by all else."""
    finished = [status for status in found if status.state == FINISHED]
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for status in finished:
        group = tuple(word for word in status.point.settings if parse(word).key_or_group != "seed")
        groups.setdefault(group, []).append(status.line or {})
    common = set.intersection(*map(set, groups)) if groups else set()
    all_lines = [line for lines in groups.values() for line in lines]
    measures = [key for key in MEASURES if any(line.get(key) is not None for line in all_lines)]
    table = Table("points", box=None, pad_edge=False, title_justify="left", title="accuracy in %, last round")
    table.add_column("seeds", justify="right")
    for measure in measures:
        table.add_column(measure.replace("_", " "), justify="right")
    for group, lines in groups.items():
        label = " ".join(word for word in group if word not in common) or "all"
        values = ([line[measure] for line in lines if line.get(measure) is not None] for measure in measures)
        table.add_row(Text(label), str(len(lines)), *(mean_and_deviation(numbers) for numbers in values))
    return table


def mean_and_deviation(numbers: Sequence[float]) -> str:
    """With the sample's standard deviation, which one number does not have."""
    if not numbers:
        return "-"
    deviation = f" ± {statistics.stdev(numbers):.2f}" if len(numbers) > 1 else ""
    return f"{statistics.fmean(numbers):.2f}{deviation}"


def common_settings(points: Sequence[Point]) -> set[str]:
    """What all points have."""
    return set.intersection(*(set(point.settings) for point in points)) if points else set()


def difference(point: Point, common: set[str]) -> str:
    """What tells a point from the others."""
    return " ".join(word for word in point.settings if word not in common) or point.name


def percent(value: float | None) -> str:
    """To two places, or a dash."""
    return "-" if value is None else f"{value:.2f}"


def exit_code(found: Iterable[Status]) -> int:
    """1 where a point has failed."""
    return int(any(status.state == FAILED for status in found))
