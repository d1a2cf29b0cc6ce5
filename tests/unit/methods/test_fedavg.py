"""FedAvg: weights of the average, and its two places in a round."""

from pathlib import Path

import numpy as np
import pytest

from fccl_mpi.core.errors import AgreedError
from tests.unit.federation.test_federation import federate
from tests.unit.methods.conftest import together


def course(me):
    """A round; the model before it, after the collaborative part and after the local one."""
    states = [me.state()]
    states[0] = {name: value.copy() for name, value in states[0].items()}
    for step in (
        me.config.method.collaborate,
        lambda me, round: me.config.method.update_locally(me, {}, round),
    ):
        losses = step(me, 1)
        states.append({name: value.copy() for name, value in me.state().items()} | {"losses": losses})
    return states


@pytest.mark.parametrize(("weights", "red"), [("samples", 20 / 44), ("uniform", 1 / 2)])
def test_average_before_the_local_update_by_hand(two, weights, red):
    config = two("method=fedavg", "method.average=before", f"method.weights={weights}")
    exchanged, *courses = together(config, course)
    starts = [states[0]["layer.weight"].astype(float) for states in courses]
    for states in courses:
        expected = red * starts[0] + (1 - red) * starts[1]
        np.testing.assert_allclose(states[1]["layer.weight"], expected, rtol=1e-6)
        assert states[1]["losses"] == {} and states[2]["losses"]["local"] > 0
    assert not np.array_equal(courses[0][2]["layer.weight"], courses[1][2]["layer.weight"])
    assert exchanged == 2 * (3 * 3 + 3) * 4


def test_average_after_the_local_update_leaves_one_model_for_all(two):
    _, *courses = together(two("method=fedavg"), course)
    for states in courses:
        assert states[1]["losses"]["local"] > 0 and states[2]["losses"] == {}
        np.testing.assert_array_equal(states[2]["layer.weight"], courses[0][2]["layer.weight"])


def test_different_architectures_are_refused_before_anything_is_trained(tiny):
    with pytest.raises(AgreedError, match=r"have resnet10 × 0\.125, resnet12 × 0\.125: give all of them"):
        federate(tiny("~participants.blue", "~participants.grey", "method=fedavg"))
    assert not Path(tiny().out).exists()


def test_buffers_are_averaged_too(tiny):
    models = [f"participants.{name}.model=resnet10" for name in ("red", "green")]
    config = tiny("~participants.blue", "~participants.grey", *models, "method=fedavg")
    _, *courses = together(config, course)
    for name in courses[0][1].keys() - {"losses"}:
        np.testing.assert_array_equal(courses[0][1][name], courses[1][1][name])
    assert any("running_var" in name for name in courses[0][1])
