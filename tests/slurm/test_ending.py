"""How jobs stop, go on and die; with the stand-in, which exits with 75 when it is asked to stop."""

import os
import re
import time

import pytest

from tests.slurm.cluster import FINISHED, Job


@pytest.fixture
def job(submit_stand_in, launcher) -> Job:
    """A running federation."""
    job = submit_stand_in("cpu.sbatch", FCCL_LAUNCHER=launcher)
    job.wait_for_log("going on")
    return job


def test_a_run_that_nears_its_time_limit_goes_on_later(cluster, job):
    cluster.call("scancel", "--batch", "--signal=USR1", str(job.id))  # as --signal=B:USR1@120 does
    job.skip_the_delay()
    assert job.wait_for(*FINISHED, seconds=60) == "COMPLETED", job.log
    assert job.restarts == 1 and job.log.rstrip().endswith("finished")


def test_a_requeued_job_goes_on(cluster, job, tmp_path):
    (tmp_path / "checkpoint").touch()  # for Open MPI's ranks, which are killed before they can make it
    cluster.call("scontrol", "requeue", str(job.id))
    job.skip_the_delay()
    assert job.wait_for(*FINISHED, seconds=60) == "COMPLETED", job.log
    assert job.restarts == 1 and job.log.rstrip().endswith("finished")


def test_a_cancelled_job_does_not_come_back(cluster, job):
    cluster.call("scancel", str(job.id))
    job.wait_for(*FINISHED, seconds=30)
    time.sleep(1)
    assert job.state == "CANCELLED" and job.restarts == 0


def test_a_killed_rank_ends_the_job(job):
    os.kill(int(re.search(r"green, .* pid (\d+)", job.log)[1]), 9)
    killed = time.monotonic()
    assert job.wait_for(*FINISHED, seconds=40) == "FAILED"
    assert time.monotonic() - killed < 20 and job.exit_code not in (0, 75)


def test_requeueing_is_bounded(cluster, submit_stand_in):
    job = submit_stand_in("cpu.sbatch", SLURM_RESTART_COUNT="100")
    job.wait_for_log("going on")
    cluster.call("scancel", "--batch", "--signal=USR1", str(job.id))
    assert job.wait_for(*FINISHED, seconds=30) == "FAILED" and job.exit_code == 75
