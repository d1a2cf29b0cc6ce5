"""Ranks and roles: who this process is, where it computes, and how it ends.

Nothing here imports torch at the top: the server never needs it, and a signal must find the program
in control of itself before seconds of imports begin.
"""

import ctypes
import os
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from fccl_mpi.config.schema import Config
from fccl_mpi.core.cores import own_cores
from fccl_mpi.core.errors import AgreedError, UserError
from fccl_mpi.federation.exchange import Exchange, agree
from fccl_mpi.federation.placement import choose_device, choose_threads

if TYPE_CHECKING:
    import torch
    from mpi4py import MPI

LAUNCHERS = {  # how each launcher tells a process its rank and how many there are
    "MPICH's mpirun or srun --mpi=pmi2": ("PMI_RANK", "PMI_SIZE"),
    "Open MPI's mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
}


class Launch(NamedTuple):
    """What the environment says about the start of this process, before MPI is asked."""

    launcher: str
    rank: int
    size: int


def launch_of(environment: Mapping[str, str]) -> Launch | None:
    """The launcher that started this process, or None."""
    for launcher, (rank, size) in LAUNCHERS.items():
        if rank in environment and size in environment:
            return Launch(launcher, int(environment[rank]), int(environment[size]))
    return None


def speaks(environment: Mapping[str, str]) -> bool:
    """Whether this process may speak before MPI is there: one of all that were started together."""
    launch = launch_of(environment)
    return launch is None or launch.rank == 0


def check_size(
    size: int, participants: list[str], environment: Mapping[str, str], program: str = "fccl_mpi.run"
) -> None:
    """Raise UserError unless ``size`` ranks are one server and a rank for each participant.

    A launcher of another MPI starts processes that do not find each other, each a world of its own of
    size 1: that is told by what the launcher says in the environment.
    """
    needed = len(participants) + 1
    launch = launch_of(environment)
    if launch is not None and launch.size != size:
        raise UserError(
            f"{launch.launcher} started {launch.size} processes, but MPI sees {size}: the launcher does not "
            f"fit this Python's MPI ({mpi_library()}); use that MPI's mpirun, or srun with an --mpi= it knows"
        )
    if size != needed:
        names = ", ".join(participants)
        start = f"start with: mpirun -n {needed} python -m {program}"
        if size == 1:
            raise UserError(
                f"only one process was started, but the server and {names} need one each; {start}"
            )
        raise UserError(f"{size} ranks were started, but the server and {names} need {needed}; {start}")


def keep_freed_memory() -> None:
    """Have glibc keep the pages of freed activations instead of returning them to the kernel.

    A training step frees and asks for the same megabytes again and again. By default glibc maps and unmaps
    each of them, and every page faults in anew: half of the CPU time of a wide model's step. The price is
    a heap larger than what is in use at a time, since small pieces between large ones keep these from being
    joined again. So small ones are not set aside when freed; but the half of that which glibc does by
    thread is only to be had before a program starts, as ``GLIBC_TUNABLES=glibc.malloc.tcache_count=0``.
    """
    fastbins_up_to, trim_threshold, top_pad, mmap_max = 1, -1, -2, -4  # M_* of malloc.h
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return  # another C library, with other habits
    mallopt(mmap_max, 0)
    mallopt(trim_threshold, -1)  # never
    mallopt(top_pad, 1 << 26)
    mallopt(fastbins_up_to, 0)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank is: shown in a run's first lines, and compared before round 1."""

    rank: int
    who: str
    host: str
    device: str
    threads: int

    @property
    def address(self) -> str:
        """What to call the rank in messages."""
        return f"rank {self.rank} ({self.who}, {self.host})"


def join(config: Config, comm: "MPI.Intracomm", exchange: Exchange) -> tuple[Place, "torch.device | None"]:
    """Take this rank's role, threads and device (None on the server). Collective.

    Raises AgreedError where ``device=cuda`` and some rank has no GPU.
    """
    who = ["server", *config.participants][comm.rank]
    warnings.formatwarning = lambda text, *_, **__: f"rank {comm.rank} ({who}): warning: {text}\n"
    cores = own_cores()
    here = {rank: theirs for rank, theirs in _on_this_node(comm, cores) if rank > 0}
    threads = choose_threads(config.threads, cores, here.values(), os.environ)
    device, error = None, None
    if comm.rank > 0:
        import torch

        keep_freed_memory()
        torch.set_num_threads(threads)
        try:
            device = choose_device(config.device, list(here).index(comm.rank))
        except UserError as found:
            error = found
    agree(exchange, error)
    if device is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    return Place(
        rank=comm.rank,
        who=who,
        host=socket.gethostname(),
        device=str(device or "no device"),
        threads=threads if comm.rank else 1,
    ), device


def mpi_library() -> str:
    """Name and version of the MPI library in use, such as "MPICH 5.0.2"."""
    from mpi4py import MPI

    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def load_mpi() -> "MPI.Intracomm":
    """MPI's world communicator. Raises UserError where mpi4py finds no MPI library."""
    # mpi4py's warning of another MPI's launcher: `check_size` says it in one sentence
    warnings.filterwarnings("ignore", message="suspicious MPI execution environment")
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UserError(
            f"mpi4py cannot load an MPI library ({str(error).splitlines()[0]}): load the site's MPI module, "
            'or install one with pip install "fccl_mpi[mpich]"'
        ) from error
    return MPI.COMM_WORLD


@contextmanager
def ending_together(comm: "MPI.Intracomm", who: str) -> Iterator[None]:
    """End the whole job when this rank fails, since the others would wait in a collective for ever.

    A UserError is told in one sentence and aborts with exit code 2, anything else with its traceback
    and exit code 1. An AgreedError passes: every rank raises it, so each can end by itself.
    """
    try:
        yield
    except AgreedError:
        raise
    except UserError as error:
        _last_words(comm, f"rank {comm.rank} ({who}): {error}\n", 2)
    except BaseException:
        _last_words(comm, f"rank {comm.rank} ({who}) failed:\n{traceback.format_exc()}", 1)


def _last_words(comm: "MPI.Intracomm", words: str, code: int) -> NoReturn:
    sys.stderr.write(f"fccl_mpi: {words}")
    sys.stderr.flush()
    sys.stdout.flush()
    time.sleep(0.5)  # Open MPI's launcher drops what it has not passed on when the abort comes
    comm.Abort(code)
    os._exit(code)  # MPICH's abort may return before its launcher has ended this process


def _on_this_node(comm: "MPI.Intracomm", cores: set[int]) -> list[tuple[int, set[int]]]:
    """World rank and cores of each process on this node, in the order of ranks."""
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return sorted(node.allgather((comm.rank, cores)))
    finally:
        node.Free()
