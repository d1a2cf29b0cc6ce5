"""Seeds and files."""

import os
import stat
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
