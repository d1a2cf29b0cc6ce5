"""Files that are either whole or not there."""

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from fccl_mpi.core.errors import UserError

ABANDONED_S = 3600
"""A temporary file untouched for so long was left behind by a process that was killed."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; on success fsync it and rename it to ``path``.

    Readers see the old file or the whole new one, also after a crash. On an exception the temporary
    file is removed and ``path`` is as it was. Concurrent writers do not collide: the last rename wins.
    What killed writers of ``path`` left behind is removed, once it is ABANDONED_S old.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # mkstemp's 0600 would hide results from a shared project folder
        _fsync(temporary)
        temporary.replace(path)
        _fsync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def explaining(path: Path, advice: str) -> Iterator[None]:
    """Turn an OSError of writing ``path`` into a UserError that names it, the reason and what to do."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f"{path} cannot be written ({reason}): {advice}") from error


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _remove_abandoned(path: Path) -> None:
    """A process that is still at work touches its file more often."""
    for part in path.parent.glob(f".{escape(path.name)}.*.part"):
        with suppress(OSError):  # another process was quicker, or it is another user's
            if time.time() - part.stat().st_mtime > ABANDONED_S:
                part.unlink()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
