"""Exported weights are those of the run, for anyone who has the model."""

import sys

import numpy as np
import pytest
import safetensors.torch
import torch

from fccl_mpi import export
from fccl_mpi.federation.participant import Participant
from fccl_mpi.models.registry import build
from fccl_mpi.store.checkpoint import read_model
from tests.unit.federation.test_federation import TWO, federate


class Alone:
    """As much of an exchange as a participant needs to be made."""

    participants, rank, seconds_waited = 2, 1, 0.0


LOADERS = {
    "safetensors": safetensors.torch.load_file,
    "pt": lambda path: torch.load(path, weights_only=True),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_data):
    """Two rounds of `fml`, whose participants have two networks each."""
    from fccl_mpi.config.compose import compose
    from fccl_mpi.methods.registry import METHODS
    from tests.conftest import PRESETS

    own = ["scenario=tiny", f"data={tiny_data}", f"out={tmp_path_factory.mktemp('runs')}", "method=fml", *TWO]
    return federate(compose(own, methods=METHODS, config_dir=PRESETS))


@pytest.mark.parametrize("format", LOADERS)
def test_an_exported_model_gives_the_logits_of_the_runs(run, tmp_path, capsys, format):
    assert export.main([str(run.path), "--out", str(tmp_path), "--format", format]) == 0
    names = {f"{who}{companion}.{format}" for who in ("red", "green") for companion in ("", ".meme")}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert set(capsys.readouterr().out.split()) == {str(tmp_path / name) for name in names}

    me = Participant(run.config, "red", Alone(), torch.device("cpu"))
    me.load_whole(read_model(run.checkpoints.model_path(2, "red"), like=me.whole_state()))
    images = torch.rand(4, 3, 32, 32)
    own = run.config.participants["red"]
    for name, model, network in (
        (f"red.{format}", own.model, me.model),
        (f"red.meme.{format}", run.config.method.meme_model, me.companions["meme"]),
    ):
        fresh = build(model, classes=3, width=own.width)
        fresh.load_state_dict(LOADERS[format](tmp_path / name))
        fresh = fresh.to(memory_format=torch.channels_last)  # rounding depends on it
        with torch.no_grad():
            assert torch.equal(fresh.eval()(images), network.eval()(images))


def test_an_older_checkpoint_by_its_round(run, tmp_path):
    for round in (1, 2):
        export.main([str(run.path), "--out", str(tmp_path / str(round)), "--round", str(round)])
    first, second = (safetensors.torch.load_file(tmp_path / r / "red.safetensors") for r in "12")
    stored = read_model(run.checkpoints.model_path(1, "red"))
    assert all(np.array_equal(first[name], stored[name]) for name in first)
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_what_cannot_be_exported_is_told_in_one_sentence(run, tmp_path, capsys, monkeypatch):
    assert export.main([str(tmp_path)]) == 2
    assert f"{tmp_path} holds no intact checkpoint: name the folder of a run" in capsys.readouterr().err
    assert export.main([str(run.path), "--round", "9"]) == 2
    assert "round 9 cannot be exported" in (told := capsys.readouterr().err)
    assert "checkpoints kept: 1, 2" in told
    (tmp_path / "file").touch()
    assert export.main([str(run.path), "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    assert export.main([str(run.path), "--out", str(tmp_path / "out")]) == 2
    assert 'pip install "fccl_mpi[export]", or --format pt' in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())
