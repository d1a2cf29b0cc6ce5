"""A real SLURM: jobs are submitted as a user would."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fccl_mpi.federation.world import mpi_library
from tests.conftest import PRESETS, REQUIRED, skip_suite
from tests.mpi.conftest import OPEN_MPI
from tests.slurm.cluster import Cluster, Job, missing

ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).parent / "stand_in"
Submit = Callable[..., Job]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The private SLURM of this test session."""
    if "slurm" not in REQUIRED:
        pytest.skip("FCCL_TEST_REQUIRE=slurm lets the tests start a SLURM of their own, as root")
    if reason := missing():
        skip_suite("slurm", reason)
    cluster = Cluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(params=["mpirun", "srun"])
def launcher(request: pytest.FixtureRequest) -> str:
    """Each launcher that a batch script can use here, as FCCL_LAUNCHER; mpirun is what it takes by itself."""
    if request.param == "mpirun":
        return ""
    if not mpi_library().startswith("MPICH"):
        pytest.skip("Debian's srun speaks PMI-2, which only MPICH understands")
    return "srun --mpi=pmi2"


@pytest.fixture
def submit(cluster: Cluster, tmp_path: Path) -> Submit:
    """``submit("cpu.sbatch", *settings, options=["--ntasks=3"], NAME="value")`` from a folder with slurm/."""
    shutil.copytree(ROOT / "slurm", tmp_path / "slurm")
    python = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def start(script: str, *settings: str, options: tuple[str, ...] = (), **environment: str) -> Job:
        command = [*options, f"slurm/{script}", *settings]
        return cluster.submit(*command, cwd=tmp_path, **{**python, **OPEN_MPI, **environment})

    return start


@pytest.fixture
def submit_tiny(submit: Submit, tiny_data: Path, tmp_path: Path) -> Submit:
    """Submit a script with a federation of scenario `tiny`, its runs in ``tmp_path / "runs"``."""
    settings = [f"--config-dir={PRESETS}", "scenario=tiny", f"data={tiny_data}", f"out={tmp_path / 'runs'}"]

    def start(script: str, *more: str, **options: str) -> Job:
        return submit(script, *settings, *more, **options)

    return start


@pytest.fixture
def submit_stand_in(submit: Submit, tmp_path: Path) -> Submit:
    """Submit a script with the stand-in for the program, its checkpoint in ``tmp_path / "checkpoint"``."""

    def start(script: str, **options: str) -> Job:
        return submit(script, str(tmp_path / "checkpoint"), PYTHONPATH=str(STAND_IN), **options)

    return start
