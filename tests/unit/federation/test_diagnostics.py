"""What a run leaves for figures and for TensorBoard."""

import struct
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from fccl_mpi.core.errors import AgreedError
from fccl_mpi.federation import diagnostics
from fccl_mpi.federation.inprocess import run_in_process
from fccl_mpi.federation.participant import Participant
from fccl_mpi.federation.rounds import participate, serve
from fccl_mpi.federation.world import Place
from fccl_mpi.store.checkpoint import read_model
from fccl_mpi.store.diagnostics import NAME, read, recorded_round
from fccl_mpi.store.folder import RunFolder
from tests.unit.federation.test_federation import TWO, federate


class Alone:
    """An exchange for a participant that only looks at its own images and model."""

    participants, seconds_waited, skips_nonfinite, round = 2, 0.0, False, 0

    def __init__(self, rank: int) -> None:
        self.rank = rank


def models_of(config, folder) -> list[Participant]:
    """The participants as the last checkpoint has them."""
    found = []
    for rank, name in enumerate(config.participants, start=1):
        me = Participant(config, name, Alone(rank), torch.device("cpu"))
        me.load_whole(read_model(folder.checkpoints.model_path(config.rounds, name), like=me.whole_state()))
        found.append(me)
    return found


def standardised(logits: np.ndarray) -> np.ndarray:
    """Every column to mean 0 and deviation 1."""
    return (logits - logits.mean(0)) / logits.std(0)


def test_matrices_and_features_are_those_of_the_last_models(tiny, monkeypatch):
    monkeypatch.setattr(diagnostics, "TEST_IMAGES", 20)  # of 30 of either domain
    config = tiny(*TWO, "method=solo")
    folder = federate(config)
    everyone = models_of(config, folder)
    logits = [me.predict(me.public.images, me.public.normalise).numpy() for me in everyone]
    found = read(folder.path)
    assert found.domains == ["red", "green"] and list(found.participants) == ["green", "red"]
    assert recorded_round(folder.path) == 2
    assert not (folder.path / "diagnostics").exists()
    for me, own in zip(everyone, logits, strict=True):
        mine = found.participants[me.name]
        mean = np.mean(logits, axis=0)
        expected = standardised(own).T @ standardised(mean) / len(own)  # Eq. 1
        np.testing.assert_allclose(mine["public"], expected, atol=1e-5)
        private = standardised(me.predict(me.private.images).numpy())
        np.testing.assert_allclose(mine["private"], private.T @ private / len(private), atol=1e-5)
        assert mine["features"].dtype == np.float16 and mine["features"].shape == (20, me.model.feature_width)
        assert mine["domains"].tolist() == [0] * 10 + [1] * 10
        for number, domain in enumerate(("red", "green")):
            test = me.tests[domain]
            me.model.eval()
            with torch.no_grad():
                there = me.model.features(me.normalise(test.images)).half().numpy()
            for row, label in zip(
                mine["features"][mine["domains"] == number],
                mine["labels"][mine["domains"] == number],
                strict=True,
            ):
                same = np.isclose(there, row, atol=1e-2, rtol=1e-2).all(1)  # BatchNorm's own rounding
                assert label in test.labels[torch.from_numpy(same)]


def test_they_are_made_where_they_are_missing_with_equal_bytes(tiny, tmp_path):
    folder = federate(tiny(*TWO))
    path = folder.path / NAME
    whole = path.read_bytes()
    path.unlink()  # as if it was stopped between the last checkpoint and this
    federate(tiny(*TWO))
    assert path.read_bytes() == whole
    for rounds in (1, 2):
        resumed = federate(tiny(*TWO, f"out={tmp_path / 'resumed'}", f"rounds={rounds}"))
        assert recorded_round(resumed.path) == rounds
    assert (resumed.path / NAME).read_bytes() == whole


def test_only_public_logits_are_sent_for_them_and_no_round_counts_these(tiny):
    config = tiny(*TWO, "method=solo", "rounds=0")

    def arrays_given(link) -> set:
        place = Place(rank=link.rank, who=link.who[link.rank], host="here", device="cpu", threads=1)
        if link.rank == 0:
            serve(config, link, place)
        else:
            participate(config, link, place, torch.device("cpu"))
        return {(given.kind, given.shape) for given in link.record if given.bytes and given.shape}

    server, *participants = run_in_process(arrays_given, ["server", *config.participants])
    assert not server
    assert participants == [{("logits", (40, 3))}] * 2
    assert [line["bytes_exchanged"] for line in RunFolder(config).history.read()] == [0]


def test_they_can_be_left_out(tiny):
    folder = federate(tiny(*TWO, "diagnostics=false"))
    assert not (folder.path / NAME).exists()


def test_a_model_without_features_leaves_them_out(tiny, monkeypatch):
    config = tiny(
        *TWO, "method=solo", "rounds=0", "participants.red.model=tests.unit.federation.test_diagnostics:build"
    )
    found = read(federate(config).path).participants
    assert set(found["red"]) == {"public", "private"} and "features" in found["green"]


def build(*, classes: int, width: float = 1.0) -> torch.nn.Module:
    """A model that has logits alone."""
    return torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(48, classes))


def events(folder: Path) -> list:
    """All events of a TensorBoard folder in the order of writing."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            found.append(Event.FromString(content[12 : 12 + length]))
            content = content[16 + length :]
    return found


def test_tensorboard_shows_the_metrics_and_a_resumed_run_replaces_what_it_does_again(tiny):
    folder = federate(tiny(*TWO, "tensorboard=true", "checkpoint_every=2", "rounds=3"))
    (folder.checkpoints.folder / "round_0003" / "commit.json").unlink()
    folder = federate(tiny(*TWO, "tensorboard=true", "checkpoint_every=2", "rounds=3"))
    found = events(folder.path / "tensorboard")
    starts = [event.step for event in found if event.HasField("session_log")]
    assert starts[-1] == 3  # TensorBoard forgets what it has from this step on
    values = defaultdict(dict)
    for event in found:
        for value in event.summary.value:
            values[value.tag][event.step] = value.simple_value
    lines = folder.history.read()
    for tag, number in (
        ("intra_top1", lambda line: line["intra_top1"]),
        ("inter_top1", lambda line: line["inter_top1"]),
        ("top1/red/on_green", lambda line: line["top1"][0][1]),
        ("bytes_exchanged", lambda line: line["bytes_exchanged"]),
    ):
        assert values[tag] == {line["round"]: pytest.approx(number(line)) for line in lines}, tag
    assert values["loss/local/red"] == {
        line["round"]: pytest.approx(line["loss"]["red"]["local"]) for line in lines[1:]
    }
    assert set(values["seconds/wall"]) == set(values["seconds/evaluate/red"]) == {0, 1, 2, 3}


def test_tensorboard_without_its_extra_is_refused_before_anything_is_written(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(AgreedError, match=r'pip install "fccl_mpi\[tensorboard\]"'):
        federate(tiny(*TWO, "tensorboard=true"))
    assert not (tmp_path / "runs").exists()
