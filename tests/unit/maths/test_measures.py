"""Eq. 7 to 9 by hand."""

import pytest
import torch

from fccl_mpi.federation.server import accuracy_matrix, means
from fccl_mpi.maths.accuracy import accuracy_by_label, count_correct
from fccl_mpi.maths.aggregation import mean, mean_by_label, median, trimmed_mean


def test_count_correct_by_hand():
    logits = torch.tensor([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0]])
    labels = torch.tensor([0, 2, 0])
    assert [count_correct(logits, labels, k).item() for k in (1, 2, 3)] == [1, 2, 3]


def test_intra_is_the_diagonal_and_inter_the_rest():
    reports = [
        {"correct": {"a": (10, 9, 10), "b": (20, 5, 20), "c": (5, 1, 5)}},
        {"correct": {"a": (10, 2, 10), "b": (20, 10, 20), "c": (5, 2, 5)}},
        {"correct": {"a": (10, 3, 10), "b": (20, 1, 20), "c": (5, 5, 5)}},
    ]
    matrix = accuracy_matrix(reports, ["a", "b", "c"], 1)
    assert matrix == [[90, 25, 20], [20, 50, 40], [30, 5, 100]]
    intra, inter = means(matrix, ["a", "b", "c"])
    assert intra == 80
    assert inter == pytest.approx((25 + 20 + 20 + 40 + 30 + 5) / 6)


def test_one_participant_has_no_inter_domain_accuracy():
    assert means([[40.0]], ["a"]) == (40.0, None)
    assert means(None, ["a"]) == (None, None)


def test_a_participant_of_the_same_domain_is_no_other_domain():
    matrix = [[90.0, 90.0, 20.0], [70.0, 70.0, 40.0], [10.0, 10.0, 50.0]]
    assert means(matrix, ["a", "a", "b"]) == (70.0, (20 + 40 + 10) / 3)


def test_robust_aggregates_by_hand():
    entries = [torch.tensor([value]) for value in (1.0, 2.0, 3.0, 1e9)]
    assert median(entries).item() == trimmed_mean(entries).item() == 2.5
    assert median(entries[:3]).item() == 2
    assert trimmed_mean([torch.tensor([float(value)]) for value in range(8)]).item() == 3.5
    for aggregate in (mean, median, trimmed_mean):
        assert aggregate(entries[:1]).item() == 1


def test_mean_is_summed_in_participant_order():
    entries = torch.tensor([[1e8], [-1e8], [3.0]])
    assert mean(list(entries)).item() == 1.0
    assert mean(list(entries.flip(0))).item() == 0.0  # 3 is lost in 1e8 in float32: the order counts


def test_accuracy_by_label_by_hand():
    logits = torch.tensor([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [5.0, 2.0, 3.0], [0.0, 0.0, 1.0]])
    assert accuracy_by_label(logits, torch.tensor([0, 0, 0, 1])).tolist() == [pytest.approx(2 / 3), 0, 0]


def test_mean_by_label_by_hand():
    scores = torch.tensor([[[0.2, 0.8, 0.0]], [[0.6, 0.2, 0.2]]])
    weights = torch.tensor([[1.0, 0.0, 0.0], [3.0, 0.5, 0.0]])
    torch.testing.assert_close(mean_by_label(scores, weights), torch.tensor([[0.5, 0.2, 0.1]]))
