"""Many image files to one array, by several processes, in memory that does not grow but by the array."""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

import numpy as np

from data_prep.archives import Bytes, Tree
from data_prep.pixels import SIDE, Look, check_look, decode
from data_prep.progress import printable, progress
from data_prep.source import Options
from fccl_mpi.core.errors import UserError

BATCH_FILES, BATCH_BYTES = 64, 8 << 20
FEW_FILES = 500
"""So few are decoded at once in this process, before others would have started."""
LARGEST_IMAGE = 256 << 20
STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
MANY = 20
"""So many paths are listed in a message."""

Batch = list[tuple[int, Bytes]]
Answer = tuple[list[int], np.ndarray, list[tuple[int, str]]]


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """``images`` uint8 (N, 32, 32, 3); ``kept`` bool (N,) tells those that could be decoded."""

    images: np.ndarray
    kept: np.ndarray
    broken: list[str] = field(default_factory=list)


def decode_all(tree: Tree, paths: Sequence[str], options: Options, title: str) -> Decoded:
    """Decode the files at ``paths``, in that order.

    Broken files are an error that lists them, or with ``--skip-broken`` are left out and listed in the
    result.
    """
    look = Look(options.filter, options.background)
    check_look(look)
    images = np.zeros((len(paths), SIDE, SIDE, 3), np.uint8)
    kept = np.zeros(len(paths), bool)
    reasons: dict[int, str] = {}
    processes = options.processes if len(paths) >= FEW_FILES else 1
    with _pool(processes) as pool, progress(title, len(paths)) as advance:
        for positions, decoded, broken in _answers(pool, _batches(tree, paths), look, 4 * processes):
            images[positions], kept[positions] = decoded, True
            reasons.update(broken)
            advance(len(positions) + len(broken))
    listed = [printable(f"{paths[position]}: {reasons[position]}") for position in sorted(reasons)]
    if listed and not options.skip_broken:
        more = f"; and {len(listed) - MANY} more" if len(listed) > MANY else ""
        raise UserError(
            f"{tree.shown} holds {len(listed)} of {len(paths)} files that are no whole images: "
            f"{'; '.join(listed[:MANY])}{more}. Fetch them again, or add --skip-broken to leave them out"
        )
    return Decoded(images=images, kept=kept, broken=listed)


def _batches(tree: Tree, paths: Sequence[str]) -> Iterator[Batch]:
    position = {path: index for index, path in enumerate(paths)}
    batch: Batch = []
    size = 0
    for path, content in tree.fetch(paths, LARGEST_IMAGE):
        batch.append((position[path], content))
        size += len(content) if isinstance(content, bytes) else 0
        if len(batch) == BATCH_FILES or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor | None]:
    """Processes that decode, or None where this one does. An error or a signal waits for none of them."""
    if processes == 1:
        yield None
        return
    pool = ProcessPoolExecutor(processes, get_context("fork"), _start_worker)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        pool.submit(int)  # forks them all, before this process has any other thread: a fork of those may hang
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    done = False
    try:
        yield pool
        done = True
    except BrokenProcessPool as error:
        raise UserError(
            "a process that decodes images was killed, most likely for want of memory: add --processes 1"
        ) from error
    finally:
        pool.shutdown(wait=done, cancel_futures=True)


def _start_worker() -> None:
    """Leaves Ctrl-C to the parent, and ends with the parent however that dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in STOPS - {signal.SIGINT}:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _answers(
    pool: ProcessPoolExecutor | None, batches: Iterable[Batch], look: Look, ahead: int
) -> Iterator[Answer]:
    """Every batch decoded, in order; at most ``ahead`` wait, so that a fast reader fills no memory."""
    if pool is None:
        yield from (_decode_batch(batch, look) for batch in batches)
        return
    waiting: deque[Future[Answer]] = deque()
    for batch in batches:
        waiting.append(pool.submit(_decode_batch, batch, look))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _decode_batch(batch: Batch, look: Look) -> Answer:
    positions, images, broken = [], [], []
    for position, content in batch:
        try:
            if isinstance(content, Exception):
                raise content
            images.append(decode(content, look))
            positions.append(position)
        except UserError:
            raise
        except Exception as error:  # decoders raise all manner of things at damaged files
            broken.append((position, _reason(content, error)))
    return positions, np.array(images, np.uint8).reshape(-1, SIDE, SIDE, 3), broken


def _reason(content: Bytes, error: Exception) -> str:
    if isinstance(content, Path) and not content.exists():
        return "it is a link to nothing"
    if content == b"" or (isinstance(content, Path) and not content.stat().st_size):
        return "it is empty"
    if type(error).__name__ == "UnidentifiedImageError":
        return "it is not an image"
    return " ".join(str(error).split()) or type(error).__name__
