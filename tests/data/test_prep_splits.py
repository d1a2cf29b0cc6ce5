"""Splits and draws, for any sizes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_prep.splits import draw, duplicates, split_by_class

COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=6)
SHARES = st.sampled_from([0.1, 0.5, 0.7, 0.9])


def split(labels, classes, share=0.7, seed=0, purpose=("task", "domain")):
    names = [f"class{number}" for number in range(classes)]
    return split_by_class(np.array(labels), names, share=share, seed=seed, purpose=purpose)


@given(COUNTS, SHARES, st.integers(0, 3), st.randoms())
def test_splits_are_disjoint_complete_and_stratified(counts, share, seed, random):
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    random.shuffle(labels)
    train, test = split(labels, len(counts), share, seed)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()
    for label, count in enumerate(counts):
        tests = sum(labels[row] == label for row in test)
        if count == 0:
            continue
        assert count - tests >= 1
        assert tests >= min(1, count - 1)
        assert abs(tests - count * (1 - share)) < 1 or tests in (1, count - 1)


def test_thirty_of_a_hundred_are_for_testing_as_released():
    for count in range(4, 101):
        _, test = split([0] * count, 1)
        assert len(test) == int(count * 3 / 10)


def test_the_draw_depends_on_the_class_alone():
    alone, _ = split([0] * 20, 1)
    both, _ = split([0] * 20 + [1] * 20, 2)
    assert both[:14].tolist() == alone.tolist()
    assert (both[14:] - 20).tolist() != alone.tolist()


def test_the_draw_depends_on_seed_and_purpose():
    first = split([0] * 50, 1)[1].tolist()
    assert split([0] * 50, 1)[1].tolist() == first
    assert split([0] * 50, 1, seed=1)[1].tolist() != first
    assert split([0] * 50, 1, purpose=("task", "other"))[1].tolist() != first


@given(st.integers(0, 50), st.data())
def test_draws(count, data):
    wanted = data.draw(st.integers(1, max(count, 1)))
    rows = draw(count, wanted, seed=0, purpose="x")
    assert len(set(rows.tolist())) == min(wanted, count)
    assert (np.diff(rows) > 0).all()
    assert draw(count, 0, seed=0, purpose="x").tolist() == list(range(count))


def test_duplicates_are_counted():
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
    assert duplicates(images[:3], images[3:]) == 0
    assert duplicates(images[:3], images[[3, 0, 0, 2]]) == 3
