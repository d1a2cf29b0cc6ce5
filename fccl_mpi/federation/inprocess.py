"""A federation inside one process, a thread for each rank: for tests of methods, without MPI.

Only one thread runs at a time, from one exchange to its next, and torch's random state travels with
it. So nothing depends on how threads are scheduled, and results equal those of separate processes.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch


class InProcessExchange:
    """An Exchange between the threads of `run_in_process`; see `exchange.Exchange`."""

    def __init__(self, table: "_Table", rank: int) -> None:
        self.rank = rank
        self.participants = len(table.seats) - 1
        self.bytes_exchanged = 0
        self.seconds_waited = 0.0
        self._table = table

    def share(
        self, kind: str, own: np.ndarray | None, shape: tuple[int, ...], givers: Sequence[int] | None = None
    ) -> np.ndarray:
        """See Exchange."""
        given = self._table.swap(self.rank, own)[1:]
        giving = range(self.participants) if givers is None else givers
        everyone = np.stack([given[index] for index in giving]).astype(np.float32)
        if everyone.shape[1:] != tuple(shape):
            raise ValueError(f"{kind} of shape {everyone.shape[1:]}, not {shape}")
        self.bytes_exchanged += everyone.nbytes
        return everyone

    def gather(self, thing: Any) -> list[Any] | None:
        """See Exchange."""
        everything = self._table.swap(self.rank, thing)
        return everything if self.rank == 0 else None

    def allgather(self, thing: Any) -> list[Any]:
        """See Exchange."""
        return self._table.swap(self.rank, thing)

    def tell(self, thing: Any) -> Any:
        """See Exchange."""
        return self._table.swap(self.rank, thing)[0]


def run_in_process(work: Callable[[InProcessExchange], Any], ranks: int) -> list[Any]:
    """Run ``work(exchange)`` on each of ``ranks`` threads and return what they return, in rank order.

    The first exception of any of them is raised here, after all have ended.
    """
    table = _Table(ranks)
    results: list[Any] = [None] * ranks
    errors: list[BaseException] = []

    def seat(rank: int) -> None:
        with table.turn:
            try:
                results[rank] = work(InProcessExchange(table, rank))
            except threading.BrokenBarrierError:
                pass  # another thread failed first, and its error is the one to tell
            except BaseException as error:
                errors.append(error)
                table.barrier.abort()

    threads = [threading.Thread(target=seat, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class _Table:
    """Where the threads meet: a seat for each rank's word, and the turn to run."""

    def __init__(self, ranks: int) -> None:
        self.seats: list[Any] = [None] * ranks
        self.turn = threading.Lock()
        self.barrier = threading.Barrier(ranks)

    def swap(self, rank: int, thing: Any) -> list[Any]:
        """Lay down ``thing``, let the others run until they have too, take up everyone's."""
        random_state = torch.get_rng_state()
        self.seats[rank] = thing
        self.turn.release()
        try:
            self.barrier.wait()
            everything = list(self.seats)
            self.barrier.wait()  # no one lays down the next thing before all have taken this
        finally:
            self.turn.acquire()
        torch.set_rng_state(random_state)
        return everything
