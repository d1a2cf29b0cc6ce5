"""Seeds and files."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fccl_mpi.core.files import replacing, sha256_of
from fccl_mpi.core.seeds import derive, generator


def test_seeds_depend_on_seed_and_purpose_alone():
    first = generator(0, "mnist", 3, "shuffle").permutation(100)
    generator(0, "usps", 3, "shuffle").permutation(7)  # draws elsewhere do not matter
    assert (generator(0, "mnist", 3, "shuffle").permutation(100) == first).all()
    seeds = {derive(seed, *purpose) for seed in (0, 1) for purpose in (("a",), ("b",), ("a", 1), ("a", "1x"))}
    assert len(seeds) == 8


def test_a_file_is_replaced_whole(tmp_path: Path):
    path = tmp_path / "new" / "file"
    with replacing(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    assert path.read_text() == "first"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_sha256(tmp_path: Path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_of(tmp_path / "abc").startswith("ba7816bf8f01cfea")


def test_a_signal_after_the_end_is_not_heeded():
    program = (
        "import os, signal\n"
        "from fccl_mpi.core.stopping import StopRequest\n"
        "StopRequest().ignore()\n"
        "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):\n"
        "    os.kill(os.getpid(), number)\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_under_open_mpi_a_rank_dies_with_its_launcher():
    rank = (
        "import time\n"
        "from fccl_mpi.core.stopping import die_with_launcher\n"
        "die_with_launcher()\n"
        "print('there', flush=True)\n"
        "time.sleep(60)\n"
    )
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {rank!r}])"
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": "0"}
    process = subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE, env=environment)
    assert process.stdout.readline() == b"there\n"
    process.kill()
    begun = time.monotonic()
    assert process.stdout.read() == b""  # at the rank's end, which closes the pipe
    assert time.monotonic() - begun < 5
    process.wait()
