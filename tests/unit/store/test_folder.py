"""A run's folder: one process at a time, one run for ever, nothing half-made."""

import errno
import fcntl
import os
import shutil
import time
from pathlib import Path

import pytest

from fccl_mpi.config.compose import to_yaml
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import ABANDONED_S, replacing
from fccl_mpi.store.folder import RunFolder


def claimed(config) -> RunFolder:
    """The folder of a run that has ended."""
    folder = RunFolder(config)
    folder.claim()
    folder.release()
    return folder


def test_a_folder_is_claimed_once_at_a_time(tiny):
    first, second = RunFolder(tiny()), RunFolder(tiny())
    first.claim()
    with pytest.raises(UserError, match="is in use by another run: wait for it, or change out="):
        second.claim()
    first.release()
    second.claim()


def test_claiming_again_touches_nothing(tiny):
    folder = claimed(tiny())
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}
    claimed(tiny())
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")} == before


def test_what_does_not_bear_on_numbers_may_change_and_is_noted(tiny):
    claimed(tiny())
    folder = claimed(tiny("rounds=7", "keep=0"))
    assert (folder.path / "config.yaml").read_text() == to_yaml(tiny("rounds=7", "keep=0"))


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["lr=0.5"], "lr=0.5 there and 0.001 now"),
        (["seed=3"], "seed=3 there and 0 now"),
        (["method=solo"], "method.name=solo there and fccl now"),
        (["participants.red.model=resnet18"], "participants.red.model=resnet18 there and resnet10 now"),
        (["~participants.grey"], r"participants=\['red', 'green', 'blue'\] there and"),
        (["public.mean=[0.1,0.2,0.3]"], r"public.mean=\[0.1, 0.2, 0.3\] there and"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_folder_of_another_run_is_refused_with_what_differs(tiny, overrides, told):
    moved, here = claimed(tiny(*overrides, "rounds=9")), RunFolder(tiny())
    here.path.parent.mkdir(parents=True, exist_ok=True)
    moved.path.rename(here.path)
    with pytest.raises(UserError, match=rf"config\.yaml is of another run \(.*{told}.*change out=") as error:
        here.claim()
    assert "rounds" not in str(error.value)
    assert (here.path / "config.yaml").read_text() == to_yaml(moved.config)


def test_the_order_of_participants_is_that_of_the_ranks(tiny):
    folder = claimed(tiny())
    config = tiny()
    config.participants = dict(reversed(config.participants.items()))
    here = RunFolder(config)
    assert here.path != folder.path
    folder.path.rename(here.path)
    with pytest.raises(UserError, match=r"\(participants=\['red', .*\] there and \['grey', .*'red'\] now\)"):
        here.claim()


@pytest.mark.parametrize("text", [b"- just\n- a list", b"{", b"\xff\xfe", b"[" * 5000, b"a: ${b", b"text"])
def test_a_config_that_cannot_be_read_is_named(tiny, text):
    folder = claimed(tiny())
    (folder.path / "config.yaml").write_bytes(text)
    with pytest.raises(UserError, match=r"config\.yaml (cannot be read|is of another run)") as error:
        RunFolder(tiny()).claim()
    assert "\n" not in str(error.value)


def with_checkpoint(config, round: int, digest: str = "") -> RunFolder:
    folder = claimed(config)
    files = dict.fromkeys(config.participants, "0")
    folder.checkpoints.commit(round, files, {"config": digest or folder.digest, "data": {}}, keep=0)
    return folder


def test_checkpoints_of_another_configuration_are_refused(tiny):
    folder = with_checkpoint(tiny(), 2, digest="another")
    (folder.path / "config.yaml").unlink()
    with pytest.raises(UserError, match="holds checkpoints of another configuration: change out="):
        RunFolder(tiny()).claim()


def test_rounds_may_grow_but_not_shrink(tiny):
    with_checkpoint(tiny("rounds=4"), 3)
    for enough in (3, 5):
        claimed(tiny(f"rounds={enough}"))
    with pytest.raises(UserError, match=r"rounds=2, but .* has 3 already: ask for as many or more"):
        RunFolder(tiny("rounds=2")).claim()


def test_what_a_killed_run_left_half_made_is_removed(tiny):
    folder = with_checkpoint(tiny(), 2)
    left = [
        folder.checkpoints.folder / "round_0002" / ".red.h5.abc.part",
        folder.path / ".config.yaml.abc.part",
        folder.checkpoints.model_path(3, "red"),
    ]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    claimed(tiny())
    assert not any(path.exists() for path in left)
    assert not (folder.checkpoints.folder / "round_0003").exists()
    assert folder.checkpoints.rounds() == [2]


def test_beside_files_that_runs_share_only_old_leftovers_are_removed(tmp_path: Path):
    old, new = tmp_path / ".model.h5.old.part", tmp_path / ".model.h5.new.part"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 2 * ABANDONED_S,) * 2)
    with replacing(tmp_path / "model.h5") as temporary:
        temporary.touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, "model.h5"]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_where_files_cannot_be_locked_a_run_goes_on_with_a_warning(tiny, monkeypatch, number):
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.warns(UserWarning, match="lies where files cannot be locked: never start this run twice"):
        claimed(tiny())


def test_an_out_that_cannot_be_written_is_named(tiny, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written \(Not a directory\): change out="):
        RunFolder(tiny(f"out={tmp_path / 'file'}")).claim()
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
