"""Whole federations between threads: what they leave behind, resuming, and what stops them."""

import gc
import itertools
import json
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import AgreedError, UserError
from fccl_mpi.federation.exchange import Exchange
from fccl_mpi.federation.inprocess import run_in_process
from fccl_mpi.federation.participant import Participant
from fccl_mpi.federation.placement import cores_shown
from fccl_mpi.federation.rounds import participate, serve
from fccl_mpi.federation.world import Place
from fccl_mpi.models.tuning import tune
from fccl_mpi.store.folder import RunFolder

NAN = float("nan")
TWO = ("~participants.blue", "~participants.grey")
RUNS = (["method=fccl"], [*TWO, "exchange=round"], [*TWO, "method=solo", "method.keep_training=true"])


def federate(config: Config, stop: object = False) -> RunFolder:
    """Run a whole federation between threads."""

    def work(link: Exchange) -> None:
        who = ["server", *config.participants][link.rank]
        place = Place(rank=link.rank, who=who, host="here", device="cpu", threads=1)
        if link.rank == 0:
            serve(config, link, place, stop)
        else:
            participate(config, link, place, torch.device("cpu"), stop)

    run_in_process(work, ["server", *config.participants])
    return RunFolder(config)


def numbers(folder: RunFolder) -> list[dict]:
    """The metrics that must be equal, not the times."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in folder.history.read()]


def weights(folder: RunFolder) -> dict[str, str]:
    """The last checkpoint's sha256 of each participant."""
    return folder.checkpoints.newest_intact()[1]["files"]


def stored_beside(folder: RunFolder, pattern: str) -> list[Path]:
    """What is stored about pretrained models for the run of ``folder``."""
    return sorted((Path(folder.config.out) / "pretrained" / folder.config.scenario).glob(pattern))


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
    assert f"rank 3 on here, cpu, 1 thread on {cores_shown()}: blue, mobilenet_v2 × 0.125" in log
    assert "top-1 accuracy" in log


@pytest.mark.parametrize("overrides", RUNS, ids=" ".join)
def test_two_runs_are_bit_equal_and_so_is_a_resumed_one(tiny, tmp_path, overrides):
    first, second = (federate(tiny(*overrides, "rounds=3", f"out={tmp_path / name}")) for name in "ab")
    assert numbers(first) == numbers(second) and weights(first) == weights(second)
    resumed = [federate(tiny(*overrides, f"rounds={rounds}", f"out={tmp_path / 'c'}")) for rounds in (1, 3)][
        -1
    ]
    assert numbers(resumed) == numbers(first) and weights(resumed) == weights(first)


def test_a_run_may_go_on_with_less_memory_for_some(tiny, tmp_path, monkeypatch):
    whole = federate(tiny(*TWO, f"out={tmp_path / 'whole'}"))
    asked = []

    def seen(network: torch.nn.Module, *where: object, recompute: bool, **how: object) -> torch.nn.Module:
        asked.append(recompute)
        return tune(network, *where, recompute=recompute, **how)

    federate(tiny(*TWO, "rounds=1"))
    monkeypatch.setattr("fccl_mpi.federation.participant.tune", seen)
    done = federate(tiny(*TWO, "recompute=[green]"))
    assert sorted(asked) == [False, True]
    assert numbers(done) == numbers(whole) and weights(done) == weights(whole)


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


@pytest.mark.parametrize("method", ["fccl", "fccl exchange=round", "fccl_plus", "feddf", "fedmd"])
def test_where_the_mean_suffices_an_allreduce_gives_the_same(tiny, method):
    settings = ("~participants.grey", "rounds=1", *f"method={method}".split())
    gathered, reduced = (federate(tiny(*settings, f"collective=all{kind}")) for kind in ("gather", "reduce"))
    (_, all_of_them), (_, their_mean) = numbers(gathered), numbers(reduced)
    for name, terms in all_of_them["loss"].items():
        found = their_mean["loss"][name]["collaborative"]  # Adam makes more of rounding in what follows
        assert found == pytest.approx(terms["collaborative"], rel=1e-3)
    assert their_mean["agreement"] is None
    assert their_mean["bytes_exchanged"] == all_of_them["bytes_exchanged"] > 0


