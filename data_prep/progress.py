"""A bar for people who watch, silence for logs: progress goes to the terminal's stderr or nowhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how many more of ``total`` are done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(title), total=total)
        yield lambda done: bar.advance(task, done)


def say(line: str) -> None:
    """One line to stdout."""
    print(printable(line), flush=True)


def warn(line: str) -> None:
    """One line to stderr."""
    print(f"warning: {printable(line)}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Text that any stream and HDF5 take: file names that are no UTF-8 show their bytes as ``\\xff``."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
