"""FedDF: its distillation by hand, and averages within groups of one architecture."""

import math

import numpy as np
import pytest
import torch

from fccl_mpi.methods.feddf import FedDf
from tests.unit.methods.conftest import ME, together

LN3 = math.log(3)


def test_distillation_from_the_mean_of_logits_by_hand():
    own, other = torch.tensor([[0.0, 0.0]]), torch.tensor([[2 * LN3, 0.0]])  # mean: 3/4 and 1/4
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert FedDf().public_loss(own, torch.stack([own, other]), None, ME).item() == pytest.approx(expected)


@pytest.mark.parametrize("grouped", ["true", "false"])
def test_groups_of_one_architecture_are_averaged_by_their_images(tiny, grouped):
    models = [f"participants.{name}.model=linear:build" for name in ("red", "green", "blue")]
    config = tiny(
        "~participants.grey", *models, "participants.blue.width=0.5", "method=feddf",
        f"method.average_groups={grouped}", "lr=1e-30",
    )  # fmt: skip

    def work(me):
        before = me.state()["layer.weight"].copy()
        me.config.method.collaborate(me, 1)  # whose steps lr makes next to nothing
        return before, me.state()["layer.weight"].copy()

    exchanged, red, green, blue = together(config, work)
    mean = (20 * red[0] + 24 * green[0]) / 44
    for before, after in (red, green):
        np.testing.assert_allclose(after, mean if grouped == "true" else before, rtol=1e-5)
    np.testing.assert_array_equal(*blue)
    assert exchanged == 3 * 2 * 16 * 3 * 4 + (2 * 12 * 4 if grouped == "true" else 0)
