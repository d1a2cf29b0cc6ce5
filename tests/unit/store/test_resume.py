"""A run in several parts is the run in one, and a finished one is left as it is."""

import shutil
from pathlib import Path

import h5py
import pytest

from fccl_mpi.core.files import sha256_of
from fccl_mpi.models.registry import MODELS
from fccl_mpi.store.folder import RunFolder
from tests.unit.federation.test_federation import TWO, federate, numbers, weights

SMALL = ("private_size=8", "local_epochs=1", "width=0.125")
NAMES = list(MODELS)


def sizes(red: str, green: str) -> list[str]:
    """Two participants of these models, as small as they get."""
    own = {"red": red, "green": green}
    return [
        *TWO,
        *(f"participants.{name}.{setting}" for name in own for setting in SMALL),
        *(f"participants.{name}.model={model}" for name, model in own.items()),
        *("public_size=8", "public_batch_size=8", "local_batch_size=8", "test_size=8", "pretrain_epochs=1"),
    ]


@pytest.mark.parametrize(("red", "green"), list(zip(NAMES[::2], NAMES[1::2], strict=True)))
def test_four_rounds_are_two_and_two_are_one_and_three_on_every_backbone(tiny, tmp_path, red, green):
    def run(*parts: int) -> RunFolder:
        out = tmp_path / "+".join(map(str, parts))
        if (tmp_path / "4").exists():
            shutil.copytree(tmp_path / "4" / "pretrained", out / "pretrained", dirs_exist_ok=True)
        return [federate(tiny(*sizes(red, green), f"rounds={rounds}", f"out={out}")) for rounds in parts][-1]

    whole = run(4)
    for resumed in (run(2, 4), run(1, 4)):
        assert numbers(resumed) == numbers(whole) and weights(resumed) == weights(whole)


def state_of(out: Path) -> dict[Path, tuple[str, int]]:
    """Digest and time of every file but the log, which notes every start."""
    files = (path for path in out.rglob("*") if path.is_file() and path.suffix != ".log")
    return {path: (sha256_of(path), path.stat().st_mtime_ns) for path in files}


def test_a_finished_run_started_again_touches_no_file(tiny):
    config = tiny(*sizes("resnet10", "resnet12"))
    federate(config)
    before = state_of(Path(config.out))
    assert len(before) > 6
    federate(config)
    assert state_of(Path(config.out)) == before


def test_readers_may_hold_files_open_while_a_run_goes_on(tiny, tmp_path):
    def config(rounds: int, out: str = "runs"):
        return tiny(*sizes("resnet10", "resnet12"), f"rounds={rounds}", f"out={tmp_path / out}", "keep=1")

    first = federate(config(1))
    home = Path(config(1).data) / "tiny"
    paths = (home / "red.h5", home / "noise.h5", first.checkpoints.model_path(1, "red"))
    held = [h5py.File(path, "r", locking=True) for path in paths]
    with first.history.path.open() as metrics:
        metrics.readline()
        resumed, whole = federate(config(3)), federate(config(3, "whole"))
        assert numbers(resumed) == numbers(whole) and weights(resumed) == weights(whole)
    assert len(held[2]["state"]) > 10  # still there for who holds it, though pruned
    for file in held:
        file.close()
    assert first.checkpoints.rounds() == [3]
