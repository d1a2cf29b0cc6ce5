"""The batch scripts with whole federations."""

import json
from pathlib import Path

import pytest

from fccl_mpi.config.compose import compose
from fccl_mpi.federation.world import mpi_library
from fccl_mpi.methods.registry import METHODS
from fccl_mpi.store.folder import RunFolder
from tests.conftest import PRESETS
from tests.slurm.cluster import FINISHED, Job, until
from tests.unit.federation.test_federation import federate, numbers, weights


@pytest.fixture(scope="module")
def undisturbed(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """Metrics of rounds 0 to 4 without SLURM or MPI."""
    own = ["scenario=tiny", f"data={tiny_data}", f"out={tmp_path_factory.mktemp('undisturbed')}", "rounds=4"]
    return numbers(federate(compose(own, methods=METHODS, config_dir=PRESETS)))


def lines(runs: Path) -> list[str]:
    """The lines of the only run's metrics so far."""
    return [line for file in runs.glob("tiny/*/*/metrics.jsonl") for line in file.read_text().splitlines()]


def metrics(runs: Path) -> list[dict]:
    """The only run's metrics, without the times."""
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines(runs)]


def refusal(job: Job) -> str:
    """The only sentence of a job that ends with exit code 2."""
    assert job.wait_for(*FINISHED, seconds=60) == "FAILED" and job.exit_code == 2, job.log
    (told,) = [line for line in job.log.splitlines() if line.startswith("fccl_mpi: ")]
    return told


@pytest.mark.parametrize("script", ["cpu.sbatch", "run.sbatch", "multi_node.sbatch"])
def test_a_federation(submit_tiny, script, launcher, tmp_path, undisturbed):
    job = submit_tiny(script, "rounds=1", FCCL_LAUNCHER=launcher)
    assert job.wait_for(*FINISHED) == "COMPLETED" and job.exit_code == 0, job.log
    assert "rank 4 on" in job.log and "everything lies in" in job.log
    assert metrics(tmp_path / "runs") == undisturbed[:2]


def test_a_requeued_federation_ends_the_same(cluster, submit_tiny, launcher, tmp_path, undisturbed):
    job = submit_tiny("cpu.sbatch", "rounds=4", FCCL_LAUNCHER=launcher)
    until(lambda: len(lines(tmp_path / "runs")) >= 3, 240, "round 2")
    assert cluster.call("scontrol", "requeue", str(job.id)).returncode == 0
    job.skip_the_delay()
    assert job.wait_for(*FINISHED) == "COMPLETED", job.log
    assert job.restarts == 1 and "resuming after round" in job.log
    assert metrics(tmp_path / "runs") == undisturbed


def test_a_federation_that_meets_its_time_limit_ends_with_the_same_bytes(submit_tiny, tiny, tmp_path):
    """SLURM counts limits in minutes and looks twice a minute: the warning comes after 5 to 35 seconds."""
    settings = ("~participants.blue", "~participants.grey", "rounds=120", "checkpoint_every=10")
    limit = ("--time=1", "--signal=B:USR1@55", "--ntasks=3")
    job = submit_tiny("cpu.sbatch", *settings, options=limit)
    job.wait_for_log("round   0/120", seconds=120)
    while job.wait_for("PENDING", *FINISHED) == "PENDING":
        job.skip_the_delay()
    assert job.state == "COMPLETED" and job.restarts >= 1, job.log
    assert "stopped on request after round" in job.log and "resuming after round" in job.log
    undisturbed = federate(tiny(*settings, f"out={tmp_path / 'undisturbed'}"))
    stopped = RunFolder(tiny(*settings))
    assert (numbers(stopped), weights(stopped)) == (numbers(undisturbed), weights(undisturbed))


def test_ranks_that_do_not_find_each_other_are_refused(submit_tiny, tmp_path):
    job = submit_tiny("cpu.sbatch", FCCL_LAUNCHER="srun --mpi=none")
    told = refusal(job)
    assert "srun started 5 processes, but MPI sees 1" in told and mpi_library() in told
    assert not (tmp_path / "runs").exists()


def test_a_script_without_a_launcher_is_refused(submit_tiny, tmp_path):
    script = '#!/bin/bash\n#SBATCH --ntasks=5 --output=slurm-%j.log\npython -m fccl_mpi.run "$@"\n'
    (tmp_path / "slurm/bare.sbatch").write_text(script)
    assert "only one process was started" in refusal(submit_tiny("bare.sbatch"))
