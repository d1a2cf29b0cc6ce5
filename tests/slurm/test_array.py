"""Sweeps as array jobs of the real SLURM."""

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import PRESETS
from tests.mpi.conftest import OPEN_MPI
from tests.slurm.cluster import PATH, Cluster, until
from tests.slurm.conftest import STAND_IN

ROOT = Path(__file__).parents[2]
ALONE = ("~participants.green", "~participants.blue", "~participants.grey")  # red, and its server
Sweep = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def sweep(cluster: Cluster, tiny_data: Path, tmp_path: Path) -> Iterator[Sweep]:
    """``sweep("seed=0,1", "--dry-run", NAME="value")`` of scenario `tiny`, from a folder with slurm/."""
    shutil.copytree(ROOT / "slurm", tmp_path / "slurm")
    own = [f"--config-dir={PRESETS}", "scenario=tiny", f"data={tiny_data}", "--launcher=slurm", *ALONE]

    def start(*words: str, **environment: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "fccl_mpi.sweep", *own, *words]
        python = f"{Path(sys.executable).parent}:{PATH}"
        env = {**os.environ, **OPEN_MPI, "PATH": python, "SLURM_CONF": str(cluster.conf), **environment}
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, cwd=tmp_path)

    yield start
    cluster.call("scancel", "--user=root")


@pytest.fixture
def note(tmp_path: Path) -> dict[str, str]:
    """The environment in which a task notes the settings of its points instead of running them."""
    launcher = tmp_path / "note"
    launcher.write_text(
        '#!/bin/sh\nwhile [ "$1" != fccl_mpi.run ]; do shift; done\necho "$@" >>"$0.$SLURM_JOB_ID"\n'
    )
    launcher.chmod(0o755)
    return {"FCCL_LAUNCHER": str(launcher)}


def noted(folder: Path) -> list[str]:
    """The settings that tasks have noted."""
    return [line for file in folder.glob("note.*") for line in file.read_text().splitlines()]


def counts(done: subprocess.CompletedProcess) -> dict[str, int]:
    """What --status says, such as {"finished": 3, "running": 1, ...}."""
    line = next(line for line in done.stdout.splitlines() if re.match(r"\d+ points: ", line))
    return {state: int(count) for count, state in re.findall(r"(\d+) (\w+)(?:,|;|$)", line.split(":")[1])}


def wait_for_the_end(cluster: Cluster, seconds: float = 300) -> int:
    """Wait until the queue is empty; returns how many tasks were seen to run at the same time."""
    most = 0

    def is_empty() -> bool:
        nonlocal most
        states = cluster.call("squeue", "--noheader", "--array", "--format=%T").stdout.split()
        most = max(most, states.count("RUNNING"))
        return not states

    until(is_empty, seconds, "an empty queue")
    return most


def test_twelve_points_run_four_at_a_time_and_share_what_is_pretrained(cluster, sweep, tmp_path):
    grid = ("method=solo,fedmd,feddf,fccl", "seed=0,1,2")
    done = sweep(*grid, "--max-running=4")
    assert done.returncode == 0, done.stderr
    assert ": 3 points, pretraining-solo-" in done.stdout and ": 12 points, solo-" in done.stdout
    assert 2 <= wait_for_the_end(cluster) <= 4
    status = sweep(*grid, "--status")
    assert counts(status) == {"finished": 12, "running": 0, "waiting": 0, "failed": 0}, status.stdout
    runs = tmp_path / "runs"
    assert len(list(runs.glob("tiny/*/*/metrics.jsonl"))) == 12
    pretrained = [file.stat().st_mtime for file in runs.glob("pretrained/tiny/red-*.h5")]
    begun = [file.stat().st_mtime for file in runs.glob("tiny/f*/*/config.yaml")]
    assert len(pretrained) == 3 and max(pretrained) < min(begun)
    assert re.search(r"method=fedmd +3 +\d+\.\d\d ± \d+\.\d\d", sweep(*grid, "--table").stdout)
    again = sweep(*grid, "--max-running=4")
    assert again.returncode == 0 and "job " not in again.stdout


def test_a_sweep_longer_than_an_array_can_be_does_every_point_once(cluster, sweep, note, tmp_path):
    words = ("seed=range(2500)", "method=fedmd", "--points-per-task=5")
    done = sweep(*words, **note)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": 505 points") == 4 and done.stdout.count(": 480 points") == 1  # 101 tasks each
    wait_for_the_end(cluster)
    seeds = [int(re.search(r" seed=(\d+) ", f"{line} ")[1]) for line in noted(tmp_path)]
    assert sorted(seeds) == list(range(2500))