def test_rounds_that_are_not_evaluated_are_the_same_rounds(tiny):
    every = federate(tiny(*TWO, "rounds=3"))
    expected, models = numbers(every), weights(every)
    shutil.rmtree(every.path)
    found = federate(tiny(*TWO, "rounds=3", "evaluate_every=2"))
    assert weights(found) == models
    measures = [key for key in expected[0] if "top" in key]
    assert expected[1] != (unseen := expected[1] | dict.fromkeys(measures))
    assert numbers(found) == [expected[0], unseen, *expected[2:]]


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
    assert len(stored_beside(fccl, "*.h5")) == 2
    assert [line["top1"] for line in numbers(solo)] == [numbers(solo)[0]["top1"]] * 3


def test_a_pretrained_model_is_evaluated_once_for_each_test_set(tiny, monkeypatch):
    evaluate, evaluated = Participant.evaluate, []

    def seen(me: Participant) -> dict:
        evaluated.append(me.name)
        return evaluate(me)

    def first_line(*overrides: str) -> tuple[dict, list[str]]:
        """Of a run with no round, and who was evaluated for it."""
        evaluated.clear()
        (line,) = numbers(federate(tiny(*TWO, "rounds=0", *overrides)))
        return line, sorted(evaluated)

    monkeypatch.setattr(Participant, "evaluate", seen)
    both = ["green", "red"]
    line, first = first_line()
    assert first == both
    assert first_line("method=solo") == (line, [])
    smaller, again = first_line("test_size=8")
    assert again == both and smaller != line
    assert first_line("test_size=8", "method=solo") == (smaller, [])
    assert first_line("evaluate_batch_size=7") == (line, both)


NO_COUNTS = ([30, 9], [29, 3, 29], [30, 9, 8], [30, -1, 8], [30, 31, 32], ["30", "4", "9"], [True] * 3)
DAMAGES = (
    *("", "[", "[" * 10_000, "null", '{"red": [30, 4, 30]}', '{"red": 3, "green": 3}'),
    *(json.dumps({"red": counts, "green": counts}) for counts in NO_COUNTS),
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage[:40])
def test_a_damaged_evaluation_of_a_pretrained_model_is_made_again(tiny, damage):
    folder = federate(tiny(*TWO, "rounds=0"))
    expected = numbers(folder)
    (stored,) = stored_beside(folder, "red-*.json")
    intact = stored.read_text()
    stored.write_text(damage)
    shutil.rmtree(folder.path)
    assert numbers(federate(folder.config)) == expected
    assert stored.read_text() == intact


def test_pretrained_models_are_told_apart_by_all_that_makes_them(tiny):
    skewed = (*TWO, "scenario=skewed", "participants.red.private_size=0", "method=solo", "rounds=0")
    changes = ((), ("label_skew=0.5",), ("participants.again.share=2",), ("homogeneous=true",))
    for number, change in enumerate(changes, start=1):
        federate(tiny(*skewed, *change))
        stored = list((Path(tiny().out) / "pretrained" / "skewed").glob("red-*.h5"))
        assert len(stored) == number, change


def test_models_that_are_averaged_begin_as_one(tiny):
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
    with pytest.raises(UserError, match=r"round 0, participant \w+: its local loss became (nan|inf)"):
        federate(tiny(*TWO, "lr=1e30", "pretrain_epochs=8"))


def test_images_do_not_depend_on_who_takes_part_nor_on_where_they_lie(tiny, tiny_data, tmp_path):
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


