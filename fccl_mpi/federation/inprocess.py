"""A federation inside one process, a thread for each rank: for tests of methods, without MPI.

Only one thread runs at a time, from one exchange to its next, and torch's random state travels with
it. So nothing depends on how threads are scheduled, and results equal those of separate processes.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fccl_mpi.federation.exchange import Empty, Exchange


class InProcessExchange(Exchange):
    """An Exchange between the threads of `run_in_process`."""

    def __init__(self, table: "_Table", rank: int, who: Sequence[str]) -> None:
        super().__init__(rank, who)
        self._table = table

    def _begin(
        self, kind: str, given: Any, whole: tuple[int, ...], giving: Sequence[int], empty: Empty
    ) -> Callable[[], Any]:
        def receive() -> np.ndarray:
            arrays = self._table.swap(self.rank, given)[1:]
            return np.stack([arrays[index] for index in giving])

        return receive

    def _begin_mean(
        self, kind: str, given: Any, whole: tuple[int, ...], giving: Sequence[int], empty: Empty
    ) -> Callable[[], Any]:
        receive = self._begin(kind, given, whole, giving, empty)
        return lambda: receive().mean(0, keepdims=True)

    def _gather(self, thing: Any) -> list[Any] | None:
        everything = self._table.swap(self.rank, thing)
        return everything if self.rank == 0 else None

    def _allgather(self, thing: Any) -> list[Any]:
        return self._table.swap(self.rank, thing)

    def _tell(self, thing: Any) -> Any:
        return self._table.swap(self.rank, thing)[0]


def run_in_process(work: Callable[[Exchange], Any], who: Sequence[str]) -> list[Any]:
    """Run ``work(exchange)`` on a thread for each of ``who``, the server first; returns what they return.

    The first exception of any of them is raised here, after all have ended.
    """
    table = _Table(len(who))
    results: list[Any] = [None] * len(who)
    errors: list[BaseException] = []

    def seat(rank: int) -> None:
        with table.turn:
            try:
                results[rank] = work(InProcessExchange(table, rank, who))
            except threading.BrokenBarrierError:
                pass  # another thread failed first, and its error is the one to tell
            except BaseException as error:
                errors.append(error)
                table.barrier.abort()

    threads = [threading.Thread(target=seat, args=(rank,)) for rank in range(len(who))]
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
        """Lay down ``thing``, let the others run until they have too, take up everyone's.

        Then the server runs first, since a round begins and ends by its clock.
        """
        random_state = torch.get_rng_state()
        self.seats[rank] = thing
        self.turn.release()
        runs = False
        try:
            self.barrier.wait()
            everything = list(self.seats)
            runs = rank == 0 and self.turn.acquire()
            self.barrier.wait()  # no one lays down the next thing before all have taken this
        finally:
            if not runs:
                self.turn.acquire()
        torch.set_rng_state(random_state)
        return everything
