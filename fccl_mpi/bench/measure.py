"""What every rank does in a bench: the real rounds, the floor between them, and exchanges alone.

The rounds are those of `rounds.participate` and `rounds.serve`, in a folder of their own which is removed
at the end. Between two rounds all participants replay the one before at the same time, so that a round
and its floor compete for the same cores, and a machine that slows down slows down both.
"""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fccl_mpi.bench import show
from fccl_mpi.bench.summary import summarise
from fccl_mpi.config.schema import Config
from fccl_mpi.core.cores import own_cores
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import explaining, replacing
from fccl_mpi.federation.exchange import MpiExchange, agree
from fccl_mpi.federation.job import federate
from fccl_mpi.federation.server import Server
from fccl_mpi.federation.world import Place
from fccl_mpi.store.folder import RunFolder

if TYPE_CHECKING:
    import torch
    from mpi4py import MPI

    from fccl_mpi.bench.floor import Recorder
    from fccl_mpi.federation.participant import Participant

LAUNCHERS = {
    *("mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "srun", "slurmstepd"),
    *("orterun", "orted", "prterun", "prte", "prted"),
}
REPETITIONS = 200  # of an exchange as the run makes it
REPETITIONS_OF_OTHERS = 40
SECONDS = 1.0  # for the exchanges of one size, where they are slow
SIZES = (0, 1 << 16, 1 << 20, 1 << 22)  # bytes of all participants together, rounded down, at least 4 each


@dataclass(kw_only=True)
class Round:
    """A round as one rank saw it, and its floor."""

    wall: float
    """Seconds from where all ranks begin it together to where the last has ended it."""
    cpu: float
    """CPU seconds of this rank."""
    waited: float
    """Seconds in collectives and, at the end, for the last rank."""
    calls: int
    """Collectives."""
    images: int = 0
    """That passed with gradient."""
    floor_wall: dict[str, float] = field(default_factory=dict)
    """Seconds of its passes and steps alone, by phase."""
    floor_cpu: dict[str, float] = field(default_factory=dict)
    """Their CPU seconds."""


def measure(
    config: Config,
    exchange: MpiExchange,
    place: Place,
    device: torch.device | None,
    stop: object,
    file: Path,
) -> bool:
    """Measure, and have rank 0 print the result and write it to ``file``. Collective.

    Returns whether it was stopped on request. Raises AgreedError where ``file`` or a folder below
    ``config.out`` cannot be written.
    """
    probe = Probe(exchange, place)
    with scratch_folder(config, exchange, file), redirect_stdout(io.StringIO()):
        stopped = federate(config, exchange, place, device, stop, probe)
        history = RunFolder(config).history.read() if place.rank == 0 and not stopped else []
    if stopped:
        if place.rank == 0:
            print("stopped on request before all was measured; nothing is written")
        return True
    found = probe.found()
    exchanges = time_exchanges(exchange, probe.comm, *probe.exchanged())
    ranks = exchange.gather("bench", found)
    if ranks is not None:
        result = summarise(config, ranks, history, exchanges)
        with explaining(file, "choose another --json"), replacing(file) as temporary:
            temporary.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", "utf-8")
        show.measured(result)
        print(f"written to {file}")
    return False


class Probe:
    """Called between the rounds on every rank: ends the one that was, replays it, begins the next.

    Attributes: ``comm`` (for the bench alone, so that the run's exchanges stay as they are) and ``rounds``.
    """

    def __init__(self, exchange: MpiExchange, place: Place) -> None:
        self.exchange, self.place, self.comm = exchange, place, exchange.comm.Dup()
        self.rounds: list[Round] = []
        self._screen = sys.stdout  # the run's own lines, of a folder that is soon gone, are not shown
        self._recorder: Recorder | None = None
        self._logits = 0  # floats in a public batch's
        self._peaks = {"peak_mb": 0.0, "device_peak_mb": 0.0}
        self._begun: tuple[float, float, float] | None = None
        self._since = self._busy()

    def __call__(self, me: Participant | Server) -> None:
        """Between two rounds, before the first and after the last. Collective."""
        ended, used, waited = self._clocks()
        meet(self.comm)
        all_ended = time.perf_counter()
        if self._begun is not None:
            begun, used_before, waited_before = self._begun
            wall, cpu, waited = (
                all_ended - begun,
                used - used_before,
                waited + all_ended - ended - waited_before,
            )
            number, record = self.exchange.round, self.exchange.record
            calls = sum(count for given, count in record.items() if given.round == number)
            self.rounds.append(Round(wall=wall, cpu=cpu, waited=waited, calls=calls))
            if self.place.rank == 0:
                print(f"round {number}: {wall:.3f} s", file=self._screen, flush=True)
        if len(self.rounds) == 1:  # later the floor's memory is in the peaks too
            unit = 1e6 if sys.platform == "darwin" else 1e3
            self._peaks["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        if not isinstance(me, Server):
            self._replay(me)
        meet(self.comm)
        self._begun = self._clocks()

    def exchanged(self) -> tuple[str, int]:
        """What the first participant gave in an exchange of the last round: kind and floats. Collective.

        Logits where it gave several kinds, or none.
        """
        found = None
        if self.place.rank == 1:
            last = [given for given in self.exchange.record if given.round == self.exchange.round]
            sizes = {given.kind: given.bytes // 4 for given in last if given.shape}
            kind = max(sizes, key=lambda kind: (kind == "logits", sizes[kind]), default="logits")
            found = kind, sizes.get(kind, self._logits)
        kind, floats = self.comm.bcast(found, root=1)
        return kind, floats

    def found(self) -> dict[str, Any]:
        """All that this rank has to say."""
        first = None if self._recorder is None else self._recorder.first
        elapsed, used, cores = self._busy()
        return asdict(self.place) | {
            "elapsed": elapsed - self._since[0],
            "used": used - self._since[1],
            "busy": {core: seconds - self._since[2][core] for core, seconds in cores.items()},
            "start_up": None if first is None else first - launched(),
            "rounds": [asdict(round) for round in self.rounds],
            **self._peaks,
        }

    def _clocks(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), self.exchange.seconds_waited

    def _busy(self) -> tuple[float, float, dict[int, float]]:
        """The time, the CPU seconds of this process, and those of every core it may use, for anybody."""
        return time.perf_counter(), time.process_time(), busy_cores()

    def _replay(self, me: Participant) -> None:
        import torch

        from fccl_mpi.bench.floor import Recorder, replay, trained_images

        if self._recorder is None:
            self._recorder = Recorder(me)
            self._logits = me.config.public_batch_size * me.classes
            return
        if len(self.rounds) == 1 and me.device.type == "cuda":
            self._peaks["device_peak_mb"] = torch.cuda.max_memory_allocated(me.device) / 1e6
        round, acts = self.rounds[-1], self._recorder.acts
        round.images = trained_images(acts)
        round.floor_wall, round.floor_cpu = replay(me, acts)
        acts.clear()


def meet(comm: MPI.Intracomm) -> None:
    """A barrier whose waiting does not burn a core, and is over within a tenth of a millisecond."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(1e-4)


def time_exchanges(
    exchange: MpiExchange, comm: MPI.Intracomm, kind: str, floats: int
) -> list[dict[str, Any]]:
    """Exchanges alone, all ranks coming together, beside MPI's bare Allgatherv. Collective.

    The first is as the run makes it, ``floats`` of each participant; then come other `SIZES`, for the model.

    Returns:
        For each size ``kind``, ``bytes`` (of all together), ``repetitions``, and of both in turn the
        milliseconds until the last rank has everything, ``share_ms`` and ``bare_ms``: median and p99.
    """
    found = []
    others = [max(1, size // (4 * exchange.participants)) for size in SIZES]
    for number, size in enumerate([floats, *others]):
        first, _ = time_both(exchange, comm, kind, size, 3)
        repetitions = REPETITIONS if number == 0 else REPETITIONS_OF_OTHERS
        affordable = int(SECONDS / (2 * first.max() + 1e-6))
        times = time_both(exchange, comm, kind, size, comm.bcast(max(5, min(repetitions, affordable))))
        share, bare = (
            {"median": float(np.median(each)) * 1e3, "p99": float(np.quantile(each, 0.99)) * 1e3}
            for each in times
        )
        found.append(
            {"kind": kind, "bytes": 4 * size * exchange.participants, "repetitions": times.shape[1]}
            | {"share_ms": share, "bare_ms": bare}
        )
    return found


def time_both(
    exchange: MpiExchange, comm: MPI.Intracomm, kind: str, floats: int, repetitions: int
) -> np.ndarray:
    """Seconds (2, repetitions) until the last rank has everything: of `Exchange.share`, of Allgatherv."""
    own = np.zeros(0 if exchange.rank == 0 else floats, np.float32)
    everyone = np.empty((exchange.participants, floats), np.float32)
    counts = [0] + exchange.participants * [floats]
    times = np.empty((2, repetitions))
    for number in range(repetitions):
        comm.Barrier()
        begun = time.perf_counter()
        exchange.share(kind, own if exchange.rank else None, (floats,))
        times[0, number] = time.perf_counter() - begun
        comm.Barrier()
        begun = time.perf_counter()
        comm.Allgatherv(own, [everyone, counts])
        times[1, number] = time.perf_counter() - begun
    return np.max(comm.allgather(times), axis=0)


@contextmanager
def scratch_folder(config: Config, exchange: MpiExchange, file: Path) -> Iterator[None]:
    """Have the run write into a new folder on the file system it is meant for, gone at the end. Collective.

    Raises AgreedError where that or ``file``, which is for later, cannot be written.
    """
    out, folder, error = Path(config.out), None, None
    if exchange.rank == 0:
        try:
            refuse_unwritable(file)
            with explaining(out, "change out="):
                out.mkdir(parents=True, exist_ok=True)
                folder = tempfile.mkdtemp(prefix=".bench-", dir=out)
        except UserError as found:
            error = found
    agree(exchange, error)
    config.out = exchange.tell("folder", folder)
    try:
        yield
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # it holds runs
                out.rmdir()


def refuse_unwritable(file: Path) -> None:
    """Raise UserError where ``file`` could not be written: before anything is measured."""
    with explaining(file, "choose another --json"):
        if file.is_dir():
            raise OSError(errno.EISDIR, "")
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            pass


def busy_cores() -> dict[int, float]:
    """Seconds that each core of this process was at work since the machine started, and for whomever.

    All 0 where the system does not tell (Linux does, in /proc).
    """
    found = dict.fromkeys(own_cores(), 0.0)
    with suppress(OSError):
        for line in Path("/proc/stat").read_text().splitlines():
            name, *ticks = line.split()
            if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in found:
                user, nice, system, _, _, *interrupts = map(int, ticks[:8])  # without idle and waiting
                at_work = user + nice + system + sum(interrupts)
                found[int(name[3:])] = at_work / os.sysconf("SC_CLK_TCK")
    return found


def launched() -> float:
    """When the launcher of this process began, on the clock of `time.monotonic`.

    Where none is found among its ancestors (Linux tells them, in /proc), when the process itself did.
    """
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        process, oldest = os.getpid(), 0.0
        while process > 1:
            stat = Path(f"/proc/{process}/stat").read_text()
            name, rest = stat[stat.index("(") + 1 :].rsplit(") ", 1)
            fields = rest.split()
            if name in LAUNCHERS or not oldest:
                oldest = float(fields[19]) / os.sysconf("SC_CLK_TCK")
            process = int(fields[1])
        return time.monotonic() - (uptime - oldest)
    except OSError:
        return time.monotonic() - time.process_time()
