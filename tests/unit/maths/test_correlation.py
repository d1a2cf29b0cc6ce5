"""Eq. 1 and 2 against numbers worked out by hand."""

import pytest
import torch

from fccl_mpi.maths.correlation import cross_correlation, cross_correlation_loss

# Deviations from the column means: own (-1, 0, 1) and (0, 1, -1), mean (-1, 0, 1) and (1, -1, 0); every
# column's squares sum to 2. Products: 11 -> 2, 12 -> -1, 21 -> -1, 22 -> -1.
OWN = torch.tensor([[1.0, 0.0], [2.0, 1.0], [3.0, -1.0]])
MEAN = torch.tensor([[1.0, 2.0], [2.0, 0.0], [3.0, 1.0]])


def test_matrix_with_deviation_over_b_has_entries_up_to_one():
    matrix = cross_correlation(OWN, MEAN, unbiased_std=False)
    torch.testing.assert_close(matrix, torch.tensor([[1.0, -0.5], [-0.5, -0.5]]))


def test_matrix_as_released_has_a_perfect_diagonal_of_b_minus_1_over_b():
    matrix = cross_correlation(OWN, MEAN, unbiased_std=True)
    torch.testing.assert_close(matrix, torch.tensor([[2.0, -1.0], [-1.0, -1.0]]) / 3)


def test_loss_pulls_the_diagonal_to_one_and_the_rest_to_minus_one():
    matrix = torch.tensor([[1.0, -0.5], [-0.5, -0.5]])
    # (1 - 1)^2 + (1 + 0.5)^2 + 0.1 (0.5^2 + 0.5^2)
    assert cross_correlation_loss(matrix, 0.1).item() == pytest.approx(2.25 + 0.05)
    target = 2 * torch.eye(4) - 1
    assert cross_correlation_loss(target, 0.0051).item() == 0


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("unbiased", [True, False])
def test_loss_and_gradient_are_finite_where_dividing_by_the_deviation_is_not(batch, size, unbiased):
    torch.manual_seed(0)
    logits = torch.randn(batch, 4) * size
    logits[:, 0] = size / 3  # a constant column
    logits.requires_grad_()
    loss = cross_correlation_loss(cross_correlation(logits, logits.detach(), unbiased_std=unbiased), 0.0051)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
    assert not logits.grad[:, 0].any()  # and a column without variation learns nothing from noise


def test_matrix_does_not_change_with_scale_and_offset():
    torch.manual_seed(0)
    own, mean = torch.randn(2, 64, 10, dtype=torch.float64)
    torch.testing.assert_close(cross_correlation(2 * own + 4, mean), cross_correlation(own, mean))


def test_gradient_is_right():
    torch.manual_seed(0)
    mean = torch.randn(6, 3, dtype=torch.float64)
    own = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: cross_correlation_loss(cross_correlation(z, mean), 0.3), own)
