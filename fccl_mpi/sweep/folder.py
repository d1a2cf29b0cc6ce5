"""A sweep's own folder, ``<out>/sweeps/<name>/``: who is in it, what they printed, how they ended.

::

    points.json          the points, as last started
    log/<point>.log      what its mpirun printed
    state/<point>        "running", then its exit code: a file each, so that no tasks fight over one
    job-<number>.txt     SLURM's array jobs: a line for each point, its name and its settings
    study.log            a search's trials
    .lock                held by who starts points

The runs themselves lie where they always do; who reads a sweep reads those of its points alone.
"""

import fcntl
import json
import os
import shlex
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import explaining, replacing
from fccl_mpi.store.folder import NO_LOCKS
from fccl_mpi.sweep.points import Point

RUNNING = "running"


class SweepFolder:
    """The folder of one sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points_file = path / "points.json"
        self.study = path / "study.log"
        self._lock = path / ".lock"
        self._starting = False

    def log(self, point: Point) -> Path:
        """What the point's runs have printed."""
        return self.path / "log" / f"{point.name}.log"

    def state_file(self, point: Point) -> Path:
        """Where `state` is written."""
        return self.path / "state" / point.name

    def state(self, point: Point) -> str:
        """RUNNING or an exit code; empty where it was not started since it was last submitted."""
        try:
            return self.state_file(point).read_text().strip()
        except FileNotFoundError:
            return ""

    def save(self, points: Iterable[Point]) -> None:
        """Make the folder, for these points."""
        with explaining(self.path, "change out="):
            for name in ("log", "state"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            with replacing(self.points_file) as temporary:
                temporary.write_text(json.dumps([asdict(point) for point in points], indent=0), "utf-8")

    def load(self) -> list[Point]:
        """The points as last started. Raises UserError where it never was."""
        if not self.exists():
            raise UserError(f"{self.path} holds no sweep yet: start it first, with the same words")
        stored = json.loads(self.points_file.read_text("utf-8"))
        return [Point(**{**fields, "settings": tuple(fields["settings"])}) for fields in stored]

    def exists(self) -> bool:
        """Whether it was ever started."""
        return self.points_file.exists()

    def forget_states(self, points: Iterable[Point]) -> None:
        """What is about to start has no state yet."""
        for point in points:
            self.state_file(point).unlink(missing_ok=True)

    def write_job(self, points: Sequence[Point]) -> Path:
        """A new file for an array job, a line for each of the points."""
        number = 1 + max((int(file.stem.removeprefix("job-")) for file in self.job_files()), default=0)
        path = self.path / f"job-{number:04}.txt"
        with replacing(path) as temporary:
            lines = (f"{point.name} {shlex.join(point.command_line)}\n" for point in points)
            temporary.write_text("".join(lines), "utf-8")
        return path

    def job_files(self) -> list[Path]:
        """Of all array jobs so far."""
        return sorted(self.path.glob("job-*.txt"))

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Be the only process that starts points of this sweep. Raises UserError where another does."""
        with explaining(self.path, "change out="):
            self.path.mkdir(parents=True, exist_ok=True)
            file = self._lock.open("a+")
        with file:
            deadline = time.monotonic() + 1  # a glance of `starter` holds it for a moment
            while not _try_lock(file.fileno(), fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{self.path} is being worked on by {self._lock.read_text().strip() or 'another'}: "
                        "wait for it, or stop it with --cancel"
                    )
                time.sleep(0.05)
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            self._starting = True
            try:
                yield
            finally:
                self._starting = False

    def starter(self) -> str:
        """The other process that is starting points now, as "process 123 on host", or an empty string."""
        if self._starting or not self._lock.exists():
            return ""
        with self._lock.open() as file:
            return "" if _try_lock(file.fileno(), fcntl.LOCK_SH) else file.read()


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True
