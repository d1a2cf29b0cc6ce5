"""One whole public step of FCCL against an independent calculation in NumPy, double precision."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fccl_mpi.federation.inprocess import run_in_process
from fccl_mpi.federation.participant import Participant
from fccl_mpi.federation.server import Server
from fccl_mpi.federation.voice import Voice
from fccl_mpi.store.folder import RunFolder

CPU = torch.device("cpu")
LR, WEIGHT, K, B, C = 0.001, 0.0051, 2, 16, 3


def loss_of(weight, bias, colours, mean_of, unbiased):
    """L_Col, Eq. 1 and 2, of a linear model on mean colours (B, 3)."""
    own, mean = colours @ weight.T + bias, mean_of(colours)
    ddof = 1 if unbiased else 0
    own, mean = ((z - z.mean(0)) / z.std(0, ddof=ddof) for z in (own, mean))
    matrix = own.T @ mean / B
    target = 2 * np.eye(C) - 1
    return (np.where(np.eye(C, dtype=bool), 1, WEIGHT) * (target - matrix) ** 2).sum()


def numerical_gradient(function, array):
    """Central differences."""
    gradient = np.empty_like(array)
    for place in np.ndindex(array.shape):
        up, down = array.copy(), array.copy()
        up[place] += 1e-6
        down[place] -= 1e-6
        gradient[place] = (function(up) - function(down)) / 2e-6
    return gradient


@pytest.mark.parametrize("exchange", ["batch", "round"])
@pytest.mark.parametrize("own_entry", ["previous", "current"])
@pytest.mark.parametrize("optimizer", ["batch", "round"])
def test_public_steps_are_those_of_numpy(tiny, monkeypatch, exchange, own_entry, optimizer):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    unbiased = optimizer == "batch"
    config = tiny(
        "~participants.blue", "~participants.grey", "participants.red.model=linear:build",
        "participants.green.model=linear:build", f"exchange={exchange}", f"method.own_entry={own_entry}",
        f"method.public_optimizer={optimizer}", f"method.unbiased_std={str(unbiased).lower()}",
        f"public_batch_size={B}", "public_size=40",
    )  # fmt: skip
    before, after, colours = [None] * K, [None] * K, [None] * K

    def work(link):
        if link.rank == 0:
            server = Server(config, link, RunFolder(config), Voice(1), C, {})
            config.method.serve(server, 1)
            return link.bytes_exchanged.total()
        me = Participant(config, ["red", "green"][link.rank - 1], link, CPU)
        before[me.index] = {name: value.astype(np.float64) for name, value in me.state().items()}
        batches = me.public.batches_of(1)
        colours[me.index] = [me.public.normalise(x).double().mean((2, 3)).numpy() for x in batches]
        losses = config.method.collaborate(me, 1)
        after[me.index] = me.state()
        return losses["collaborative"]

    exchanged, *losses = run_in_process(work, ["server", *config.participants])
    assert exchanged == K * 2 * B * C * 4
    assert all((a == b).all() for a, b in zip(*colours, strict=True)), "all see the same public images"

    models = [(state["layer.weight"], state["layer.bias"]) for state in before]
    start = list(models)
    moments = [[(np.zeros_like(p), np.zeros_like(p)) for p in model] for model in models]
    sums = [0.0] * K
    for step, batch in enumerate(colours[0], start=1):
        given = start if exchange == "round" else list(models)
        stepped = []
        for i, model in enumerate(models):

            def mean_of(x, i=i, given=given):
                entries = list(given)
                if own_entry == "previous":
                    entries[i] = start[i]
                return sum(x @ w.T + b for w, b in entries) / K

            sums[i] += loss_of(*model, batch, mean_of, unbiased)
            gradients = [
                numerical_gradient(
                    lambda w, m=model, x=batch: loss_of(w, m[1], x, mean_of, unbiased), model[0]
                ),
                numerical_gradient(
                    lambda b, m=model, x=batch: loss_of(m[0], b, x, mean_of, unbiased), model[1]
                ),
            ]
            t = step
            if optimizer == "batch":
                moments[i], t = [(np.zeros_like(p), np.zeros_like(p)) for p in model], 1
            new = []
            for p, (parameter, g) in enumerate(zip(model, gradients, strict=True)):
                first, second = moments[i][p]
                first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
                moments[i][p] = first, second
                new.append(
                    parameter - LR * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
                )
            stepped.append(tuple(new))
        models = stepped
    for i in range(K):
        assert losses[i] == pytest.approx(sums[i] / 2, rel=1e-4)
        np.testing.assert_allclose(after[i]["layer.weight"], models[i][0], atol=2e-6)
        assert not np.allclose(after[i]["layer.weight"], before[i]["layer.weight"], atol=1e-4), "it moved"
