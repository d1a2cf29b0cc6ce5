"""Points on this machine: federations side by side, each its own mpirun."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path

from fccl_mpi.core.cores import own_cores
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.stopping import EXIT_CODE
from fccl_mpi.sweep.folder import RUNNING, SweepFolder
from fccl_mpi.sweep.points import Point
from fccl_mpi.sweep.status import STARTED


class Local:
    """Runs points as processes of this machine, no more than ``slots`` at a time."""

    poll_s = 0.2

    def __init__(self, folder: SweepFolder, *, slots: int, gpus: Sequence[str] = ()) -> None:
        """Raises UserError where there is no mpirun."""
        self.folder, self.slots, self.gpus = folder, slots, gpus
        self._mpirun = mpirun()
        self._processes: dict[Point, tuple[int, subprocess.Popen]] = {}
        self._stopped: set[Point] = set()

    @property
    def running(self) -> list[Point]:
        """As `Launcher` says, and so the others."""
        return list(self._processes)

    def has_room(self) -> bool:
        """Whether another point can start."""
        return len(self._processes) < self.slots

    def start(self, point: Point) -> None:
        """Start a point."""
        slot = next(n for n in count() if n not in (taken for taken, _ in self._processes.values()))
        self.folder.state_file(point).write_text(RUNNING)
        with self.folder.log(point).open("a", encoding="utf-8") as log:
            log.write(f"{STARTED}{time.strftime('%F %T')}\n")
            log.flush()
            command = [self._mpirun, "--bind-to", "none", "-n", str(point.ranks), sys.executable, "-m"]
            # A session of its own: Ctrl-C in a terminal is passed on by us, once.
            process = subprocess.Popen(
                [*command, "fccl_mpi.run", *point.command_line],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(point, slot),
                start_new_session=True,
            )
        self._processes[point] = slot, process

    def ended(self) -> list[Point]:
        """Points that have ended since the last call; their states are written."""
        codes = {point: process.poll() for point, (_, process) in self._processes.items()}
        found = {point: code for point, code in codes.items() if code is not None}
        for point, code in found.items():
            # A run that was asked to stop in its first moments may have died of it.
            code = EXIT_CODE if code and point in self._stopped else code
            self.folder.state_file(point).write_text(str(code))
            del self._processes[point]
        return list(found)

    def stop(self, points: Iterable[Point]) -> None:
        """Ask running points to stop after their round; asked again, they stop at once."""
        for point in points:
            self._stopped.add(point)
            # What every MPI's mpirun passes on to its ranks; Open MPI's kills them soon after SIGTERM.
            self._processes[point][1].send_signal(signal.SIGUSR1)

    def _environment(self, point: Point, slot: int) -> dict[str, str]:
        threads = max(1, len(own_cores()) // (self.slots * (point.ranks - 1)))
        own = {"OMP_NUM_THREADS": str(threads)} if self.slots > 1 else {}
        own |= os.environ
        if "SLURM_JOB_ID" in own:
            own["HYDRA_LAUNCHER"] = "fork"  # else MPICH's mpiruns in one job wait for each other
        each = point.ranks - 1
        if point.on_gpu and len(self.gpus) > each:
            first = slot % (len(self.gpus) // each) * each
            own["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[first : first + each])
        return own


def mpirun() -> str:
    """That of this Python's environment, else of PATH. Raises UserError where there is none."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    found = shutil.which("mpirun", path=places)
    if found is None:
        raise UserError('there is no mpirun: load the site\'s MPI module, or pip install "fccl_mpi[mpich]"')
    return found


def gpus_here(environment: Mapping[str, str]) -> list[str]:
    """The GPUs that a run would see, as CUDA_VISIBLE_DEVICES names them."""
    if (shown := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for gpu in shown.split(",") if gpu]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return [str(index) for index, line in enumerate(listed.splitlines()) if line.startswith("GPU ")]


def side_by_side(points: Sequence[Point], gpus: Sequence[str]) -> int:
    """How many federations this machine takes at once, by its GPUs or else by its cores.

    On cores it is one more than they carry, since ranks also wait for each other.
    """
    participants = max(point.ranks for point in points) - 1
    if gpus and all(point.on_gpu for point in points):
        return max(1, len(gpus) // participants)
    return len(own_cores()) // participants + 1
