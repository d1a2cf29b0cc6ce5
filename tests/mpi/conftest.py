"""Real mpirun: every test here starts processes as a user would."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import PRESETS, skip_suite

# Open MPI refuses root and more ranks than cores unless told; MPICH does not read these.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
Mpirun = Callable[..., subprocess.CompletedProcess]


@pytest.fixture(autouse=True, scope="session")
def mpi_is_there() -> None:
    """Skip with the reason where there is no MPI."""
    if shutil.which("mpirun") is None:
        skip_suite("mpi", 'there is no mpirun: pip install "fccl_mpi[mpich]"')
    code = "from mpi4py import MPI"
    if subprocess.run([sys.executable, "-c", code], capture_output=True).returncode:
        skip_suite("mpi", "mpi4py cannot load an MPI library")


@pytest.fixture
def mpirun(tiny_data: Path, tmp_path: Path) -> Mpirun:
    """``mpirun(ranks, *overrides)`` on scenario `tiny`; never longer than ``timeout``."""

    def start(
        ranks: int, *overrides: str, program: str = "fccl_mpi.run", timeout: float = 120, **environment: str
    ) -> subprocess.CompletedProcess:
        own = ["scenario=tiny", f"data={tiny_data}", f"out={tmp_path / 'runs'}"]
        command = [
            "mpirun",
            "-n",
            str(ranks),
            sys.executable,
            "-m",
            program,
            "--config-dir",
            str(PRESETS),
            *own,
            *overrides,
        ]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **OPEN_MPI, **environment},
        )

    return start