def test_a_thousand_points_are_submitted_in_less_than_ten_seconds_and_only_once(cluster, sweep):
    words = ("seed=range(1000)", "method=fedmd", "--sbatch=--hold")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = sweep(*words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of work: how long one waits depends on what else the machine does.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10
    assert done.stdout.count("job ") == 10, done.stderr
    assert counts(sweep(*words, "--status"))["waiting"] == 1000
    again = sweep(*words)
    assert again.returncode == 0 and "1000 are in SLURM's queue" in again.stdout
    assert "job " not in again.stdout
    cancelled = sweep(*words, "--cancel")
    assert "cancelled: 1000 points" in cancelled.stdout and wait_for_the_end(cluster) == 0


def test_when_sbatch_fails_half_way_the_next_call_goes_on(cluster, sweep, note, tmp_path):
    words = ("seed=range(210)", "method=fedmd")
    refusing = tmp_path / "bin" / "sbatch"  # the second array, as a limit on a user's jobs would
    refusing.parent.mkdir()
    second = 'echo >>"$0.calls"; if [ "$(wc -l <"$0.calls")" = 2 ]; then echo "sbatch: limit" >&2; exit 1; fi'
    refusing.write_text(f'#!/bin/sh\n{second}\nexec {shutil.which("sbatch", path=PATH)} "$@"\n')
    refusing.chmod(0o755)
    path = f"{refusing.parent}:{Path(sys.executable).parent}:{PATH}"
    failed = sweep(*words, "--sbatch=--hold", PATH=path, **note)
    assert failed.returncode == 2
    (told,) = failed.stderr.splitlines()
    assert "sbatch failed: sbatch: limit; 101 points are submitted, the others are not" in told
    (listed,) = re.findall(r"job (\d+): 101 points, fedmd-\w+-s0 \.\.\. fedmd-\w+-s100", failed.stdout)
    more = sweep(*words, PATH=path, **note)
    assert more.returncode == 0 and "101 are in SLURM's queue" in more.stdout
    assert re.findall(r": (\d+) points, ", more.stdout) == ["101", "8"]
    cluster.call("scontrol", "release", listed)
    wait_for_the_end(cluster)
    assert len(noted(tmp_path)) == len(set(noted(tmp_path))) == 210


def test_a_failed_point_is_named_with_what_it_said_and_submitted_again_alone(cluster, sweep, tmp_path):
    grid = ("method=solo,fedavg", "participants.red.private_size=20,41", "rounds=0")  # its file has 40
    assert sweep(*grid).returncode == 0
    wait_for_the_end(cluster)
    status = sweep(*grid, "--status")
    assert status.returncode == 1
    assert counts(status) == {"finished": 2, "running": 0, "waiting": 0, "failed": 2}
    said = "red: 41 private images are asked for, but its file has 40"
    assert re.search(rf"method=fedavg participants.red.private_size=41 +failed .*{said}", status.stdout)
    again = sweep(*grid)
    assert ": 2 points, solo-" in again.stdout


def test_a_searchs_trials_are_jobs(cluster, sweep, tmp_path):
    pytest.importorskip("optuna")
    words = (
        "method=fedmd",
        "lr=interval(0.001,0.002)",
        "--search=optuna",
        "--trials=2",
        "--metric=intra_top1",
    )
    done = sweep(*words)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"trial \d: lr=\S+: intra_top1 ", done.stdout)) == 2
    assert "best of 2 complete trials" in done.stdout
    assert counts(sweep(*words, "--status"))["finished"] == 2
    assert len(list(tmp_path.glob("runs/sweeps/*/job-*.txt"))) == 2 and wait_for_the_end(cluster) == 0


def test_a_task_that_nears_its_time_limit_comes_back_and_the_others_go_on(cluster, submit, tmp_path):
    (tmp_path / "mine.txt").write_text(f"a {tmp_path}/done-a\nb {tmp_path}/done-b\n")
    job = submit("array.sbatch", "mine.txt", options=["--array=0-1"], PYTHONPATH=str(STAND_IN))
    seconds = {"seconds": 60, "what": "what a task does"}

    def said(name: str) -> str:
        log = tmp_path / "log" / f"{name}.log"
        return log.read_text().rstrip() if log.exists() else ""

    def state(name: str) -> str:
        return (tmp_path / "state" / name).read_text().strip()

    until(lambda: said("a").endswith("going on") and said("b").endswith("going on"), **seconds)
    # One of an array's tasks has the id of the whole array: it is that one which must not call back all.
    ids = dict(line.split() for line in cluster.call("squeue", "-hro", "%A %K").stdout.splitlines())
    tasks = sorted(f"{job.id}_{index}" for index in ids.values())
    first = f"{job.id}_{ids[str(job.id)]}"
    (other,) = set(tasks) - {first}
    name, other_name = ("a", "b") if first == tasks[0] else ("b", "a")
    cluster.call("scancel", "--batch", "--signal=USR1", first)  # as --signal=B:USR1@120 does
    until(lambda: cluster.call("squeue", "-ho", "%T", "-j", first).stdout == "PENDING\n", **seconds)
    assert (state(name), state(other_name)) == ("75", "running")
    cluster.call("scancel", "--batch", "--signal=USR1", other)

    def both_finished() -> bool:
        for task in tasks:
            cluster.call("scontrol", "update", f"JobId={task}", "StartTime=now+2")
        time.sleep(3)
        return state("a") == state("b") == "0"

    until(both_finished, **seconds)
    assert said(name).count("--- started") == 2 and said(name).endswith("finished")
