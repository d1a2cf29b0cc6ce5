"""Similarities of FCCL+ by hand, and where features have no direction."""

import pytest
import torch

from fccl_mpi.maths.similarity import similarities, without_diagonal


def test_cosines_with_the_other_images_by_hand():
    found = similarities(torch.tensor([[2.0, 0.0], [3.0, 3.0], [0.0, -1.0]]))
    half = 0.5**0.5
    torch.testing.assert_close(found, torch.tensor([[half, 0.0], [half, -half], [0.0, -half]]))


def test_rows_are_kept():
    matrix = torch.arange(16).view(4, 4)
    assert without_diagonal(matrix).tolist() == [[1, 2, 3], [4, 6, 7], [8, 9, 11], [12, 13, 14]]


@pytest.mark.parametrize("batch", [1, 2, 7])
@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("size", [0.0, 1e-20, 1.0, 1e15])
def test_finite_for_all_features_alike_also_none(batch, width, size):
    features = torch.full((batch, width), size, requires_grad=True)
    found = similarities(features)
    assert found.shape == (batch, batch - 1)
    (found * torch.arange(batch - 1)).sum().backward()
    assert found.isfinite().all() and features.grad.isfinite().all()


def test_gradient_is_right():
    torch.manual_seed(0)
    features = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(similarities, features)
