"""FCCL+: its public loss against NumPy, its local one by hand, its bytes, and models without features."""

import math

import numpy as np
import pytest
import torch

from fccl_mpi.core.errors import AgreedError
from fccl_mpi.methods.base import PublicBatch
from fccl_mpi.methods.fccl_plus import FcclPlus
from fccl_mpi.methods.features import features_and_logits
from fccl_mpi.models.registry import build
from tests.unit.federation.test_federation import federate
from tests.unit.methods.conftest import ME, together

K, B, C, F = 3, 6, 4, 5


def cosines(features):
    """(B, B - 1), entry by entry."""
    rows = []
    for b in range(B):
        others = [o for o in range(B) if o != b]
        rows.append(
            [
                features[b] @ features[o] / np.sqrt((features[b] ** 2).sum() * (features[o] ** 2).sum())
                for o in others
            ]
        )
    return np.array(rows)


def softmax(logits):
    scores = np.exp(logits - logits.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def test_public_loss_is_that_of_numpy():
    randomness = np.random.default_rng(0)
    logits, features = randomness.normal(size=(K, B, C)), randomness.normal(size=(K, B, F))
    similarities = np.stack([cosines(of_one) for of_one in features])
    standard = [(z - z.mean(0)) / z.std(0, ddof=1) for z in (logits[0], logits.mean(0))]
    matrix = standard[0].T @ standard[1] / B
    correlation = sum(
        (1 - matrix[u, v]) ** 2 if u == v else 0.0051 * (1 + matrix[u, v]) ** 2
        for u in range(C)
        for v in range(C)
    )
    target, own = softmax(similarities.mean(0) / 0.02), softmax(similarities[0] / 0.02)
    expected = correlation + 3 * (target * np.log(target / own)).sum() / B

    from fccl_mpi.maths.similarity import similarities as of_features

    everyone = {"logits": torch.tensor(logits), "similarities": torch.tensor(similarities)}
    mine = {"logits": torch.tensor(logits[0]), "similarities": of_features(torch.tensor(features[0]))}
    batch = PublicBatch(me=ME, images=None, own=mine, everyone=everyone, start=None)
    assert FcclPlus().batch_loss(batch).item() == pytest.approx(expected)


def test_local_loss_by_hand():
    # At T = 2: teacher (1/2, 1/4, 1/4), student (1/3, 1/3, 1/3); the target is the first class.
    teacher, student = torch.tensor([[2 * math.log(2), 0.0, 0.0]]), torch.zeros(1, 3)
    terms = FcclPlus(temperature=2).local_loss(student, torch.tensor([0]), {"previous": teacher})
    non_target = 4 * 2 * 0.25 * math.log(3 / 4)
    assert terms["non_target"].item() == pytest.approx(non_target)
    assert terms["ce"].item() == pytest.approx(math.log(3))
    assert terms["local"].item() == pytest.approx(math.log(3) + non_target)


def test_at_a_temperature_of_c_even_scores_are_where_the_local_loss_rests():
    def pull(temperature):
        logits = torch.zeros(1, 3, requires_grad=True)
        method = FcclPlus(temperature=temperature)
        method.local_loss(logits, torch.tensor([0]), {"previous": torch.zeros(1, 3)})["local"].backward()
        return -logits.grad[0, 0].item()

    assert pull(1) > pull(2) > 0 and pull(3) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("exchange", ["batch", "round"])
def test_bytes_are_those_of_the_docstring(two, exchange):
    config = two("method=fccl_plus", f"exchange={exchange}")
    exchanged, *losses = together(config, lambda me: me.config.method.collaborate(me, 1))
    k, s, b, c = 2, 2, 16, 3
    assert exchanged == 4 * k * s * b * (c + b - 1)
    assert all(np.isfinite(loss["collaborative"]) for loss in losses)


def test_what_is_exchanged_once_a_round_is_what_each_model_said_of_each_batch(two):
    def work(me):
        method = me.config.method
        batches = me.public.batches_of(1)
        with torch.no_grad():
            said = [method.outputs(me.public.normalise(images), me)["similarities"] for images in batches]
        seen = []
        method.learn_publicly(me, 1, lambda batch: (seen.append(batch), method.batch_loss(batch))[1])
        return said, [batch.everyone["similarities"] for batch in seen]

    _, *results = together(
        two("method=fccl_plus", "exchange=round"), work
    )  # linear: no dropout, no BatchNorm
    said = [of_one for of_one, _ in results]
    for _, seen in results:
        for step in range(2):
            torch.testing.assert_close(seen[step], torch.stack([of_one[step] for of_one in said]))


def test_one_pass_gives_what_two_give():
    model = build("resnet10", classes=3, width=0.125)
    images = torch.randn(4, 3, 32, 32)
    features, logits = features_and_logits(model, images)
    torch.testing.assert_close(features, model.features(images))
    torch.testing.assert_close(logits, model(images))


def test_a_model_without_features_is_told_before_the_run(two):
    with pytest.raises(AgreedError, match=r"participants\.red\.model=linear:blind has no method features"):
        federate(two("method=fccl_plus", "participants.red.model=linear:blind"))
