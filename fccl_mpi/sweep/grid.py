"""All points of a grid: side by side on this machine, or as SLURM's array jobs."""

import time
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fccl_mpi.core.errors import UserError
from fccl_mpi.sweep.launcher import Asked, Launcher
from fccl_mpi.sweep.points import Point
from fccl_mpi.sweep.slurm import Slurm
from fccl_mpi.sweep.status import last_line, statuses, verdict


def run_all(
    points: Sequence[Point], needs: Mapping[Point, Point], launcher: Launcher, console: Console
) -> bool:
    """Run ``points``; returns whether that was stopped on request. A failed one does not stop the others.

    Points that share pretrained models, all of which need the same run, wait until the first of them has
    made these.
    """
    pioneers = {needs[point]: point for point in reversed(points) if point in needs}
    waiting, asked, ended = list(points), Asked(), set[Point]()
    rounds = dict.fromkeys(points, 0)
    launcher.folder.forget_states(points)

    def is_ready(point: Point) -> bool:
        pioneer = pioneers[needs[point]] if point in needs else point
        return pioneer == point or pioneer in ended or rounds[pioneer] > 0

    with _bar(console) as bar:
        task = bar.add_task("rounds", total=sum(point.rounds + 1 for point in points))
        while (waiting and not asked) or launcher.running:
            for point in launcher.running:
                rounds[point] = rounds_done(point)
            bar.update(task, completed=sum(rounds.values()))
            for point in launcher.ended():
                ended.add(point)
                (status,) = statuses(launcher.folder, [point], {})
                console.print(f"[{len(ended)}/{len(points)}] {point.name}: {verdict(status)}")
            if asked.anew():
                console.print(stopping(len(launcher.running)))
                launcher.stop(launcher.running)
            for point in filter(is_ready, list(waiting)):
                if launcher.has_room() and not asked:
                    waiting.remove(point)
                    launcher.start(point)
            time.sleep(launcher.poll_s)
    return bool(asked)


def submit(points: Sequence[Point], needs: Mapping[Point, Point], slurm: Slurm, console: Console) -> None:
    """Submit ``points``, as jobs that wait for those of what they need.

    Raises UserError, after it has told what was submitted, where SLURM refuses one of the jobs.
    """
    before = {run.name: run for run in first(points, needs)}
    tasks = [task for task in slurm.tasks() if before.keys() & set(task.points)]  # of an earlier call
    queued, jobs = {name for task in tasks for name in task.points}, {task.job for task in tasks}
    done = 0
    try:
        for own in ([run for name, run in before.items() if name not in queued], points):
            for job, part in slurm.submit(own, sorted(jobs)):
                done += len(part)
                names = f"{part[0].name} ... {part[-1].name}" if len(part) > 1 else part[0].name
                console.print(f"job {job}: {len(part)} points, {names}")
                if own is not points:
                    jobs.add(job)
    except UserError as error:
        told = f"{done} points are submitted, the others are not" if done else "nothing is submitted"
        raise UserError(f"{error}; {told}: the same command goes on") from error


def first(points: Iterable[Point], needs: Mapping[Point, Point]) -> list[Point]:
    """What ``points`` need, each once."""
    return list(dict.fromkeys(needs[point] for point in points if point in needs))


def rounds_done(point: Point) -> int:
    """How many, with round 0."""
    try:
        line = last_line(point)
    except UserError:
        return 0
    return line["round"] + 1 if line else 0


def stopping(running: int) -> str:
    """What to tell who asked to stop."""
    return f"stopping {running} runs after their round; asked again, they stop at once"


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)
