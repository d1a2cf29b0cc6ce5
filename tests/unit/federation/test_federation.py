"""Whole federations between threads: what they leave behind, resuming, and what stops them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import AgreedError, UserError
from fccl_mpi.federation.exchange import Exchange
from fccl_mpi.federation.inprocess import run_in_process
from fccl_mpi.federation.rounds import participate, serve
from fccl_mpi.federation.world import Place
from fccl_mpi.store.folder import RunFolder

TWO = ("~participants.blue", "~participants.grey")
RUNS = (["method=fccl"], [*TWO, "exchange=round"], [*TWO, "method=solo", "method.keep_training=true"])


def federate(config: Config) -> RunFolder:
    """Run a whole federation between threads."""

    def work(link: Exchange) -> None:
        who = ["server", *config.participants][link.rank]
        place = Place(rank=link.rank, who=who, host="here", device="cpu", threads=1)
        serve(config, link, place) if link.rank == 0 else participate(
            config, link, place, torch.device("cpu")
        )

    run_in_process(work, len(config.participants) + 1)
    return RunFolder(config)


def numbers(folder: RunFolder) -> list[dict]:
    """The metrics that must be equal, not the times."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in folder.history.read()]


def weights(folder: RunFolder) -> dict[str, str]:
    """The last checkpoint's sha256 of each participant."""
    return folder.checkpoints.newest_intact()[1]["files"]


def test_a_run_leaves_its_config_metrics_checkpoints_and_log(tiny):
    config = tiny("rounds=3", "participants.grey.model=resnet10")
    folder = federate(config)
    assert folder.path == Path(config.out) / "tiny" / "fccl" / f"{folder.digest[:8]}-s0"
    lines = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2, 3]
    names = list(config.participants)
    for line in lines:
        assert np.array(line["top1"]).shape == (4, 4)
        assert line["top5"] is line["intra_top5"] is line["inter_top5"] is None  # three classes
        assert line["intra_top1"] == pytest.approx(np.diagonal(line["top1"]).mean())
        assert set(line["loss"]) == set(names)
        assert line["seconds"]["wall"] > 0 and set(line["seconds"]["evaluate"]) == set(names)
    assert lines[0]["bytes_exchanged"] == 0
    assert lines[1]["bytes_exchanged"] == 4 * 2 * 16 * 3 * 4  # participants, batches, images, classes, bytes
    assert set(lines[1]["loss"]["red"]) == {"collaborative", "local", "ce", "inter", "intra"}
    kept = sorted(path.name for path in (folder.path / "checkpoints").iterdir())
    assert kept == ["round_0002", "round_0003"]
    assert "seed: 0" in (folder.path / "config.yaml").read_text()
    log = folder.log.read_text()
    assert "rank 3 on here, cpu, 1 thread: blue, mobilenet_v2 × 0.125" in log and "top-1 accuracy" in log


@pytest.mark.parametrize("overrides", RUNS, ids=" ".join)
def test_two_runs_are_bit_equal_and_so_is_a_resumed_one(tiny, tmp_path, overrides):
    first, second = (federate(tiny(*overrides, "rounds=3", f"out={tmp_path / name}")) for name in "ab")
    assert numbers(first) == numbers(second) and weights(first) == weights(second)
    resumed = [federate(tiny(*overrides, f"rounds={rounds}", f"out={tmp_path / 'c'}")) for rounds in (1, 3)][
        -1
    ]
    assert numbers(resumed) == numbers(first) and weights(resumed) == weights(first)


def test_a_finished_run_started_again_changes_nothing(tiny):
    folder = federate(tiny(*TWO))
    before = {
        path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file() and path != folder.log
    }
    federate(tiny(*TWO))
    assert before == {path: path.read_bytes() for path in before}
    assert "this run is finished: it has 2 rounds" in folder.log.read_text()


def test_rounds_after_the_last_checkpoint_are_done_again(tiny):
    folder = federate(tiny(*TWO, "checkpoint_every=2", "rounds=3", "keep=0"))
    expected = numbers(folder), weights(folder)
    (folder.checkpoints.folder / "round_0003" / "commit.json").unlink()
    folder = federate(tiny(*TWO, "checkpoint_every=2", "rounds=3", "keep=0"))
    assert (numbers(folder), weights(folder)) == expected


