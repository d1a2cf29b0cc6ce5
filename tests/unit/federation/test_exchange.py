"""Averages of parameters between threads, against numbers worked out by hand."""

import pickle

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


WHO = ["server", "a", "b", "c"]


def run(work):
    return run_in_process(work, WHO)


def test_between_threads_the_server_runs_first_after_an_exchange():
    ran = []

    def work(link):
        for _ in range(200):
            link.allgather("word", None)
            ran.append(link.rank)

    run(work)
    assert ran[:: len(WHO)] == [0] * 200


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
        return link.bytes_exchanged.total()

    assert run(work) == [2 * 5 * 4] * 4


def test_different_architectures_are_refused_on_every_rank():
    with pytest.raises(AgreedError, match="different architectures cannot be averaged"):
        run(lambda link: average(link, None if link.rank == 0 else np.zeros(link.rank, "f4")))


def test_what_is_not_finite_is_refused_on_every_rank_by_the_name_of_who_sent_it():
    told = []

    def work(link, mean=False, **settings):
        vars(link).update(round=7, **settings)
        own = [None, *np.array([[0, 1], [np.inf, 1], [np.nan, 1]], "f4")][link.rank]
        try:
            return link.begin(settings.pop("kind", "logits"), own, (2,), mean=mean)()
        except AgreedError as error:
            told.append(str(error))

    for mean in (False, True):
        told.clear()
        run(lambda link, mean=mean: work(link, mean))
        assert len(told) == 4 and len(set(told)) == 1
        assert "round 7: b and c sent logits that are not finite" in told[0]
    for everyone in run(lambda link: work(link, skips_nonfinite=True)):
        np.testing.assert_array_equal(everyone, np.array([[0, 1], [np.inf, 1], [np.nan, 1]], "f4"))
    told.clear()
    run(lambda link: work(link, skips_nonfinite=True, kind="parameters"))
    assert len(told) == 4 and "sent parameters" in told[0]


def test_the_record_tells_what_each_rank_has_given():
    def work(link):
        link.allgather("report", None)
        link.round = 1
        for _ in range(2):
            link.share("logits", None if link.rank == 0 else np.zeros((2, 3), "f4"), (2, 3))
        return link.record

    server, *others = run(work)
    small = len(pickle.dumps(None))
    assert server == {(0, "report", (), small): 1, (1, "logits", (0,), 0): 2}
    assert others == [{(0, "report", (), small): 1, (1, "logits", (2, 3), 24): 2}] * 3