class Whenever:
    """A request to stop that comes when it has been looked at ``looks`` times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def __bool__(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_a_stop_while_pretraining_keeps_finished_models_and_ends_equal(tiny, tmp_path):
    whole = federate(tiny(*TWO, f"out={tmp_path / 'whole'}"))
    looks = 2 * 2 + 1  # two epochs of two batches for whoever comes first, then the other's first batch
    stopped = federate(tiny(*TWO), stop=Whenever(looks))
    assert numbers(stopped) == []
    assert len(stored_beside(stopped, "*")) == 1
    assert "stopped on request while pretraining" in stopped.log.read_text()
    done = federate(tiny(*TWO))
    assert (numbers(done), weights(done)) == (numbers(whole), weights(whole))


def spoil(monkeypatch, operation: str, *calls: int) -> None:
    """Put NaN into what green hands to some calls of an operation in round 2."""
    from fccl_mpi.federation.participant import Participant

    whole, count = getattr(Participant, operation), itertools.count()

    def spoilt(self, *things):
        if (self.name, self.exchange.round) == ("green", 2) and next(count) in calls:
            things = [thing * NAN if isinstance(thing, torch.Tensor) else thing for thing in things]
        return whole(self, *things)

    monkeypatch.setattr(Participant, operation, spoilt)


@pytest.mark.parametrize("exchange", ["batch", "round"])
@pytest.mark.parametrize(
    ("operation", "call", "message"),
    [
        ("begin_to_share", 0, "round 2: green sent logits that are not finite, and no one has used them"),
        ("step", 1, "round 2, participant green: its local loss became nan"),
        ("step", 5, "round 2, participant green: its model is no longer finite"),
    ],
)
def test_nan_stops_the_run_names_round_and_participant_and_keeps_the_last_checkpoint(
    tiny, tmp_path, monkeypatch, exchange, operation, call, message
):
    settings = (*TWO, "rounds=3", f"exchange={exchange}")
    config = tiny(*settings)
    with monkeypatch.context() as fault:
        spoil(fault, operation, call)
        with pytest.raises(UserError, match=message):
            federate(config)
    gc.collect()  # the exception has kept the folder's lock
    assert RunFolder(config).checkpoints.newest_intact()[0] == 1
    whole = federate(tiny(*settings, f"out={tmp_path / 'whole'}"))
    done = federate(config)
    assert (numbers(done), weights(done)) == (numbers(whole), weights(whole))


def test_skipped_batches_are_counted_and_the_run_goes_on(tiny, monkeypatch):
    spoil(monkeypatch, "begin_to_share", 0)
    spoil(monkeypatch, "step", 2)  # after its second public batch: its second private one
    losses = [line["loss"] for line in numbers(federate(tiny(*TWO, "rounds=3", "on_nonfinite=skip_batch")))]
    assert losses[2]["red"]["skipped_batches"] == 1  # that of green's logits
    assert losses[2]["green"]["skipped_batches"] == 2
    assert all("skipped_batches" not in losses[round][name] for round in (1, 3) for name in ("red", "green"))


def test_a_round_without_any_finite_batch_ends_the_run(tiny, monkeypatch):
    spoil(monkeypatch, "begin_to_share", 0, 1)
    with pytest.raises(UserError, match=r"round 2, participant \w+: no batch gave finite losses"):
        federate(tiny(*TWO, "on_nonfinite=skip_batch"))


def test_nothing_but_logits_accuracies_losses_and_counts_leaves_a_participant(tiny, monkeypatch):
    """Privacy, from the record of all collectives of a whole run."""
    from fccl_mpi.federation.inprocess import InProcessExchange

    given: dict[str, list] = defaultdict(list)
    links = []
    record = InProcessExchange._noted

    def seen(link, kind, thing):
        if link.rank > 0:
            given[kind].append(thing)
            links.append(link)
        return record(link, kind, thing)

    monkeypatch.setattr(InProcessExchange, "_noted", seen)
    config = tiny("method=fccl")
    federate(config)
    for link in set(links):
        arrays = {entry: times for entry, times in link.record.items() if entry.shape}
        batches, diagnosed = (16, 3), (40, 3)  # of public images, and all of them once at the end
        assert {(entry.kind, entry.shape) for entry in arrays} == {("logits", batches), ("logits", diagnosed)}
        assert sum(arrays.values()) == 2 * 2 + 1
    assert set(given) == {"card", "error", "folder", "pretrained", "report", "digest", "diagnostics"}
    assert set(map(type, given["pretrained"])) == {bool} and set(map(len, given["digest"])) == {64}
    assert set(given["error"] + given["folder"] + given["diagnostics"]) == {None}
    for card in given["card"]:  # names, digests and counts
        assert all(
            isinstance(value, str | int | tuple) for key, value in vars(card).items() if key != "place"
        )
    for report in given["report"]:
        assert set(report) == {"loss", "correct", "seconds", "stop"}
        numbers_of = [
            *report["loss"].values(),
            *report["seconds"].values(),
            *itertools.chain(*report["correct"].values()),
        ]
        assert set(map(type, numbers_of)) <= {int, float}
