"""Launchers, and ranks that do not fit together."""

import subprocess
import sys

import pytest

from fccl_mpi.core.errors import UserError
from fccl_mpi.federation.preflight import Card, compare
from fccl_mpi.federation.world import Place, check_size, launch_of, speaks

NAMES = ["a", "b"]


def test_launchers_are_told_apart_by_the_environment():
    assert launch_of({}) is None
    assert launch_of({"PMI_RANK": "2", "PMI_SIZE": "5"}) == ("MPICH's mpirun or srun --mpi=pmi2", 2, 5)
    assert launch_of({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}) == (
        "Open MPI's mpirun",
        0,
        3,
    )
    inside_a_job = {"PMI_RANK": "1", "PMI_SIZE": "5", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    assert launch_of(inside_a_job).size == 5  # SLURM counts mpirun's proxy, not the ranks


def test_only_one_of_many_speaks_before_mpi_is_there():
    assert speaks({}) and speaks({"PMI_RANK": "0", "PMI_SIZE": "5"})
    assert not speaks({"PMI_RANK": "1", "PMI_SIZE": "5"})


def test_sizes():
    check_size(3, NAMES, {})
    check_size(3, NAMES, {"PMI_RANK": "0", "PMI_SIZE": "3"})
    with pytest.raises(UserError, match=r"only one process was started.*mpirun -n 3 python -m fccl_mpi\.run"):
        check_size(1, NAMES, {})
    with pytest.raises(UserError, match="5 ranks were started, but the server and a, b need 3"):
        check_size(5, NAMES, {"PMI_RANK": "0", "PMI_SIZE": "5"})
    with pytest.raises(UserError, match="Open MPI's mpirun started 3 processes, but MPI sees 1"):
        check_size(1, NAMES, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("config", "the configuration's digest"),
        ("versions", "software versions"),
        ("public", "the public set's digest"),
    ],
)
def test_ranks_that_differ_stop_together(key: str, message: str):
    def card(rank: int, **changed: str) -> Card:
        place = Place(rank=rank, who=f"p{rank}", host="here", device="cpu", threads=1)
        return Card(
            **{
                "place": place,
                "config": "c",
                "versions": "v",
                "cores": "core 0",
                "public": "p",
                "class_names": ("x",),
                **changed,
            }
        )

    server = Card(
        place=Place(rank=0, who="server", host="here", device="no device", threads=1),
        config="c",
        versions="v",
        cores="core 0",
    )
    compare([server, card(1), card(2)])
    with pytest.raises(
        UserError, match=rf"rank 2 \(p2, here\) and rank 1 \(p1, here\) differ in {message}: z"
    ):
        compare([server, card(1), card(2, **{key: "z"})])


FREED_MEMORY = """
import ctypes, resource
from fccl_mpi.federation.world import keep_freed_memory

libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

def faults(size: int) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    taken = libc.malloc(size)
    libc.memset(taken, 1, size)
    libc.free(taken)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

sizes = 1 << 20, 1 << 26, 1 << 28
given_back = [faults(size) for size in sizes for _ in range(2)][1::2]
keep_freed_memory()
kept = [faults(size) for size in sizes for _ in range(2)][1::2]
print(*given_back, *kept)
"""


def test_the_pages_of_freed_memory_are_kept_also_of_large_pieces():
    done = subprocess.run([sys.executable, "-c", FREED_MEMORY], capture_output=True, text=True, check=True)
    *given_back, mega, many, most = map(int, done.stdout.split())
    assert max(mega, many, most) < 50 and given_back[-1] > 10_000


def test_a_rank_that_failed_does_not_go_on_where_the_abort_returns():
    program = (
        "from types import SimpleNamespace\n"
        "from fccl_mpi.federation.world import ending_together\n"
        "comm = SimpleNamespace(rank=0, Abort=lambda code: print('abort', code, flush=True))\n"
        "with ending_together(comm, 'server'):\n"
        "    raise KeyError('a bug')\n"
        "print('went on')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "abort 1\n")
    assert done.stderr.count("Traceback") == 1 and "rank 0 (server) failed" in done.stderr
