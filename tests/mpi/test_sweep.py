"""Sweeps and searches on this machine, their points under a real mpirun."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import PRESETS
from tests.mpi.conftest import OPEN_MPI
from tests.unit.federation.test_federation import federate, numbers

ROOT = Path(__file__).parents[2]
ALONE = ("~participants.green", "~participants.blue", "~participants.grey")  # red, and its server
Sweep = Callable[..., subprocess.Popen]


@pytest.fixture
def sweep(tiny_data: Path, tmp_path: Path) -> Sweep:
    """Start ``python -m fccl_mpi.sweep`` on scenario `tiny`; its environment marks all that it starts."""

    def start(*words: str) -> subprocess.Popen:
        own = ["scenario=tiny", f"data={tiny_data}", f"out={tmp_path / 'runs'}", *ALONE]
        command = [sys.executable, "-m", "fccl_mpi.sweep", "--config-dir", str(PRESETS), *own, *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        env = {**os.environ, **OPEN_MPI, "FCCL_TEST_SWEEP": str(tmp_path)}
        return subprocess.Popen(command, **pipes, text=True, cwd=ROOT, env=env)

    return start


def ending(process: subprocess.Popen, timeout: float = 200) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    out, errors = process.communicate(timeout=timeout)
    return process.returncode, out, errors


def marked(tmp_path: Path) -> list[str]:
    """Processes that a sweep has started and that are still there."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"FCCL_TEST_SWEEP={tmp_path}\0" in (folder / "environ").read_text(errors="replace"):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def lines_of(tmp_path: Path) -> dict[str, list[dict]]:
    """The metrics of all runs, without times, by their folders' names."""

    def read(file: Path) -> list[dict]:
        return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in file.open()]

    return {file.parent.name: read(file) for file in tmp_path.glob("runs/tiny/*/*/metrics.jsonl")}


def test_a_failed_point_does_not_stop_the_others_and_is_done_again(sweep, tmp_path):
    grid = ("method=fedmd,solo", "participants.red.private_size=20,41", "rounds=1")  # its file has 40
    code, out, errors = ending(sweep(*grid))
    assert code == 1, errors
    assert "4 points: 2 finished, 0 running, 0 waiting, 2 failed" in out
    assert out.count("failed: red: 41 private images are asked for, but its file has 40") == 2
    assert len(list(tmp_path.glob("runs/pretrained/tiny/red-*.h5"))) == 1
    before = lines_of(tmp_path)
    code, out, _ = ending(sweep(*grid))
    assert code == 1 and "4 points: 2 finished, 0 running, 0 waiting, 2 failed; all about them" in out
    assert re.findall(r"\[(\d)/(\d)\]", out) == [("1", "2"), ("2", "2")]  # the failed ones alone
    assert lines_of(tmp_path) == before


def stop_when(process: subprocess.Popen, ready: Callable[[], object]) -> tuple[int, str, str]:
    """Ask a sweep to stop as soon as ``ready``, and return how it ended."""
    deadline = time.monotonic() + 120
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    return ending(process)


def test_a_stopped_sweep_leaves_no_process_and_goes_on_to_the_same_numbers(sweep, tiny, tmp_path):
    grid = ("method=fedmd", "seed=0,1,2", "rounds=25", "--max-running=2")
    code, out, errors = stop_when(sweep(*grid), lambda: len(lines_of(tmp_path)) == 2)
    assert code == 75, errors
    assert "stopping 2 runs after their round" in out and out.count(": stopped after round ") == 2
    assert "3 points: 0 finished, 0 running, 3 waiting, 0 failed" in out
    assert marked(tmp_path) == []
    stopped = lines_of(tmp_path)
    assert len(stopped) == 2 and all(len(lines) < 26 for lines in stopped.values())
    code, out, errors = ending(sweep(*grid))
    assert code == 0, errors
    assert "3 points: 3 finished, 0 running, 0 waiting, 0 failed" in out
    undisturbed = federate(tiny(*ALONE, "method=fedmd", "rounds=25", f"out={tmp_path / 'undisturbed'}"))
    assert lines_of(tmp_path)[undisturbed.path.name] == numbers(undisturbed)


def test_a_search_goes_on_where_it_was_stopped(sweep, tmp_path):
    pytest.importorskip("optuna")
    space = ("method=fedmd", "seed=0,1", "lr=tag(log,interval(1e-4,1e-2))", "rounds=25")
    search = (*space, "--search=optuna", "--trials=2", "--max-running=2", "--metric=intra_top1")
    code, out, errors = stop_when(sweep(*search), lambda: len(lines_of(tmp_path)) == 2)
    assert code == 75, errors
    assert "no trial is complete" in out and marked(tmp_path) == []
    begun = set(lines_of(tmp_path))
    code, out, errors = ending(sweep(*search))
    assert code == 0, errors
    runs = lines_of(tmp_path)
    assert begun < set(runs) and len(runs) == 4 and all(len(lines) == 26 for lines in runs.values())
    values = dict(re.findall(r"trial \d: lr=(\S+): intra_top1 (\d+\.\d\d)\n", out))
    for rate, value in values.items():  # the mean over both seeds
        configs = tmp_path.glob("runs/tiny/*/*/config.yaml")
        own = [path.parent.name for path in configs if rate in path.read_text()]
        assert f"{sum(runs[name][-1]['intra_top1'] for name in own) / 2:.2f}" == value
    assert len(values) == 2 and f", intra_top1 {max(values.values(), key=float)}, lr=" in out
    code, out, _ = ending(sweep(*search, "--status"))
    assert code == 0 and "4 points: 4 finished" in out


def test_a_poor_trial_is_stopped(sweep, tmp_path):
    optuna = pytest.importorskip("optuna")
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    space = ("method=fedmd", "lr=interval(0.001,0.002)", "rounds=200")
    journal = tmp_path / "runs" / "sweeps" / "mine" / "study.log"
    journal.parent.mkdir(parents=True)
    storage = JournalStorage(JournalFileBackend(str(journal)))
    study = optuna.create_study(storage=storage, study_name="mine", direction="maximize")
    better = {"value": 101.0, "intermediate_values": dict.fromkeys(range(201), 101.0)}  # than any can be
    lr = {"lr": optuna.distributions.FloatDistribution(0.001, 0.002)}
    for number in range(5):
        params = {"lr": 0.001 + number / 1e4}
        study.add_trial(optuna.trial.create_trial(**better, params=params, distributions=lr))
    words = (*space, "--search=optuna", "--trials=6", "--name=mine")
    code, out, errors = ending(sweep(*words, "--metric=intra_top1"))
    assert code == 0, errors
    assert re.search(r"trial 5: lr=\S+: intra_top1 \d+\.\d\d after round 1: pruned", out), out
    (lines,) = lines_of(tmp_path).values()
    assert len(lines) < 200
    assert marked(tmp_path) == []
