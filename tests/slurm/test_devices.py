"""Who computes where: nodes, GPUs and threads of each rank."""

import re
import shutil
import sys

import pytest

from tests.slurm.cluster import FINISHED, Job

ALL = "0,1,2,3"


def places(job: Job) -> list[tuple[str, ...]]:
    """(node, name, device, threads, GPUs shown) of each rank."""
    assert job.wait_for(*FINISHED, seconds=60) == "COMPLETED", job.log
    return re.findall(r"rank \d on (\w+): (\w+), ([\w: ]+), threads (\d+), pid \d+, shown (\S+)", job.log)


@pytest.fixture(autouse=True)
def finished(tmp_path):
    """The stand-in shows its places and is done."""
    (tmp_path / "checkpoint").touch()


def test_a_gpu_for_each_participant_and_none_for_the_server(submit_stand_in, launcher):
    assert places(submit_stand_in("run.sbatch", FCCL_LAUNCHER=launcher)) == [
        ("alpha", "server", "no device", "1", ALL),
        ("alpha", "red", "cuda:0", "4", ALL),
        ("alpha", "green", "cuda:1", "4", ALL),
        ("alpha", "blue", "cuda:2", "4", ALL),
        ("alpha", "grey", "cuda:3", "4", ALL),
    ]


def test_gpus_are_counted_on_each_node(submit_stand_in, launcher):
    assert places(submit_stand_in("multi_node.sbatch", FCCL_LAUNCHER=launcher)) == [
        ("alpha", "server", "no device", "1", "0,1"),
        ("alpha", "red", "cuda:0", "4", "0,1"),
        ("alpha", "green", "cuda:1", "4", "0,1"),
        ("beta", "blue", "cuda:0", "4", "0,1"),
        ("beta", "grey", "cuda:1", "4", "0,1"),
    ]


@pytest.mark.parametrize("launcher", ["srun"], indirect=True)
def test_a_rank_that_is_shown_one_gpu_takes_it(submit_stand_in, launcher):
    one = f"{launcher} --gpus-per-task=1"
    job = submit_stand_in("run.sbatch", options=["--ntasks=4", "--cpus-per-task=2"], FCCL_LAUNCHER=one)
    assert places(job) == [
        ("alpha", "server", "no device", "1", "0"),
        ("alpha", "red", "cuda:0", "2", "1"),
        ("alpha", "green", "cuda:0", "2", "2"),
        ("alpha", "blue", "cuda:0", "2", "3"),
    ]


def test_no_gpu_is_shown_without_asking(submit_stand_in, launcher):
    job = submit_stand_in("cpu.sbatch", FCCL_LAUNCHER=launcher, OMP_NUM_THREADS="3")
    assert [place[2:] for place in places(job)] == [("no device", "1", "None")] + 4 * [("cpu", "3", "None")]


@pytest.mark.parametrize("launcher", ["srun"], indirect=True)
def test_srun_is_taken_where_there_is_no_mpirun(submit_stand_in, launcher, tmp_path):
    if shutil.which("mpirun", path="/usr/bin:/bin"):
        pytest.skip("mpirun lies where the system's own programs do")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    assert len(places(submit_stand_in("cpu.sbatch", PATH=f"{python.parent}:/usr/bin:/bin"))) == 5
