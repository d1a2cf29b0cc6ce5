"""Averages of parameters between threads, against numbers worked out by hand."""

import numpy as np
import pytest

from fccl_mpi.core.errors import AgreedError
from fccl_mpi.federation import exchange
from fccl_mpi.federation.exchange import average
from fccl_mpi.federation.inprocess import run_in_process

OWN = [
    None,
    np.array([1, 2, 3, 4, 5], "f4"),
    np.array([3, 2, 1, 0, 5], "f4"),
    np.array([5, 8, 2, 2, 5], "f4"),
]


def run(work):
    return run_in_process(work, 4)


@pytest.mark.parametrize("piece", [2, 100])
def test_average_by_hand_in_one_piece_and_in_several(monkeypatch, piece):
    monkeypatch.setattr(exchange, "PIECE", piece)
    server, *means = run(lambda link: average(link, OWN[link.rank]))
    assert server is None
    for mean in means:
        np.testing.assert_allclose(mean, [3, 4, 2, 2, 5], rtol=1e-6)


def test_weights_and_groups_by_hand():
    def work(link):
        return average(link, OWN[link.rank], weight=[0, 1, 3, 7][link.rank], group=" aab"[link.rank])

    _, first, second, third = run(work)
    np.testing.assert_allclose(first, [2.5, 2, 1.5, 1, 5], rtol=1e-6)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(third, OWN[3])  # alone in its group


def test_only_what_travelled_is_counted():
    def work(link):
        average(link, OWN[link.rank], group=" aab"[link.rank])
        return link.bytes_exchanged

    assert run(work) == [2 * 5 * 4] * 4


def test_different_architectures_are_refused_on_every_rank():
    with pytest.raises(AgreedError, match="different architectures cannot be averaged"):
        run(lambda link: average(link, None if link.rank == 0 else np.zeros(link.rank, "f4")))
