"""All that ranks say to one another: the only collectives of the program.

`Exchange` is what methods and rounds see; `MpiExchange` speaks MPI, `inprocess.InProcessExchange`
speaks between threads, so that a method can be tested without MPI. Both hand the same numbers to the
same arithmetic: a federation gives bit-equal results over either.
"""

import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI

LONGEST_PAUSE = 1e-3  # seconds between two looks of a waiting rank


class Exchange(Protocol):
    """Communication between rank 0, the server, and participants 0..K-1 on ranks 1..K.

    Every call is collective: all ranks make the same calls in the same order.
    """

    participants: int
    """K."""
    rank: int
    """0 for the server, i + 1 for participant i."""
    bytes_exchanged: int
    """Payload that all participants together have given to array collectives so far."""
    seconds_waited: float
    """Time this rank has spent in collectives so far."""

    def logits(self, own: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
        """Give own logits, float32 (B, C); the server gives None. All get (K, B, C) in participant order.

        The result is a buffer that the next exchange of this shape overwrites.
        """
        ...

    def gather(self, thing: Any) -> list[Any] | None:
        """Small objects of all ranks in rank order, at the server; None elsewhere."""
        ...

    def allgather(self, thing: Any) -> list[Any]:
        """Small objects of all ranks in rank order, everywhere."""
        ...

    def tell(self, thing: Any) -> Any:
        """The server's small object, everywhere."""
        ...


class MpiExchange:
    """An Exchange over an MPI communicator of K + 1 ranks."""

    def __init__(self, comm: "MPI.Intracomm") -> None:
        self.comm = comm
        self.rank = comm.rank
        self.participants = comm.size - 1
        self.bytes_exchanged = 0
        self.seconds_waited = 0.0
        self._buffers: dict[tuple[int, int], np.ndarray] = {}

    def logits(self, own: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
        """See Exchange; one allgatherv in which the server gives nothing."""
        everyone = self._buffers.get(shape)
        if everyone is None:
            everyone = self._buffers[shape] = np.empty((self.participants, *shape), np.float32)
        size = everyone[0].size
        counts = [0] + [size] * self.participants
        given = np.empty(0, np.float32) if own is None else np.ascontiguousarray(own, np.float32)
        if given.size != counts[self.rank]:
            raise ValueError(f"rank {self.rank} gives logits of shape {given.shape}, not {shape}")
        self._wait(self.comm.Iallgatherv(given, [everyone, counts]))
        self.bytes_exchanged += everyone.nbytes
        return everyone

    def gather(self, thing: Any) -> list[Any] | None:
        """See Exchange."""
        self._meet()
        return self.comm.gather(thing)

    def allgather(self, thing: Any) -> list[Any]:
        """See Exchange."""
        self._meet()
        return self.comm.allgather(thing)

    def tell(self, thing: Any) -> Any:
        """See Exchange."""
        self._meet()
        return self.comm.bcast(thing)

    def _meet(self) -> None:
        """Wait until all have come, so that the blocking collective that follows does not spin."""
        self._wait(self.comm.Ibarrier())

    def _wait(self, request: "MPI.Request") -> None:
        """Wait without burning the core that a computing rank may need: MPI's own waits spin."""
        begun = time.perf_counter()
        pause = 2e-5
        while not request.Test():
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        self.seconds_waited += time.perf_counter() - begun
