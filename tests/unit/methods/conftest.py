"""Participants and a server between threads, without the course of a whole federation."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fccl_mpi.config.schema import Config
from fccl_mpi.federation.inprocess import run_in_process
from fccl_mpi.federation.participant import Participant
from fccl_mpi.federation.server import Server
from fccl_mpi.federation.voice import Voice
from fccl_mpi.maths.aggregation import mean
from fccl_mpi.store.folder import RunFolder

ME = SimpleNamespace(index=0, consensus=mean)  # as much of a participant as a loss needs


@pytest.fixture(autouse=True)
def user_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``model=linear:build`` find tests/unit/methods/linear.py."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])


@pytest.fixture
def two(tiny: Callable[..., Config]) -> Callable[..., Config]:
    """Compose scenario `tiny` with two participants of linear models."""

    def make(*overrides: str) -> Config:
        models = [f"participants.{name}.model=linear:build" for name in ("red", "green")]
        return tiny("~participants.blue", "~participants.grey", *models, *overrides)

    return make


def together(config: Config, work: Callable[[Participant], Any], round: int = 1) -> list[Any]:
    """Do ``work`` as each participant while the server serves a round; [bytes, *what it returns]."""
    names = list(config.participants)

    def seat(link: Any) -> Any:
        if link.rank > 0:
            return work(Participant(config, names[link.rank - 1], link, torch.device("cpu")))
        config.method.serve(Server(config, link, RunFolder(config), Voice(1), 3, {}), round)
        return link.bytes_exchanged.total()

    return run_in_process(seat, ["server", *names])
