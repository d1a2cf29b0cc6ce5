"""What is known of points by the files they leave."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fccl_mpi.core.errors import UserError
from fccl_mpi.sweep.folder import RUNNING, SweepFolder
from fccl_mpi.sweep.points import Point
from fccl_mpi.sweep.status import STARTED, exit_code, last_words, results_table, statuses, summary

ROOT = Path(__file__).parents[3]


def point_of(home: Path, name: str, *settings: str, rounds: int = 2) -> Point:
    """A point whose run lies below ``home``."""
    where = {"folder": str(home / name), "config_dir": "", "rounds": rounds, "ranks": 5, "on_gpu": False}
    return Point(name=name, settings=settings, **where)


def write_run(point: Point, *, last: int, committed: int | None = None, inter: float = 20.0) -> None:
    """The files of a run that has done its rounds up to ``last``, with a checkpoint of ``committed``."""
    folder = Path(point.folder)
    folder.mkdir(parents=True)
    with (folder / "metrics.jsonl").open("w") as file:
        for round in range(last + 1):
            line = {"round": round, "intra_top1": 50.0 + round, "inter_top1": inter + round}
            file.write(json.dumps({**line, "intra_top5": None, "inter_top5": None}) + "\n")
    if committed is not None:
        commit = folder / "checkpoints" / f"round_{committed:04}" / "commit.json"
        commit.parent.mkdir(parents=True)
        commit.write_text("{}")


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    folder = SweepFolder(tmp_path / "sweeps" / "mine")
    folder.save([])
    return folder


def text_of(table: object) -> str:
    """A table as printed."""
    console = Console(width=300)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


@pytest.mark.parametrize(
    ("last", "committed", "state", "queued", "expected", "row"),
    [
        (None, None, "", None, "waiting", ("-",)),
        (None, None, "", "PENDING", "waiting", ("-",)),
        (None, None, "", "RUNNING", "waiting", ("-",)),  # one of a task's points, and not its turn
        (1, 1, RUNNING, "RUNNING", "running", (1, 51.0)),
        (1, 1, RUNNING, "PENDING", "waiting", (1, 51.0)),  # requeued
        (1, 1, RUNNING, None, "failed", (1, 51.0)),  # neither in the queue nor here: killed
        (1, 1, "75", None, "waiting", (1, 51.0)),
        (1, 1, "1", None, "failed", (1, 51.0)),
        (1, 1, "1", "PENDING", "waiting", (1, 51.0)),
        (2, 2, "0", None, "finished", (2, 52.0)),
        (2, 2, RUNNING, "RUNNING", "finished", (2, 52.0)),
        (2, 1, "0", None, "waiting", (2, 52.0)),  # its last checkpoint is not there
        (3, 3, "", None, "finished", (2, 52.0)),  # another sweep has asked for more rounds
    ],
)
def test_the_state_of_a_point(folder, tmp_path, last, committed, state, queued, expected, row):
    point = point_of(tmp_path, "a")
    if last is not None:
        write_run(point, last=last, committed=committed)
    if state:
        folder.state_file(point).write_text(f"{state}\n")
    (status,) = statuses(folder, [point], {} if queued is None else {"a": queued})
    assert status.state == expected
    line = status.line or {}
    assert (line.get("round", "-"), line.get("intra_top1"))[: len(row)] == row
    assert exit_code([status]) == (expected == "failed")


def test_a_point_runs_here_as_long_as_its_starter_lives(folder, tmp_path):
    point = point_of(tmp_path, "a")
    folder.state_file(point).write_text(RUNNING)
    code = (
        "import sys; from pathlib import Path; from fccl_mpi.sweep.folder import SweepFolder\n"
        "with SweepFolder(Path(sys.argv[1])).starting(): print('in', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(folder.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as other:
        assert other.stdout.readline() == "in\n"
        assert statuses(folder, [point], {})[0].state == RUNNING
        with pytest.raises(UserError, match=f"being worked on by process {other.pid} on "), folder.starting():
            pass
        other.stdin.close()
    with folder.starting():
        assert statuses(folder, [point], {})[0].state == "failed"


def test_a_damaged_history_is_named(folder, tmp_path):
    point = point_of(tmp_path, "a")
    write_run(point, last=2, committed=2)
    (tmp_path / "a" / "metrics.jsonl").write_text("{}\n")
    (status,) = statuses(folder, [point], {})
    assert status.state == "failed" and "metrics.jsonl, line 1, is damaged" in status.error


KILLED = "=== EXIT STRING: Killed (signal 9)"
BUG = "fccl_mpi: rank 2 (green) failed:\nTraceback (most recent call last):\n  File\nKeyError: 'x'\nabort\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fccl_mpi: red lacks images: make them\n", "red lacks images: make them"),
        (f"fccl_mpi: old\n{STARTED}now\nround 1\n{KILLED}\n\n", KILLED),
        (BUG, "rank 2 (green) failed: KeyError: 'x'"),
        ("", ""),
    ],
)
def test_what_a_run_said_last(tmp_path, text, expected):
    log = tmp_path / "log"
    assert last_words(log) == ""
    log.write_text(f"{STARTED}then\n{text}")
    assert last_words(log) == expected


def test_the_table_is_mean_and_deviation_over_seeds_of_this_sweeps_points_alone(folder, tmp_path):
    points = []
    for method, first in (("fccl", 20.0), ("solo", 10.0)):
        for seed in range(3):
            settings = (f"method={method}", "lr=0.1", f"seed={seed}", f"public.name=[{method}]")
            points.append(point_of(tmp_path, f"{method}-{seed}", *settings))
            write_run(
                points[-1], last=2, committed=2 if (method, seed) != ("solo", 2) else None, inter=first + seed
            )
    write_run(point_of(tmp_path, "fccl-3"), last=2, committed=2, inter=99.0)  # of another sweep
    found = statuses(folder, points, {})
    table = text_of(results_table(found))
    assert re.search(r"method=fccl public.name=\[fccl\] +3 +52.00 ± 0.00 +23.00 ± 1.00 *\n", table), table
    assert re.search(r"method=solo public.name=\[solo\] +2 +52.00 ± 0.00 +12.50 ± 0.71 *\n", table), table
    assert "top5" not in table and "lr" not in table
    assert summary(found) == "6 points: 5 finished, 0 running, 1 waiting, 0 failed"


def test_a_sweep_is_kept_and_found_again(folder, tmp_path):
    points = [point_of(tmp_path, name, "seed=0", "data=a b's") for name in "ab"]
    folder.save(points)
    assert SweepFolder(folder.path).load() == points
    assert [folder.write_job(points).name for _ in range(2)] == ["job-0001.txt", "job-0002.txt"]
    script = (
        'while read -r name settings; do eval "set -- $settings"; echo "$2"; done'  # as array.sbatch does
    )
    with (folder.path / "job-0001.txt").open() as job:
        shown = subprocess.run(["bash", "-c", script], stdin=job, capture_output=True, text=True).stdout
    assert shown == "data=a b's\n" * 2
    with pytest.raises(UserError, match="holds no sweep yet"):
        SweepFolder(tmp_path / "other").load()


def test_the_status_of_a_thousand_runs_takes_less_than_three_seconds(tmp_path: Path):
    words = ["seed=range(1000)", "method=fedmd", f"out={tmp_path}", "--name=mine"]
    points = [point_of(tmp_path, f"fedmd-{seed}", f"seed={seed}", rounds=40) for seed in range(1000)]
    for point in points:
        write_run(point, last=40, committed=40)
    SweepFolder(tmp_path / "sweeps" / "mine").save(points)
    command = [sys.executable, "-m", "fccl_mpi.sweep", *words, "--status"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "1000 points: 1000 finished, 0 running, 0 waiting, 0 failed" in done.stdout, done.stderr
    # Of work: how long one waits depends on what else the machine does.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3
