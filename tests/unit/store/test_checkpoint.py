"""Checkpoints: committed, pruned, and refused with a reason where they are damaged."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fccl_mpi.core.errors import UserError
from fccl_mpi.store.checkpoint import COMMIT, Checkpoints, read_model, write_model

STATE = {"conv.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "steps": np.array(7)}


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """Rounds 1 to 3 of two participants."""
    found = Checkpoints(tmp_path / "checkpoints", ["red", "green"])
    for round in (1, 2, 3):
        write(found, round)
    return found


def write(checkpoints: Checkpoints, round: int, keep: int = 0) -> None:
    files = {
        name: write_model(checkpoints.model_path(round, name), STATE, {"participant": name})
        for name in ("red", "green")
    }
    checkpoints.commit(round, files, {"config": "c", "data": {"red": "d"}}, keep)


def test_a_model_comes_back_as_it_was(tmp_path: Path):
    write_model(tmp_path / "m.h5", STATE, {"participant": "red"})
    for like in (STATE, None, dict(reversed(STATE.items()))):
        found = read_model(tmp_path / "m.h5", like)
        assert found.keys() == STATE.keys()
        assert all(found[name].dtype == STATE[name].dtype for name in STATE)
        assert all(np.array_equal(found[name], STATE[name]) for name in STATE)


@pytest.mark.parametrize(
    ("like", "reason"),
    [
        ({"steps": np.array(7)}, r"its tensors are other ones \(conv.weight ...\)"),
        (STATE | {"steps": np.array(7.0)}, r"steps is int64 \(\), not float64 \(\)"),
        (STATE | {"conv.weight": np.zeros((3, 2), np.float32)}, r"float32 \(2, 3\), not float32 \(3, 2\)"),
    ],
)
def test_a_model_of_another_architecture_is_refused(tmp_path: Path, like, reason):
    write_model(tmp_path / "m.h5", STATE, {"participant": "red"})
    with pytest.raises(UserError, match=rf"m\.h5 cannot serve as this model: .*{reason}"):
        read_model(tmp_path / "m.h5", like)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda commit: [], "it names no round"),
        (lambda commit: commit | {"round": "3"}, "it names no round"),
        (lambda commit: commit | {"round": 2}, "it is of round 2"),
        (lambda commit: commit | {"files": None}, "its files are missing"),
        (lambda commit: commit | {"data": {"red": 1}}, "its data are missing"),
        (
            lambda commit: commit | {"files": {"../round_0002/red": "0"}},
            "it names files outside of its folder",
        ),
        (lambda commit: commit | {"files": {"red": commit["files"]["red"]}}, "its models are those of red"),
        (lambda commit: commit | {"files": commit["files"] | {"red": "0"}}, "does not match its sha256"),
    ],
)
def test_a_damaged_commit_is_named_and_the_one_before_serves(checkpoints, change, reason):
    path = checkpoints.folder / "round_0003" / COMMIT
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    told = []
    round, commit = checkpoints.newest_intact(told.append)
    assert round == commit["round"] == 2
    assert len(told) == 1 and reason in told[0] and "round_0003" in told[0]


def test_a_round_that_was_moved_is_none(checkpoints):
    shutil.copytree(checkpoints.folder / "round_0003", checkpoints.folder / "round_0009")
    assert checkpoints.newest_intact()[0] == 3


def test_only_what_was_committed_is_kept(checkpoints):
    write_model(checkpoints.model_path(4, "red"), STATE, {})
    (checkpoints.folder / "round_0004" / ".green.h5.x.part").touch()
    checkpoints.remove_unfinished()
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == [
        "round_0001",
        "round_0002",
        "round_0003",
    ]


def test_a_damaged_newer_checkpoint_does_not_push_out_the_one_just_made(checkpoints):
    checkpoints.model_path(3, "red").unlink()
    assert checkpoints.newest_intact()[0] == 2
    write(checkpoints, 2, keep=1)
    assert checkpoints.newest_intact()[0] == 2 and checkpoints.rounds() == [2]
