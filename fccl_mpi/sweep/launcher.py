"""What starts points one by one, whether on this machine or in SLURM's queue, and what asks them to stop."""

import signal
from collections.abc import Iterable
from types import FrameType
from typing import Protocol

from fccl_mpi.core.stopping import SIGNALS
from fccl_mpi.sweep.folder import SweepFolder
from fccl_mpi.sweep.points import Point


class Launcher(Protocol):
    """Where points run."""

    folder: SweepFolder
    poll_s: float
    """Seconds between looks at what has ended."""

    @property
    def running(self) -> list[Point]:
        """Points that have started and, as far as is known, not ended."""

    def has_room(self) -> bool:
        """Whether another point can start."""

    def start(self, point: Point) -> None:
        """Start a point."""

    def ended(self) -> list[Point]:
        """Points that have ended since the last call; their states are written."""

    def stop(self, points: Iterable[Point]) -> None:
        """Ask running points to stop after their round; asked again, they stop at once."""


class Asked:
    """True once this process was asked to stop."""

    def __init__(self) -> None:
        """Take over what asks; only in the main thread."""
        self._times = self._heard = 0
        for number in SIGNALS:
            signal.signal(number, self._note)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # which nohup sees to
            signal.signal(signal.SIGHUP, self._note)

    def __bool__(self) -> bool:
        return self._times > 0

    def anew(self) -> bool:
        """Whether it was asked since the last call."""
        heard, self._heard = self._heard, self._times
        return self._times > heard

    def _note(self, *_: int | FrameType | None) -> None:
        self._times += 1
