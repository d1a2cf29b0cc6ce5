"""What the user sees: only rank 0 speaks, on the screen and into the run's log."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table


class Voice:
    """Lines for the screen and the log; a progress bar where the screen is a terminal."""

    def __init__(self, rounds: int) -> None:
        self.console = Console(highlight=False, soft_wrap=True, force_terminal=someone_watches())
        self.log: Console | None = None
        self.progress: Progress | None = None
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self.progress = Progress(
                *columns,
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self.console,
                redirect_stderr=False,
            )
            self.bar = self.progress.add_task("rounds", total=rounds)

    def log_to(self, path: Path) -> None:
        """Write all further lines to a file too."""
        self.log = Console(file=path.open("a", encoding="utf-8"), width=120, highlight=False, soft_wrap=True)

    def say(self, line: str | Table) -> None:
        """A line, or a table."""
        for console in (self.console, self.log):
            if console:
                console.print(line, markup=False)
                console.file.flush()

    def warn(self, line: str) -> None:
        """A line that asks for attention."""
        self.say(f"warning: {line}")

    def done(self, round: int) -> None:
        """Move the bar to ``round``."""
        if self.progress:
            self.progress.start()
            self.progress.update(self.bar, completed=round)

    def close(self) -> None:
        """Take the bar off the screen and close the log."""
        if self.progress:
            self.progress.stop()
        if self.log:
            self.log.file.close()


def someone_watches() -> bool:
    """Whether standard output is a terminal with a size.

    Open MPI gives its ranks a terminal even where mpirun writes to a file; that one has no size.
    """
    try:
        return sys.stdout.isatty() and os.get_terminal_size(sys.stdout.fileno()).columns > 0
    except (OSError, ValueError):
        return False


def accuracy_table(names: Sequence[str], matrix: Sequence[Sequence[float]], title: str) -> Table:
    """Accuracy in percent, a row for each participant, a column for each test domain."""
    table = Table(title=title, title_justify="left")
    table.add_column("participant")
    for name in names:
        table.add_column(f"on {name}", justify="right")
    for name, row in zip(names, matrix, strict=True):
        table.add_row(name, *(f"{value:.2f}" for value in row))
    return table
