"""Eq. 3 to 5 against numbers worked out by hand."""

import math

import pytest
import torch

from fccl_mpi.maths.distillation import cross_entropy, kl_divergence, kl_from_scores, non_target_divergence

LN3 = math.log(3)


def test_divergence_by_hand():
    teacher, student = torch.tensor([[LN3, 0.0]]), torch.zeros(1, 2)  # 3/4, 1/4 against 1/2, 1/2
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert kl_divergence(teacher, student).item() == pytest.approx(expected)


def test_divergence_is_summed_over_classes_and_averaged_over_the_batch():
    teacher = torch.tensor([[LN3, 0.0], [0.0, 0.0]])
    expected = (0.75 * math.log(1.5) + 0.25 * math.log(0.5)) / 2
    assert kl_divergence(teacher, torch.zeros(2, 2)).item() == pytest.approx(expected)


def test_temperature_flattens_and_its_square_keeps_the_size():
    teacher, student = torch.tensor([[2 * LN3, 0.0]]), torch.zeros(1, 2)
    expected = 4 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    assert kl_divergence(teacher, student, temperature=2).item() == pytest.approx(expected)


def test_a_model_diverges_from_itself_by_nothing():
    logits = torch.tensor([[1.0, -2.0, 30.0], [0.0, 500.0, 1.0]])
    assert kl_divergence(logits, logits).item() == 0


def test_cross_entropy_by_hand():
    logits = torch.tensor([[LN3, 0.0], [0.0, 0.0]])  # p(right) = 3/4 and 1/2
    assert cross_entropy(logits, torch.tensor([0, 1])).item() == pytest.approx(-math.log(0.75 * 0.5) / 2)


def test_divergence_from_scores_is_that_from_their_logits():
    torch.manual_seed(0)
    teacher, student = torch.randn(2, 5, 3, dtype=torch.float64)
    expected = kl_divergence(teacher, student).item()
    assert kl_from_scores(teacher.softmax(1), student).item() == pytest.approx(expected)
    assert kl_from_scores(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)).item() == pytest.approx(math.log(2))


def test_divergence_of_the_classes_that_are_not_the_label():
    # softmax over all at T = 2: teacher (1/2, 1/4, 1/4), student (1/4, 1/4, 1/2); the label's term is dropped
    teacher, student = torch.tensor([[2 * math.log(2), 0, 0]]), torch.tensor([[0, 0, 2 * math.log(2)]])
    terms = [0.5 * math.log(2), 0.0, 0.25 * math.log(1 / 2)]
    for label in range(3):
        expected = 4 * (sum(terms) - terms[label])
        found = non_target_divergence(teacher, student, torch.tensor([label]), 2)
        assert found.item() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_divergence_of_the_other_classes_has_a_finite_gradient(size):
    torch.manual_seed(0)
    teacher, student = torch.randn(5, 3) * size, (torch.randn(5, 3) * size).requires_grad_()
    non_target_divergence(teacher, student, torch.tensor([0, 1, 2, 0, 1]), 3.0).backward()
    assert student.grad.isfinite().all()
