"""All that ranks say to one another: the only collectives of the program, and the record of them.

`Exchange` is what methods and rounds see; `MpiExchange` speaks MPI, `inprocess.InProcessExchange`
speaks between threads, so that a method can be tested without MPI. Both hand the same numbers to the
same arithmetic: a federation gives bit-equal results over either.
"""

import math
import os
import pickle
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fccl_mpi.core.errors import AgreedError, UserError

if TYPE_CHECKING:
    from mpi4py import MPI
    from torch import Tensor

# Longest pause in seconds between two looks of a waiting rank. Every look costs some 20 µs of CPU, which adds
# up for the server: it waits most of the time, before small objects for whole pretrainings and local updates.
LONGEST_PAUSE = 1e-3
EAGER = 2e-3  # seconds for which a rank only lets others run between two looks: all may have come together
LONGEST_PAUSE_BEFORE_SMALL_OBJECTS = 2e-2
PIECE = 1 << 20  # parameters that travel at once


Empty = Callable[[tuple[int, ...]], Any]


def host_array(shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array that nothing has been written into."""
    return np.empty(shape, np.float32)


class Given(NamedTuple):
    """What a rank has handed to a collective; `Exchange.record` counts how often."""

    round: int
    kind: str
    shape: tuple[int, ...]
    """Of an array; () for a small object."""
    bytes: int
    """Of the array, or of the pickled object."""


class Exchange(ABC):
    """Communication between rank 0, the server, and participants 0..K-1 on ranks 1..K.

    Every call is collective: all ranks make the same calls in the same order. ``kind`` says what is given,
    for the record: "logits", "parameters", "report", ...

    Attributes: ``rank`` (0 for the server, i + 1 for participant i), ``participants`` (K), ``who`` (names in
    rank order), ``round`` and ``skips_nonfinite`` (set by `rounds`), ``record`` (what this rank has given),
    ``bytes_exchanged`` (payload of the arrays that all participants together have given, by kind) and
    ``seconds_waited`` (time this rank has spent in collectives).
    """

    def __init__(self, rank: int, who: Sequence[str]) -> None:
        self.rank, self.who, self.participants = rank, list(who), len(who) - 1
        self.round, self.skips_nonfinite = 0, False
        self._underway: list[Callable[[], Any]] = []  # what waits for each exchange that has begun
        self.record: Counter[Given] = Counter()
        self.bytes_exchanged: Counter[str] = Counter()
        self.seconds_waited = 0.0

    def share(
        self,
        kind: str,
        own: "np.ndarray | Tensor | None",
        shape: tuple[int, ...],
        givers: Sequence[int] | None = None,
    ) -> Any:
        """What `begin` gives and promises, waited for at once."""
        return self.begin(kind, own, shape, givers)()

    def begin(
        self,
        kind: str,
        own: "np.ndarray | Tensor | None",
        shape: tuple[int, ...],
        givers: Sequence[int] | None = None,
        empty: "Empty | None" = None,
        mean: bool = False,
    ) -> Callable[[], Any]:
        """Give an own float32 array; who gives nothing, as the server, passes None. All get all of them.

        Args:
            kind: what it is.
            own: the array, of ``shape``, contiguous; also a tensor on a device, where MPI can read it.
            shape: its shape, the same for all who give.
            givers: indices of the participants who give, ascending; all of them if None.
            empty: makes the float32 array or tensor of a shape that receives; of the host's memory if None.
            mean: whether the mean is all that is wanted.

        Returns:
            What waits for the others, so that it may be called when there is nothing left to compute: on all
            ranks in the order of `begin`. It returns float32 (givers, *shape) in participant order, or their
            mean (1, *shape), made by ``empty``, which the next `begin` of this kind and size may overwrite.
            It raises AgreedError, on every rank, naming who gave what is not finite; with
            ``skips_nonfinite`` that is left to the caller, but for parameters, of which no batch can be
            skipped.
        """
        giving = range(self.participants) if givers is None else givers
        whole = (1 if mean else len(giving), *shape)
        given = np.empty(0, np.float32) if own is None else own
        if tuple(given.shape) != (tuple(shape) if self.rank - 1 in giving else (0,)):
            raise ValueError(f"rank {self.rank} gives {kind} of shape {given.shape}, not {shape}")
        self.record[Given(self.round, kind, tuple(given.shape), given.nbytes)] += 1
        begin = self._begin_mean if mean else self._begin
        self._underway.append(begin(kind, given, whole, giving, empty or host_array))
        return lambda: self._checked(kind, given, self._underway.pop(0)(), giving)

    def _checked(self, kind: str, given: Any, everyone: Any, giving: Sequence[int]) -> Any:
        """What `begin` says of what all have given."""
        self.bytes_exchanged[kind] += everyone[0].nbytes * len(giving)
        may_be_skipped = self.skips_nonfinite and kind != "parameters"
        if not may_be_skipped and not _finite(everyone):
            while self._underway:  # on all ranks, before all of them leave
                self._underway.pop(0)()
            if len(everyone) == len(giving):
                sound = [_finite(array) for array in everyone]
            else:  # a mean does not tell whose it was
                told = self._allgather(_finite(given))
                sound = [told[index + 1] for index in giving]
            bad = [self.who[index + 1] for index, fine in zip(giving, sound, strict=True) if not fine]
            raise AgreedError(
                f"round {self.round}: {' and '.join(bad) or 'all together'} sent {kind} that are not finite, "
                "and no one has used them; the last checkpoint is intact: try a lower lr, or "
                "on_nonfinite=skip_batch"
            )
        return everyone

    def gather(self, kind: str, thing: Any) -> list[Any] | None:
        """Small objects of all ranks in rank order, at the server; None elsewhere."""
        return self._gather(self._noted(kind, thing))

    def allgather(self, kind: str, thing: Any) -> list[Any]:
        """Small objects of all ranks in rank order, everywhere."""
        return self._allgather(self._noted(kind, thing))

    def tell(self, kind: str, thing: Any) -> Any:
        """The server's small object, everywhere."""
        return self._tell(self._noted(kind, thing))

    def _noted(self, kind: str, thing: Any) -> Any:
        self.record[Given(self.round, kind, (), len(pickle.dumps(thing)))] += 1
        return thing

    @abstractmethod
    def _begin(
        self, kind: str, given: Any, whole: tuple[int, ...], giving: Sequence[int], empty: Empty
    ) -> Callable[[], Any]: ...

    @abstractmethod
    def _begin_mean(
        self, kind: str, given: Any, whole: tuple[int, ...], giving: Sequence[int], empty: Empty
    ) -> Callable[[], Any]: ...

    @abstractmethod
    def _gather(self, thing: Any) -> list[Any] | None: ...

    @abstractmethod
    def _allgather(self, thing: Any) -> list[Any]: ...

    @abstractmethod
    def _tell(self, thing: Any) -> Any: ...


def _finite(array: Any) -> bool:
    return bool((np.isfinite(array) if isinstance(array, np.ndarray) else array.isfinite()).all())


def agree(exchange: Exchange, error: UserError | None) -> None:
    """Raise AgreedError on every rank if any of them has an error to report. Collective."""
    told = exchange.allgather("error", None if error is None else str(error))
    if any(told):
        raise AgreedError("; ".join(dict.fromkeys(filter(None, told))))


def average(
    exchange: Exchange, own: np.ndarray | None, weight: float = 1.0, group: str = ""
) -> np.ndarray | None:
    """Weighted mean of float32 vectors (P,) over the participants of the same ``group``. Collective.

    A participant gives its vector and gets its group's mean; the server passes None and gets None. Vectors
    travel in pieces, so memory stays at K pieces, and are summed in participant order: bit-equal everywhere.

    Raises AgreedError, on every rank, where vectors of a group differ in length.
    """
    cards = exchange.allgather("size", None if own is None else (group, own.size, weight))[1:]
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


class MpiExchange(Exchange):
    """An Exchange over an MPI communicator of K + 1 ranks."""

    def __init__(self, comm: "MPI.Intracomm", who: Sequence[str], timeout: float = 0.0) -> None:
        """Collective; a rank that waits longer than ``timeout`` seconds (0: for ever) ends the job."""
        super().__init__(comm.rank, who)
        self.comm = comm
        self._roll_call = RollCall(comm.Dup(), who, timeout)
        self._free: dict[tuple[str, tuple[int, ...]], list[Any]] = defaultdict(list)  # to receive into
        self._begun: list[MPI.Request] = []

    def _begin(
        self, kind: str, given: Any, whole: tuple[int, ...], giving: Sequence[int], empty: Empty
    ) -> Callable[[], Any]:
        """One allgatherv in which who gives nothing, as the server, has count 0."""
        counts = [0] * self.comm.size
        for index in giving:
            counts[index + 1] = math.prod(whole[1:])
        free, everyone = self._receiving(kind, whole, empty)
        return self._started(self.comm.Iallgatherv(given, [everyone, counts]), everyone, free)

    def _begin_mean(
        self, kind: str, given: Any, whole: tuple[int, ...], giving: Sequence[int], empty: Empty
    ) -> Callable[[], Any]:
        """One allreduce in which who gives nothing, as the server, gives zeros."""
        own = given if self.rank - 1 in giving else np.zeros(whole, np.float32)
        free, total = self._receiving(kind, whole, empty)
        receive = self._started(self.comm.Iallreduce(own, total), total, free)

        def divided() -> Any:
            total = receive()
            total /= len(giving)
            return total

        return divided

    def _receiving(self, kind: str, whole: tuple[int, ...], empty: Empty) -> tuple[list[Any], Any]:
        """The buffers of a kind and size that nobody uses, and one to receive into."""
        free = self._free[kind, whole]
        return free, free.pop() if free else empty(whole)

    def _started(self, request: "MPI.Request", everyone: Any, free: list[Any]) -> Callable[[], Any]:
        """What waits for a collective that has begun and receives into ``everyone``."""
        self._begun = [earlier for earlier in self._begun if not earlier.Test()]  # which also moves them on
        self._begun.append(request)

        def receive() -> Any:
            self._wait(request)
            free.insert(0, everyone)
            return everyone

        return receive

    def _gather(self, thing: Any) -> list[Any] | None:
        self._meet()
        return self.comm.gather(thing)

    def _allgather(self, thing: Any) -> list[Any]:
        self._meet()
        return self.comm.allgather(thing)

    def _tell(self, thing: Any) -> Any:
        self._meet()
        return self.comm.bcast(thing)

    def _meet(self) -> None:
        """Wait until all have come, so that the blocking collective that follows does not spin."""
        self._wait(self.comm.Ibarrier(), LONGEST_PAUSE_BEFORE_SMALL_OBJECTS)

    def _wait(self, request: "MPI.Request", longest_pause: float = LONGEST_PAUSE) -> None:
        """Wait without burning the core that a computing rank may need: MPI's own waits spin."""
        begun = time.perf_counter()
        pause = 2e-5
        self._roll_call.begin()
        while not request.Test():
            waited = time.perf_counter() - begun
            if waited < EAGER:
                os.sched_yield()
                continue
            time.sleep(pause)
            pause = min(2 * pause, longest_pause)
            if waited > 1:
                self._roll_call.look(waited, f"round {self.round}")
        self.seconds_waited += time.perf_counter() - begun


class RollCall:
    """Finds out who keeps the others waiting.

    A collective does not say who has not come. So the first rank whose patience ends tells all others that
    it is here, whoever waits in the same collective answers in kind, and after `GRACE` seconds all who wait
    know whom nobody has heard of. While nobody waits longer than a second nothing is sent and nothing asked.
    """

    GRACE = 2.0

    def __init__(self, comm: "MPI.Intracomm", who: Sequence[str], timeout: float) -> None:
        """``comm`` is for this alone; ``timeout`` in seconds, 0 for none."""
        self.comm, self.who, self.timeout = comm, who, timeout
        self.number = 0  # of the collective, the same on every rank
        self.here: set[int] = set()
        self.called: float | None = None
        self._sent: list[Any] = []  # requests and what they send, kept while MPI may read it

    def begin(self) -> None:
        """The next collective begins."""
        self.number += 1
        self.here, self.called = {self.comm.rank}, None

    def look(self, waited: float, where: str) -> None:
        """Answer a roll call, begin one after ``timeout``, or end it: a UserError names who has not come."""
        while self.comm.iprobe():
            message = np.empty(2, np.int64)
            self.comm.Recv(message)
            if message[0] == self.number:
                self.here.add(int(message[1]))
        if self.called is None and (len(self.here) > 1 or (self.timeout and waited > self.timeout)):
            self.called = waited
            message = np.array([self.number, self.comm.rank])
            others = set(range(self.comm.size)) - {self.comm.rank}
            self._sent += [message, *(self.comm.Isend(message, other) for other in sorted(others))]
        if self.called is not None and waited > self.called + self.GRACE:
            missing = [rank for rank in range(self.comm.size) if rank not in self.here]
            names = ", ".join(f"rank {rank} ({self.who[rank]})" for rank in missing)
            raise UserError(
                f"{where}: waited {waited / 60:.3g} minutes in an exchange for {names or 'the network'}; "
                f"look there for what holds it up, or raise timeout={self.timeout / 60:g} if it is only slow"
            )
