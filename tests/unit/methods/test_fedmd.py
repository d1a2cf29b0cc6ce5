"""FedMD: its distance by hand, and the labelled first phase."""

import numpy as np
import pytest
import torch

from fccl_mpi.core.errors import AgreedError
from fccl_mpi.data.schema import write_public
from fccl_mpi.methods.fedmd import FedMd
from tests.unit.federation.test_federation import federate
from tests.unit.methods.conftest import ME, together

OWN, OTHER = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[3.0, 2.0], [1.0, 4.0]])


def test_distance_to_the_consensus_by_hand():
    # mean (2, 2), (2, 2); differences 1, 0, 1, 2
    assert FedMd().public_loss(OWN, torch.stack([OWN, OTHER]), None, ME).item() == 1.0


@pytest.fixture
def labelled(tmp_path):
    """Overrides that choose a labelled public set of seven classes."""
    randomness = np.random.default_rng(0)
    labels = np.arange(49, dtype=np.int64) % 7
    images = randomness.integers(0, 60, (49, 32, 32, 3), dtype=np.uint8)
    images += (labels * 25).astype(np.uint8)[:, None, None, None]
    file = tmp_path / "labelled.h5"
    write_public(file, name="labelled", images=images, source="", labels=labels, classes=list("abcdefg"))
    return ["method=fedmd", f"public.file={file}", "method.public_pretraining_epochs=6"]


def test_the_first_phase_trains_the_features_and_leaves_the_classifier(tiny, labelled):
    def work(me):
        before = {name: value.copy() for name, value in me.state().items()}
        losses = [me.config.method.learn_public_labels(me)["public_labels"] for _ in range(2)]
        after = {name: value.copy() for name, value in me.state().items()}
        me.config.method.collaborate(me, 2)  # the exchanges that the server waits for
        return losses, before, after

    alone = ("~participants.green", "~participants.blue", "~participants.grey")
    _, (losses, before, after) = together(tiny(*alone, *labelled, "lr=0.01"), work)
    assert losses[1] < losses[0] < np.log(7)
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert "trunk.0.0.weight" in moved and "classifier.weight" not in moved


def test_the_first_phase_comes_once(two, labelled):
    folder = federate(two(*labelled))
    assert ["public_labels" in line["loss"]["red"] for line in folder.history.read()] == [False, True, False]


def test_the_first_phase_needs_labels(two):
    with pytest.raises(AgreedError, match=r"tiny/noise\.h5 has none: choose another public="):
        federate(two("method=fedmd", "method.public_pretraining_epochs=1"))