def test_a_damaged_checkpoint_is_named_and_the_one_before_serves(tiny):
    folder = federate(tiny(*TWO, "rounds=3"))
    expected = numbers(folder), weights(folder)
    model = folder.checkpoints.model_path(3, "red")
    model.write_bytes(model.read_bytes()[:-100])
    folder = federate(tiny(*TWO, "rounds=3"))
    assert (numbers(folder), weights(folder)) == expected
    log = folder.log.read_text()
    assert f"warning: {model} does not match its sha256" in log and "resuming after round 2" in log


def test_all_methods_start_from_the_same_pretrained_models(tiny):
    fccl, solo = federate(tiny(*TWO)), federate(tiny(*TWO, "method=solo"))
    assert numbers(fccl)[0] == numbers(solo)[0]
    stored = list((Path(tiny().out) / "pretrained" / "tiny").iterdir())
    assert len(stored) == 2
    assert [line["top1"] for line in numbers(solo)] == [numbers(solo)[0]["top1"]] * 3


def test_pretrained_models_are_told_apart_by_all_that_makes_them(tiny):
    skewed = (*TWO, "scenario=skewed", "participants.red.private_size=0", "method=solo", "rounds=0")
    changes = ((), ("label_skew=0.5",), ("participants.again.share=2",), ("homogeneous=true",))
    for number, change in enumerate(changes, start=1):
        federate(tiny(*skewed, *change))
        stored = list((Path(tiny().out) / "pretrained" / "skewed").glob("red-*"))
        assert len(stored) == number, change


def test_models_that_are_averaged_begin_as_one(tiny):
    from fccl_mpi.federation.participant import Participant

    class Alone:
        participants, rank, seconds_waited = 2, 1, 0.0

    config = tiny(*TWO, "homogeneous=true", "homogeneous_model=resnet10", "homogeneous_width=0.125")
    red, green = (
        Participant(config, name, Alone(), torch.device("cpu")).state() for name in ("red", "green")
    )
    assert all((red[name] == green[name]).all() for name in red)


def test_a_run_is_not_begun_twice_with_resume_never(tiny):
    federate(tiny(*TWO, "resume=never"))
    with pytest.raises(AgreedError, match="holds a run already"):
        federate(tiny(*TWO, "resume=never"))


def test_other_data_in_the_same_folder_is_refused(tiny, tmp_path):
    from tests.conftest import make_tiny_images

    data = make_tiny_images(tmp_path / "other", classes=4)
    federate(tiny(*TWO))
    with pytest.raises(AgreedError, match="was begun with other image sets"):
        federate(tiny(*TWO, f"data={data}"))


def test_a_missing_file_is_told_and_no_folder_is_made(tiny, tmp_path):
    with pytest.raises(AgreedError, match=r"red\.h5 does not exist"):
        federate(tiny(f"data={tmp_path / 'nowhere'}"))
    assert not (tmp_path / "runs").exists()


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_participant(tiny):
    with pytest.raises(UserError, match=r"participant \w+: its local loss became (nan|inf); try a lower lr"):
        federate(tiny(*TWO, "lr=1e30", "pretrain_epochs=8"))


def test_images_do_not_depend_on_who_takes_part_nor_on_where_they_lie(tiny, tiny_data, tmp_path):
    from fccl_mpi.federation.participant import Participant

    class Alone:
        participants, rank, seconds_waited = 4, 1, 0.0

    (tmp_path / "elsewhere").symlink_to(tiny_data)
    elsewhere = (*TWO, f"data={tmp_path / 'elsewhere'}")
    four, two = (
        Participant(tiny(*overrides), "red", Alone(), torch.device("cpu")) for overrides in ((), elsewhere)
    )
    assert torch.equal(four.private.images, two.private.images)
    for a, b in zip(four.public.batches_of(2), two.public.batches_of(2), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(four.public.batches_of(1)[0], four.public.batches_of(2)[0])
