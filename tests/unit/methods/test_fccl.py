"""FCCL's local loss by hand, its teachers, its ablations; SOLO."""

import math

import pytest
import torch

from fccl_mpi.methods.fccl import Fccl
from fccl_mpi.methods.solo import Solo

LN3 = math.log(3)
KL = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)  # of (3/4, 1/4) from (1/2, 1/2)


def test_local_loss_by_hand():
    method = Fccl(local_weight=0.5)
    logits, labels = torch.zeros(1, 2), torch.tensor([0])
    teachers = {"inter": torch.tensor([[LN3, 0.0]]), "intra": torch.tensor([[0.0, 0.0]])}
    terms = {name: value.item() for name, value in method.local_loss(logits, labels, teachers).items()}
    assert terms["ce"] == pytest.approx(math.log(2))
    assert terms["inter"] == pytest.approx(KL)
    assert terms["intra"] == pytest.approx(0)
    assert terms["local"] == pytest.approx(math.log(2) + 0.5 * KL)


def test_without_distillation_there_is_cross_entropy_alone():
    method = Fccl(distillation=False)
    terms = method.local_loss(torch.zeros(1, 2), torch.tensor([0]), {})
    assert terms["local"].item() == terms["ce"].item() == pytest.approx(math.log(2))
    assert method.teachers(None) == {}


def test_without_correlation_nothing_is_exchanged():
    assert Fccl(correlation=False).collaborate(None, 1) == {}
    assert Fccl(correlation=False).serve(None, 1) is None


def test_solo_does_nothing_unless_asked():
    assert Solo().update_locally(None, {}, 1) == {}
    assert Solo().collaborate(None, 1) == {}
