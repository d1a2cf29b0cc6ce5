"""All that ranks say to one another: the only collectives of the program.

`Exchange` is what methods and rounds see; `MpiExchange` speaks MPI, `inprocess.InProcessExchange`
speaks between threads, so that a method can be tested without MPI. Both hand the same numbers to the
same arithmetic: a federation gives bit-equal results over either.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fccl_mpi.core.errors import AgreedError, UserError

if TYPE_CHECKING:
    from mpi4py import MPI

# Longest pause in seconds between two looks of a waiting rank. Every look costs some 20 µs of CPU, which adds
# up for the server: it waits most of the time, before small objects for whole pretrainings and local updates.
LONGEST_PAUSE = 1e-3
LONGEST_PAUSE_BEFORE_SMALL_OBJECTS = 2e-2
PIECE = 1 << 20  # parameters that travel at once


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

    def share(
        self, kind: str, own: np.ndarray | None, shape: tuple[int, ...], givers: Sequence[int] | None = None
    ) -> np.ndarray:
        """Give an own float32 array; who gives nothing, as the server, passes None. All get all of them.

        Args:
            kind: what it is, for the record: "logits", "parameters", ...
            own: the array, of ``shape``.
            shape: its shape, the same for all who give.
            givers: indices of the participants who give, ascending; all of them if None.

        Returns:
            float32 (givers, *shape) in participant order; the next call of this kind and size
            overwrites it.
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


def agree(exchange: Exchange, error: UserError | None) -> None:
    """Raise AgreedError on every rank if any of them has an error to report. Collective."""
    errors = [told for told in exchange.allgather(None if error is None else str(error)) if told]
    if errors:
        raise AgreedError("; ".join(dict.fromkeys(errors)))


def average(
    exchange: Exchange, own: np.ndarray | None, weight: float = 1.0, group: str = ""
) -> np.ndarray | None:
    """Weighted mean of float32 vectors (P,) over the participants of the same ``group``. Collective.

    A participant gives its vector and gets its group's mean; the server passes None and gets None. Vectors
    travel in pieces, so memory stays at K pieces, and are summed in participant order: bit-equal everywhere.

    Raises AgreedError, on every rank, where vectors of a group differ in length.
    """
    cards = exchange.allgather(None if own is None else (group, own.size, weight))[1:]
    mean = own
    for name in dict.fromkeys(card[0] for card in cards if card):
        members = [index for index, card in enumerate(cards) if card and card[0] == name]
        sizes = {cards[index][1] for index in members}
        if len(sizes) > 1:
            raise AgreedError(
                f"parameters of different architectures cannot be averaged (sizes {sorted(sizes)}): "
                "give all participants one model, or use homogeneous=true"
            )
        if len(members) == 1:
            continue
        weights = [np.float32(cards[index][2] / sum(cards[i][2] for i in members)) for index in members]
        mine = own if exchange.rank - 1 in members else None
        pieces = []
        for start in range(0, sizes.pop(), PIECE):
            piece = None if mine is None else mine[start : start + PIECE]
            length = min(PIECE, cards[members[0]][1] - start)
            everyone = exchange.share("parameters", piece, (length,), members)
            if mine is not None:
                pieces.append(
                    np.add.reduce([w * vector for w, vector in zip(weights, everyone, strict=True)])
                )
        if mine is not None:
            mean = np.concatenate(pieces)
    return mean


class MpiExchange:
    """An Exchange over an MPI communicator of K + 1 ranks."""

    def __init__(self, comm: "MPI.Intracomm") -> None:
        self.comm = comm
        self.rank = comm.rank
        self.participants = comm.size - 1
        self.bytes_exchanged = 0
        self.seconds_waited = 0.0
        self._buffers: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}

    def share(
        self, kind: str, own: np.ndarray | None, shape: tuple[int, ...], givers: Sequence[int] | None = None
    ) -> np.ndarray:
        """See Exchange; one allgatherv in which who gives nothing, as the server, has count 0."""
        giving = range(self.participants) if givers is None else givers
        whole = (len(giving), *shape)
        everyone = self._buffers.get((kind, whole))
        if everyone is None:
            everyone = self._buffers[kind, whole] = np.empty(whole, np.float32)
        counts = [0] * self.comm.size
        for index in giving:
            counts[index + 1] = everyone[0].size
        given = np.empty(0, np.float32) if own is None else np.ascontiguousarray(own, np.float32)
        if given.size != counts[self.rank]:
            raise ValueError(f"rank {self.rank} gives {kind} of shape {given.shape}, not {shape}")
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
        self._wait(self.comm.Ibarrier(), LONGEST_PAUSE_BEFORE_SMALL_OBJECTS)

    def _wait(self, request: "MPI.Request", longest_pause: float = LONGEST_PAUSE) -> None:
        """Wait without burning the core that a computing rank may need: MPI's own waits spin."""
        begun = time.perf_counter()
        pause = 2e-5
        while not request.Test():
            time.sleep(pause)
            pause = min(2 * pause, longest_pause)
        self.seconds_waited += time.perf_counter() - begun
