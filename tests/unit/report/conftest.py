"""Small run folders, made by hand: the paper's four digit domains, two rounds."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

from fccl_mpi.store.diagnostics import merge, write_part

NAMES = ("mnist", "usps", "svhn", "syn")
MakeRun = Callable[..., Path]

CONFIG = {
    "scenario": "digits",
    "task": "digits",
    "preset": "none",
    "participants": {name: {"domain": name, "model": "resnet10", "width": 1.0} for name in NAMES},
    "public": {"name": "cifar100", "file": "public/cifar100.h5", "mean": [0.5] * 3, "std": [0.25] * 3},
    "exchange": "batch",
    "homogeneous": False,
    "lr": 0.001,
    "public_size": 5000,
}
FCCL = {
    "name": "fccl",
    "public_optimizer": "batch",
    "off_diag_weight": 0.0051,
    "local_weight": 1.0,
    "temperature": 1.0,
    "own_entry": "previous",
    "unbiased_std": True,
    "correlation": True,
    "distillation": True,
}
SOLO = {"name": "solo", "keep_training": False}


def matrix(intra: list[float], others: list[float]) -> list[list[float]]:
    """Accuracies: each participant's own of ``intra``, and on every other domain its own of ``others``."""
    found = np.repeat(np.array(others, float)[:, None], len(others), axis=1)
    np.fill_diagonal(found, intra)
    return found.tolist()


def line(round: int, top1: list[list[float]], sent: int = 1000, loss: float = 0.5) -> dict:
    """A round as the server writes it."""
    each = dict.fromkeys(NAMES, 0.25)
    return {
        "round": round,
        "top1": top1,
        "top5": None,
        "loss": {name: {"local": loss} if round else {} for name in NAMES},
        "seconds": {"wall": 2.0, "collaborate": each, "local": each, "evaluate": each, "exchange": each},
        "bytes_exchanged": sent if round else 0,
    }


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """``make_run(method, seed, matrices of rounds 0, 1, ..., **changes to the config)``."""

    return partial(write_run, tmp_path / "runs")


def write_run(out: Path, method: dict, seed: int, matrices: list, **config: object) -> Path:
    """Write one run folder below ``out``."""
    number = len(list(out.iterdir())) if out.exists() else 0
    path = out / f"run-{number:03d}"
    path.mkdir(parents=True)
    text = yaml.safe_dump({**CONFIG, "method": method, "seed": seed, "rounds": 2, **config}, sort_keys=False)
    (path / "config.yaml").write_text(text)
    lines = [json.dumps(line(round, top1)) + "\n" for round, top1 in enumerate(matrices)]
    (path / "metrics.jsonl").write_text("".join(lines))
    return path


def add_diagnostics(run: Path, classes: int = 4, images: int = 40) -> None:
    """Diagnostics whose matrices and features are known: M is 1 on the diagonal, −0.5 off it."""
    randomness = np.random.default_rng(0)
    labels = np.tile(np.arange(classes, dtype=np.int16), images * len(NAMES) // classes)
    for name in NAMES:
        correlation = np.where(np.eye(classes, dtype=bool), 1, -0.5).astype(np.float32)
        features = np.eye(classes)[labels] * 9 + randomness.normal(size=(len(labels), classes))
        write_part(
            run,
            name,
            {
                "public": correlation,
                "private": correlation,
                "features": features.astype(np.float16),
                "labels": labels,
                "domains": np.repeat(np.arange(len(NAMES), dtype=np.int16), images),
            },
        )
    merge(run, NAMES, round=2, domains=NAMES)
