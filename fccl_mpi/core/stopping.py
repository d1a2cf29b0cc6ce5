"""Stopping on request: signals and the clock set a flag, which ranks look at when a round is over."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 75  # EX_TEMPFAIL: the same command goes on from the last checkpoint
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class StopRequest:
    """True as soon as the process has been asked to stop.

    A second signal stops at once, but not one that comes within two seconds: launchers forward what a
    terminal has sent to all processes already.
    """

    def __init__(self) -> None:
        """Take over SIGINT, SIGTERM and SIGUSR1; only in the main thread."""
        self._begun = time.monotonic()
        self._deadline: float | None = None
        self._since: float | None = None
        for number in SIGNALS:
            signal.signal(number, self._note)

    def after(self, minutes: float) -> None:
        """Become true by itself, so many minutes after this was made; 0: not at all."""
        self._deadline = self._begun + 60 * minutes if minutes else None

    def __bool__(self) -> bool:
        return self._since is not None or (self._deadline is not None and time.monotonic() > self._deadline)

    def ignore(self) -> None:
        """Heed no further signal: one that finds the interpreter half torn down would crash it."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self._since is None:
            self._since = time.monotonic()
        elif time.monotonic() - self._since > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


@contextmanager
def listening() -> Iterator[StopRequest]:
    """What a rank's program does all else in, its imports too, which take a second: it can be stopped."""
    stop = StopRequest()
    die_with_launcher()
    yield stop
    stop.ignore()


def die_with_launcher() -> None:
    """Have Linux end this process when Open MPI's launcher is killed; it would live on for seconds."""
    if sys.platform == "linux" and "OMPI_COMM_WORLD_RANK" in os.environ:
        set_death_signal = 1  # PR_SET_PDEATHSIG of prctl.h
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
