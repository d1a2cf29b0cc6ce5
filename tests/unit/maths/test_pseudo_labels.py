"""FedMatch's parts by hand."""

import math

import pytest
import torch

from fccl_mpi.maths.pseudo_labels import agreed_labels, consistency, decayed, nearest, pseudo_label_loss


def test_nearest_by_hand():
    scores = torch.tensor([0.0, 1.0, 0.2, 0.3, 0.2]).view(5, 1, 1)
    assert nearest(scores, 0, 2) == [2, 4]
    assert nearest(scores, 1, 2) == [3, 2]
    assert nearest(scores, 0, 9) == [2, 4, 3, 1]
    assert nearest(scores[:1], 0, 2) == []


def test_most_votes_win_and_of_equal_ones_the_lowest_class():
    a, b, c = torch.eye(3)
    assert agreed_labels(a[None], torch.stack([b, b])[:, None]).tolist() == [1]
    assert agreed_labels(c[None], torch.stack([b, a])[:, None]).tolist() == [0]
    assert agreed_labels(c[None], torch.empty(0, 1, 3)).tolist() == [2]


def test_losses_are_means_over_the_chosen():
    logits, chosen = torch.zeros(3, 2), torch.tensor([True, False, True])
    helpers = torch.tensor([[[1.0, 0.0]] * 3, [[0.5, 0.5]] * 3])
    assert consistency(helpers, logits, chosen).item() == pytest.approx(math.log(2) / 2)
    assert consistency(helpers[:0], logits, chosen).item() == 0
    logits = torch.tensor([[math.log(3), 0.0], [99.0, 0.0], [0.0, 0.0]])
    loss = pseudo_label_loss(logits, torch.tensor([0, 1, 1]), chosen)
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)


def test_gradient_is_finite_where_nothing_is_chosen_and_helpers_are_certain():
    logits = torch.tensor([[1e4, 0.0], [0.0, 0.0]], requires_grad=True)
    helpers = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    for chosen in (torch.tensor([False, False]), torch.tensor([True, True])):
        loss = consistency(helpers, logits, chosen) + pseudo_label_loss(logits, torch.tensor([1, 0]), chosen)
        loss.backward()
        assert loss.isfinite() and logits.grad.isfinite().all()


def test_decay_meets_sigma_and_zero_but_does_not_pass_them():
    psi, sigma = torch.tensor([0.2, -0.2, 0.2]), torch.tensor([1.0, -1.0, 0.0])
    torch.testing.assert_close(decayed(psi, sigma, l1=0, l2=0.25, steps=2), torch.tensor([0.8, -0.8, 0.05]))
    torch.testing.assert_close(decayed(psi, sigma, l1=0, l2=9, steps=1), sigma)
    torch.testing.assert_close(decayed(psi, sigma, l1=0.15, l2=0, steps=2), torch.zeros(3))
