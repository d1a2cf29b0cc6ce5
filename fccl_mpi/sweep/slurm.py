"""Points as SLURM's array jobs: submitted, found in the queue, cancelled."""

import hashlib
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fccl_mpi.core.errors import UserError
from fccl_mpi.sweep.folder import SweepFolder
from fccl_mpi.sweep.points import Point


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """How a sweep uses SLURM."""

    folder: SweepFolder
    script: Path = Path("slurm/array.sbatch")
    site_options: str = ""
    """For sbatch, such as ``--partition=gpu --time=2:00:00 --gres=gpu:4``."""
    points_per_task: int = 1
    max_running: int = 0
    """Tasks at the same time; 0: as many as SLURM lets run."""

    def check(self) -> None:
        """Raise UserError where nothing can be submitted."""
        if not self.script.is_file():
            raise UserError(f"{self.script} is missing: copy the folder slurm/ here, or use --script")
        max_array_size()

    def submit(self, points: Sequence[Point], after: Sequence[int] = ()) -> Iterator["Submitted"]:
        """Submit points as array jobs, no longer than SLURM lets one be, which wait for the jobs ``after``.

        Where ``max_running`` is asked for, each waits for the one before. Raises UserError where sbatch
        refuses one of them: those before are submitted.
        """
        longest = max_array_size() * self.points_per_task
        for ranks in sorted({point.ranks for point in points}):
            those = [point for point in points if point.ranks == ranks]
            for start in range(0, len(those), longest):
                part = those[start : start + longest]
                job = self._sbatch(part, ranks, after)
                yield Submitted(job=job, points=part)
                if self.max_running:
                    after = [job]

    def _sbatch(self, points: Sequence[Point], ranks: int, after: Sequence[int]) -> int:
        path = self.folder.write_job(points)
        self.folder.forget_states(points)
        tasks = -(-len(points) // self.points_per_task)
        command = ["sbatch", "--parsable", *shlex.split(self.site_options)]
        command.append(f"--array=0-{tasks - 1}" + f"%{self.max_running}" * bool(self.max_running))
        command.append(f"--job-name={self._prefix}{path.stem}-{self.points_per_task}")
        command.append(f"--ntasks={ranks}")
        command.append(f"--output={path.resolve().parent}/log/{path.stem}_%a.log")
        if after:
            command.append("--dependency=afterany:" + ":".join(map(str, after)))
        command += [str(self.script), str(path.resolve()), str(self.points_per_task)]
        return int(call(*command).split(";")[0])

    def tasks(self) -> Iterator["Task"]:
        """This sweep's tasks in the queue, with the points of each."""
        if not self.folder.job_files():
            return
        lines = call("squeue", "--me", "--noheader", "--array", "--format=%F %K %T %j")
        names: dict[str, list[str]] = {}  # of the points in each file
        for line in lines.splitlines():
            job, index, state, name = line.split(maxsplit=3)
            if not name.startswith(self._prefix) or not index.isdecimal():
                continue
            file, _, each = name.removeprefix(self._prefix).rpartition("-")
            if file not in names:
                text = (self.folder.path / f"{file}.txt").read_text("utf-8")
                names[file] = [line.split(maxsplit=1)[0] for line in text.splitlines()]
            start = int(index) * int(each)
            yield Task(int(job), state, names[file][start : start + int(each)])

    def queue(self) -> dict[str, str]:
        """The state of every point in the queue, by its name: PENDING, RUNNING, ..."""
        return {name: task.state for task in self.tasks() for name in task.points}

    def cancel(self, points: Sequence[Point] | None = None) -> list[str]:
        """Cancel the jobs in the queue, or those that hold some points; returns the names in them."""
        wanted = None if points is None else {point.name for point in points}
        tasks = [task for task in self.tasks() if wanted is None or wanted & set(task.points)]
        if tasks:
            call("scancel", *{str(task.job) for task in tasks})
        return [name for task in tasks for name in task.points]

    @property
    def _prefix(self) -> str:
        """Of its jobs' names: SLURM alone keeps who is queued, so that nothing can get out of step."""
        where = hashlib.sha256(str(self.folder.path.resolve()).encode()).hexdigest()[:8]
        return f"sweep-{self.folder.path.name}-{where}-"


class Queued:
    """Runs points as jobs of their own, no more than ``slots`` in the queue at a time."""

    poll_s = 5.0

    def __init__(self, slurm: Slurm, *, slots: int) -> None:
        self.slurm, self.folder, self.slots = slurm, slurm.folder, slots
        self.running: list[Point] = []

    def has_room(self) -> bool:
        """Whether another point can be submitted."""
        return len(self.running) < self.slots

    def start(self, point: Point) -> None:
        """Submit a point. Raises UserError where sbatch refuses it."""
        if point.name not in self.slurm.queue():  # an earlier call may have submitted it
            for _ in self.slurm.submit([point]):
                pass
        self.running.append(point)

    def ended(self) -> list[Point]:
        """Points that have left the queue."""
        try:
            queue = self.slurm.queue() if self.running else {}
        except UserError:
            return []  # SLURM is busy, or restarts; a search lasts longer than that
        found = [point for point in self.running if point.name not in queue]
        self.running = [point for point in self.running if point not in found]
        return found

    def stop(self, points: Iterable[Point]) -> None:
        """Cancel points: SLURM asks them to stop and soon kills them, which costs them the round at hand."""
        self.slurm.cancel(list(points))


class Submitted(NamedTuple):
    """An array job."""

    job: int
    points: Sequence[Point]


class Task(NamedTuple):
    """A task of an array job in the queue."""

    job: int
    state: str
    points: list[str]


def max_array_size() -> int:
    """Array indices are below this."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", call("scontrol", "show", "config"), re.MULTILINE)
    if not found or int(found[1]) < 1:
        raise UserError("this SLURM takes no array jobs (scontrol show config: MaxArraySize)")
    return int(found[1])


def call(*command: str) -> str:
    """What one of SLURM's commands prints. Raises UserError where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise UserError(f"there is no {command[0]} here: --launcher local needs no SLURM") from None
    if done.returncode:
        raise UserError(f"{command[0]} failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
