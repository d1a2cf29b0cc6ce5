"""What gets in a run's way: another run, a reader, a full disk, files that are not there."""

import fcntl
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from fccl_mpi.store.checkpoint import Checkpoints
from tests.conftest import make_tiny_images
from tests.mpi.test_run import TWO, run_folder


def rounds_of(run: Path) -> list[dict]:
    """A run's metrics without their times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def test_of_two_starts_at_once_one_runs_and_the_other_says_so(mpirun, tiny_data, tmp_path):
    """On the same data at the same time too, which someone else holds open and locked."""
    before = {path: path.stat().st_mtime_ns for path in tiny_data.rglob("*")}
    with (tiny_data / "tiny" / "red.h5").open() as held, ThreadPoolExecutor() as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        starts = [pool.submit(mpirun, 3, *TWO, "rounds=12", HDF5_USE_FILE_LOCKING="TRUE") for _ in range(2)]
        done, refused = sorted((start.result() for start in starts), key=lambda ended: ended.returncode)
    assert (done.returncode, refused.returncode) == (0, 2), done.stderr + refused.stderr
    assert "is in use by another run: wait for it, or change out= or seed=" in refused.stderr
    assert len(rounds_of(run_folder(tmp_path / "runs"))) == 13
    assert {path: path.stat().st_mtime_ns for path in tiny_data.rglob("*")} == before


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_ends_the_job_and_room_lets_it_go_on(mpirun, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk]).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        settings = (*TWO, "rounds=4", "keep=0")
        full = mpirun(3, *settings, f"out={disk}")
        assert full.returncode in (1, 2), full.stdout
        assert "cannot be written (No space left on device): make room" in full.stderr
        run = run_folder(disk)
        round, _ = Checkpoints(run / "checkpoints").newest_intact()
        assert 1 <= round < 4
        subprocess.run(["mount", "-o", "remount,size=30m", disk], check=True)
        more = mpirun(3, *settings, f"out={disk}")
        assert more.returncode == 0 and f"resuming after round {round}" in more.stdout
        whole = mpirun(3, *settings)
        assert whole.returncode == 0
        assert rounds_of(run) == rounds_of(run_folder(tmp_path / "runs"))
        assert not list(run.rglob("*.part"))
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_what_cannot_be_read_or_written_ends_the_job_with_a_reason(mpirun, tmp_path):
    (tmp_path / "file").touch()
    done = mpirun(3, *TWO, f"out={tmp_path / 'file'}", timeout=60)
    assert done.returncode == 2 and "cannot be written (Not a directory): change out=" in done.stderr
    data = make_tiny_images(tmp_path / "data")
    (data / "tiny" / "green.h5").unlink()
    (data / "tiny" / "green.h5").mkdir()  # there when rank 0 looks, gone when rank 2 reads
    done = mpirun(3, *TWO, f"data={data}", timeout=60)
    assert done.returncode == 2 and "green.h5 does not exist" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_checkpoint_made_on_a_gpu_resumes_on_a_cpu(mpirun, tmp_path):
    first = mpirun(3, *TWO, "rounds=1", "device=cuda")
    assert first.returncode == 0 and "cuda" in first.stdout
    more = mpirun(3, *TWO, "rounds=2", "device=cpu")
    assert more.returncode == 0 and "resuming after round 1" in more.stdout
    assert len(rounds_of(run_folder(tmp_path / "runs"))) == 3
