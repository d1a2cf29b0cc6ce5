"""FML: both losses by hand, what passes between model and meme, and the meme's way through a run."""

import math

import numpy as np
import pytest
import torch

from fccl_mpi.methods.fml import Fml
from tests.unit.federation.test_federation import federate
from tests.unit.methods.conftest import together

LN3 = math.log(3)
MEME = ("method=fml", "method.meme_model=linear:build")


def test_losses_by_hand():
    own, meme = torch.tensor([[0.0, 0.0]]), torch.tensor([[LN3, 0.0]])  # 1/2, 1/2 and 3/4, 1/4
    losses = Fml(alpha=0.25, beta=0.75).mutual_losses(own, meme, torch.tensor([0]))
    from_meme = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    from_own = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert losses[0].item() == pytest.approx(0.25 * math.log(2) + 0.75 * from_meme)
    assert losses[1].item() == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * from_own)


def test_no_gradient_passes_between_them():
    own, meme = (torch.randn(4, 3, requires_grad=True) for _ in range(2))
    Fml().mutual_losses(own, meme, torch.tensor([0, 1, 2, 0]))[0].backward()
    assert own.grad.any() and meme.grad is None


def test_memes_start_alike_learn_apart_and_become_their_mean(two):
    def work(me):
        meme, method = me.companions["meme"], me.config.method
        states = [meme.layer.weight.detach().clone()]
        losses = method.update_locally(me, {}, 1)
        states.append(meme.layer.weight.detach().clone())
        method.collaborate(me, 2)
        states.append(meme.layer.weight.detach().clone())
        return losses, states, me.model.layer.weight.detach().clone()

    exchanged, (losses, red, own), (_, green, _) = together(two(*MEME), work)
    assert torch.equal(red[0], green[0]) and not torch.equal(red[1], green[1])
    torch.testing.assert_close(red[2], (red[1] + green[1]) / 2)
    assert torch.equal(red[2], green[2]) and not torch.equal(red[2], own)
    assert set(losses) == {"local", "meme"}
    assert exchanged == 2 * (3 * 3 + 3) * 4


def test_the_meme_is_as_slim_as_the_slimmest_unless_told(tiny):
    def width(*overrides):
        config = tiny("~participants.blue", "~participants.grey", "participants.red.width=0.25", *overrides)
        return together(config, lambda me: (me.config.method.collaborate(me, 1), memes(me))[1])[1]

    def memes(me):
        return me.companions["meme"].feature_width

    assert width("method=fml") < width("method=fml", "method.meme_width=1") == 1024


def test_the_meme_is_saved_with_its_model(two):
    folder = federate(two(*MEME, "rounds=1"))
    import h5py

    with h5py.File(folder.checkpoints.model_path(1, "red")) as file:
        assert {"meme:layer.weight", "meme:layer.bias", "layer.weight", "layer.bias"} == set(file["state"])
        assert not np.array_equal(file["state/meme:layer.weight"], file["state/layer.weight"])
