"""FedMatch: its loss by hand, and what becomes of σ and ψ."""

import math

import numpy as np
import pytest
import torch

from fccl_mpi.methods.base import PublicBatch
from fccl_mpi.methods.fedmatch import FedMatch
from tests.unit.methods.conftest import ME, together

LN3 = math.log(3)


def test_loss_by_hand(monkeypatch):
    # The first image is confident (9/10), the second is not; both helpers say class 1, outvoting the own 0.
    own = torch.tensor([[math.log(9), 0.0], [0.0, 0.0]])
    helper = torch.tensor([[0.0, LN3], [0.0, 0.0]])
    far = torch.tensor([[0.0, 50.0], [50.0, 0.0]])
    hard = torch.tensor([[LN3, 0.0], [7.0, 0.0]])
    monkeypatch.setattr(FedMatch, "harder", lambda self, batch: hard)
    everyone = {"logits": torch.stack([own, far, helper, helper])}
    batch = PublicBatch(me=ME, images=None, own={"logits": own}, everyone=everyone, start=None)
    consistency = 0.25 * math.log(0.25 / 0.9) + 0.75 * math.log(0.75 / 0.1)
    agreement = -math.log(1 / 4)
    expected = 0.5 * consistency + 2 * agreement
    loss = FedMatch(consistency_weight=0.5, agreement_weight=2).batch_loss(batch)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert FedMatch(confidence=0.95).batch_loss(batch).item() == 0


def test_one_participant_has_no_helpers_but_labels_of_its_own(monkeypatch):
    own = torch.tensor([[math.log(9), 0.0]])
    monkeypatch.setattr(FedMatch, "harder", lambda self, batch: own)
    batch = PublicBatch(me=ME, images=None, own={"logits": own}, everyone={"logits": own[None]}, start=None)
    assert FedMatch(agreement_weight=1).batch_loss(batch).item() == pytest.approx(-math.log(0.9))


def split(me):
    """(θ, ψ) of the only kernel."""
    return me.model.layer.weight.detach().clone(), me.companions["psi"][0].detach().clone()


def test_public_images_train_psi_and_private_ones_sigma(two):
    def work(me):
        states, method = [split(me)], me.config.method
        method.collaborate(me, 1)
        states.append(split(me))
        method.update_locally(me, {}, 1)
        states.append(split(me))
        return states

    config = two("method=fedmatch", "method.confidence=0", "method.l1_weight=0", "method.l2_weight=0")
    for (start, _), (theta, psi), (theta2, psi2) in together(config, work)[1:]:
        torch.testing.assert_close(theta - psi, start / 1.2)
        assert not torch.equal(theta, start)
        assert torch.equal(psi2, psi) and not torch.equal(theta2, theta)


def test_pull_is_that_of_plain_steps(two):
    def work(me):
        start = split(me)[0]
        me.config.method.collaborate(me, 1)
        return start, *split(me)

    config = two("method=fedmatch", "method.confidence=1", "method.l1_weight=2")  # no image is confident
    for start, theta, psi in together(config, work)[1:]:
        sigma = start.double().numpy() / 1.2
        expected = 0.2 * sigma
        for _ in range(2):  # public batches
            expected = expected - 0.001 * 10 * 2 * (expected - sigma)
        expected = np.sign(expected) * np.maximum(np.abs(expected) - 2 * 0.001 * 2, 0)
        assert (expected == 0).any()
        np.testing.assert_allclose(psi, expected, atol=1e-7)
        np.testing.assert_allclose(theta, sigma + expected, atol=1e-7)


def test_psi_is_averaged_where_the_model_is(two):
    config = two("method=fedmatch", "homogeneous=true", "homogeneous_model=linear:build")

    def work(me):
        me.config.method.collaborate(me, 1)
        return me.companions["psi"][0].detach().clone()

    exchanged, red, green = together(config, work)
    assert torch.equal(red, green)
    assert exchanged == 2 * (2 * 16 * 3 + 9) * 4
