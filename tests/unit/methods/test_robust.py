"""A participant that sends garbage, and what it does to the others under each aggregate."""

import shutil
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fccl_mpi.data.schema import write_public
from fccl_mpi.federation.participant import Participant
from tests.conftest import COLOURS, draw_bars
from tests.unit.federation.test_federation import federate, numbers

NAMES = ("red", "green", "blue", "grey")


@pytest.fixture
def others_accuracy(tiny, tiny_data, tmp_path, monkeypatch):
    """Mean own-domain accuracy of red, green and blue after distilling, when grey is honest or not."""
    data = shutil.copytree(tiny_data, tmp_path / "data")
    bars = np.concatenate([draw_bars(10, colour, 3, seed=5).images for colour in COLOURS.values()])
    write_public(data / "tiny" / "noise.h5", name="bars", images=bars, source="drawn")

    def measure(aggregate: str, honest: bool) -> float:
        begin = Participant.begin_to_share
        randomness = torch.Generator().manual_seed(0)

        def garbage(me: Participant, logits: torch.Tensor, *how: object) -> Callable:
            if me.name == "grey" and not honest:
                logits = 100 * torch.randn(logits.shape, generator=randomness)
            return begin(me, logits, *how)

        models = [f"participants.{name}.model=linear:places" for name in NAMES]
        alone = [f"participants.{name}.local_epochs=0" for name in NAMES]
        with monkeypatch.context() as fault:
            fault.setattr(Participant, "begin_to_share", garbage)
            config = tiny(
                "method=feddf", f"aggregate={aggregate}", *models, *alone, "lr=0.01", "pretrain_epochs=30",
                "rounds=30", "checkpoint_every=30", f"data={data}", f"out={tmp_path / aggregate}-{honest}",
            )  # fmt: skip
            last = numbers(federate(config))[-1]
        return float(np.diagonal(last["top1"])[:3].mean())

    return measure


def test_robust_aggregates_keep_the_others_from_harm_that_the_mean_does_not(others_accuracy):
    undisturbed = others_accuracy("mean", honest=True)
    harmed = {name: others_accuracy(name, honest=False) for name in ("mean", "median", "trimmed_mean")}
    assert undisturbed > 90
    assert harmed["mean"] < undisturbed - 30, harmed
    assert min(harmed["median"], harmed["trimmed_mean"]) > harmed["mean"] + 20, harmed
