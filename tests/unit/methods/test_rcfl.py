"""RCFL: its target against NumPy, and what it exchanges."""

import numpy as np
import pytest
import torch

from fccl_mpi.methods.base import PublicBatch
from fccl_mpi.methods.rcfl import Rcfl
from tests.unit.methods.conftest import together

K, B, C = 3, 5, 4


def softmax(logits):
    scores = np.exp(logits - logits.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def test_loss_is_that_of_numpy():
    randomness = np.random.default_rng(0)
    logits, own = randomness.normal(size=(K, B, C)), randomness.normal(size=(B, C))
    accuracies = np.array([[1.0, 0.5, 0, 0], [0, 0.5, 1, 0], [0.25, 0, 1, 0]])  # no one knows the last label

    class Me:
        index, private = 1, range(30)

        class public:
            images = range(40)

    total = 0.0
    for b in range(B):
        target = np.empty(C)
        for c in range(C):
            weights = accuracies[:, c] if accuracies[:, c].any() else np.ones(K)
            target[c] = sum(weights[k] * softmax(logits[k, b])[c] for k in range(K)) / weights.sum()
            target[c] += 30 / 40 * softmax(logits[1, b])[c]
        target /= target.sum()
        total += (target * np.log(target / softmax(own[b]))).sum() / B
    everyone = {"logits": torch.tensor(logits)}
    batch = PublicBatch(me=Me, images=None, own={"logits": torch.tensor(own)}, everyone=everyone, start=None)
    assert Rcfl().score_loss(batch, torch.tensor(accuracies)).item() == pytest.approx(total)


@pytest.mark.parametrize("exchange", ["batch", "round"])
def test_accuracies_by_label_travel_once_a_round(two, exchange):
    config = two("method=rcfl", f"exchange={exchange}")
    exchanged, *losses = together(config, lambda me: me.config.method.collaborate(me, 1))
    assert exchanged == 2 * (3 + 2 * 16 * 3) * 4
    assert all(np.isfinite(loss["collaborative"]) for loss in losses)
