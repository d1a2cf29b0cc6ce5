"""After the last round: what figures need of a run beyond its metrics, into `diagnostics.h5`.

A function of the last models alone, so it is made whenever it is missing: after a crash, or for a finished
run that was made without it. Public logits travel once more, since some methods exchange none; all else
goes from the participant into its own file. The record of a round counts neither their bytes nor the time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fccl_mpi import maths
from fccl_mpi.data.partition import draw
from fccl_mpi.methods.features import features_of
from fccl_mpi.store.diagnostics import merge, recorded_round, write_part

if TYPE_CHECKING:
    from torch import Tensor

    from fccl_mpi.federation.participant import Participant
    from fccl_mpi.federation.server import Server

TEST_IMAGES = 2000  # of all domains together, whose features a participant keeps


def diagnose(me: Participant, run: Path) -> None:
    """A participant's part, if the server asks for it. Collective with `collect`."""
    if not me.exchange.tell("diagnostics", None):
        return
    logits = me.predict(me.public.images, me.public.normalise)
    arrays = {
        "public": correlations(logits, me.consensus(list(me.share(logits)))),
        "private": own_correlations(me),
    }
    if callable(getattr(me.model, "features", None)):
        arrays |= test_features(me)
    write_part(run, me.name, arrays)
    me.exchange.gather("diagnostics", None)


def collect(server: Server) -> None:
    """The server's part: ask where they are missing, make one file of all. Collective with `diagnose`."""
    run, config = server.folder.path, server.config
    round = server.folder.history.read()[-1]["round"]
    if not server.exchange.tell("diagnostics", config.diagnostics and recorded_round(run) != round):
        return
    server.exchange.share("logits", None, (config.public_size, server.classes))
    server.exchange.gather("diagnostics", None)
    merge(run, server.names, round=round, domains=list(dict.fromkeys(server.domains)))


def correlations(logits: Tensor, consensus: Tensor) -> np.ndarray:
    """M_i of Eq. 1, float32 (C, C); divided by B throughout, so that agreement is exactly 1."""
    matrix = maths.correlation.cross_correlation(logits, consensus, unbiased_std=False)
    return matrix.cpu().numpy()


def own_correlations(me: Participant) -> np.ndarray:
    """M_i on the private images, with the own logits in the mean's place: no other model may see them.

    Its diagonal is 1; what is off it says how far the classes are told apart.
    """
    logits = me.predict(me.private.images)
    return correlations(logits, logits)


def test_features(me: Participant) -> dict[str, np.ndarray]:
    """Features (n, F), labels and domains (n,) of at most `TEST_IMAGES`, the same for every participant."""
    import torch

    found: dict[str, list[np.ndarray]] = {"features": [], "labels": [], "domains": []}
    me.model.eval()
    for number, (domain, test) in enumerate(me.tests.items()):
        wanted = min(len(test), TEST_IMAGES // len(me.tests))
        chosen = torch.from_numpy(draw(len(test), wanted, me.config.seed, domain, "diagnostics"))
        chosen = chosen.to(me.device)
        with torch.no_grad():
            for images in test.images[chosen].split(me.config.evaluate_batch_size):
                features = features_of(me.model, me.normalise(images))
                found["features"].append(features.to("cpu", torch.float16).numpy())
        found["labels"].append(test.labels[chosen].cpu().numpy().astype(np.int16))
        found["domains"].append(np.full(wanted, number, np.int16))
    me.model.train()
    return {name: np.concatenate(parts) for name, parts in found.items()}
