"""The cost model against rounds worked by hand, and what is no bench file."""

import json
from pathlib import Path

import numpy as np
import pytest

from fccl_mpi.bench import model
from fccl_mpi.bench.command import run

PHASES = {"teachers": 1.0, "collaborate": 2.0, "local": 4.0, "evaluate": 2.0}


def rank(who: str, scale: float, **about: object) -> dict:
    """A participant that computes 10 CPU seconds a round, and has 9 of them in its floor, times ``scale``."""
    floor = {phase: scale * seconds for phase, seconds in PHASES.items()}
    of_cpu = {
        "host": "a",
        "device": "cpu",
        "threads": 1,
        "cpu": 10 * scale,
        "floor": floor,
        "floor_cpu": floor,
    }
    return {"who": who, "waited": 1.0, **of_cpu, **about}


def bench(
    path: Path, *participants: dict, wall: float, cores: int = 4, others: float = 0, **about: object
) -> Path:
    """A bench file: two collectives a round, of 100 bytes; each takes 1 s, and 1 s more for 100 bytes."""
    content = {
        "schema": 1,
        "kind": "fccl_mpi.bench",
        "nodes": {host: {"cores": cores, "devices": 1, "others": others} for host in ("a", "b")},
        "ranks": [{"who": "server", "host": "a"}, *participants],
        "round": {"wall": wall, "calls": 2, "bytes": 100},
        "exchanges": [{"bytes": size, "share_ms": {"median": 1000 + 10 * size}} for size in (1, 101)],
    }
    path.write_text(json.dumps(content | about))
    return path


def predict(found: model.Bench, participants: int, nodes: int) -> model.Terms:
    return model.predict(found, model.fit([found]), participants, nodes)


def test_the_terms_of_a_round_by_hand(tmp_path):
    slow_apart = rank("x", 1.0, floor_cpu={"collaborate": 6.0, "local": 1.0, "evaluate": 2.0})
    slow_local = rank("y", 1.0)
    found = model.read(bench(tmp_path / "b.json", slow_apart, slow_local, wall=19.0))
    terms = predict(found, 2, 1)
    # 7 s of passes each, 2 of evaluation, 1 of all else; 6 s until x has exchanged, then 7 until y is done
    assert (terms.compute, terms.evaluation, terms.overhead, terms.imbalance) == (7, 2, 1, 3)
    assert terms.exchange == pytest.approx(2 * 1 + 1)
    assert terms.other == pytest.approx(19 - 13 - 3) and terms.total == pytest.approx(19)


def test_a_node_with_more_participants_than_cores_takes_the_sum_of_their_work(tmp_path):
    found = model.read(bench(tmp_path / "b.json", rank("x", 1.0), rank("y", 3.0), wall=32.0))
    assert predict(found, 2, 1).compute == 21  # y alone
    assert predict(found, 16, 1).compute == pytest.approx(8 * (7 + 21) / 4)
    assert predict(found, 16, 2).compute == pytest.approx(4 * (7 + 21) / 4)
    assert predict(found, 16, 8).compute == 21
    assert predict(found, 3, 2).nodes == 2 and predict(found, 1, 4).compute == 7
    # latency is per other rank, since one file cannot tell more, and bytes grow as participants
    assert predict(found, 16, 8).exchange == pytest.approx(2 * 16 / 2 + 16 / 2)


def test_other_programs_leave_fewer_cores_and_a_measured_row_has_its_own(tmp_path, capsys):
    ranks = [rank("x", 1.0), rank("y", 1.0)]
    path = bench(tmp_path / "2.json", *ranks, wall=22.0, cores=2, others=1)
    assert predict(model.read(path), 2, 1).compute == 14
    more = bench(tmp_path / "4.json", *ranks, *ranks, wall=23.0, cores=2)
    assert run(["--predict", str(path), str(more), "--participants", "4,8"], None) == 0
    four, eight = capsys.readouterr().out.splitlines()[4:6]
    assert "14.000" in four and "56.000" in eight


def test_participants_share_the_gpus_and_are_busy_while_they_do_not_wait(tmp_path):
    ranks = [rank(name, 1.0, device="cuda:0", waited=4.0) for name in "xy"]
    found = model.read(bench(tmp_path / "b.json", *ranks, wall=16.0, cores=64))
    terms = predict(found, 2, 1)
    assert (terms.compute, terms.overhead) == (14, 2 * (16 - 4 - 9))


def test_threads_count_as_far_as_they_were_used(tmp_path):
    own = rank("x", 1.0, threads=4, floor={"local": 3.0})  # 9 CPU seconds in 3
    assert predict(model.read(bench(tmp_path / "b.json", own, wall=9.0)), 1, 1).compute == pytest.approx(
        7 / 3
    )
    assert predict(model.read(bench(tmp_path / "b.json", own, wall=9.0, cores=2)), 1, 1).compute == 3.5


def test_the_fit_finds_what_made_the_exchanges():
    true = model.Latency(2e-4, 3e-5, 4e-9)

    def of(participants: int) -> model.Bench:
        sizes = np.array([4.0, 1e4, 1e6]) * participants
        took = true.call + true.rank * participants + true.byte * sizes
        work = model.Work(apart=1, local=1, evaluation=0, overhead=0)
        exchanges = list(zip(sizes.tolist(), took.tolist(), strict=True))
        numbers = {"wall": 2.0, "nodes": 1, "lanes": {False: 1, True: 1}, "calls": 1, "bytes": 4.0}
        return model.Bench(path="", participants=[work] * participants, exchanges=exchanges, **numbers)

    assert vars(model.fit([of(2), of(8), of(32)])) == pytest.approx(vars(true))
    alone = model.fit([of(8)])
    assert alone.call == 0 and alone.rank == pytest.approx(true.rank + true.call / 8)


def test_no_cost_is_negative():
    matrix = np.array([[1.0, 0.0], [1.0, 1.0]])
    assert model.nonnegative(matrix, np.array([2.0, 1.0])).tolist() == pytest.approx([1.5, 0.0])
    assert model.nonnegative(matrix, np.array([-1.0, -2.0])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("not JSON", "is no bench file (Expecting value"),
        ('{"round": 3}', "is no bench file (it is something else)"),
        ('{"kind": "fccl_mpi.bench", "schema": 2}', "it is of schema 2, not 1"),
        ('{"kind": "fccl_mpi.bench", "schema": 1, "ranks": 3}', "is damaged (TypeError"),
        ('{"kind": "fccl_mpi.bench", "schema": 1, "ranks": []}', "it has no participants"),
        ({"round": {"wall": float("nan"), "calls": 1, "bytes": 4}}, "its numbers are no measurements"),
        ({"exchanges": []}, "its numbers are no measurements"),
    ],
    ids=str,
)
def test_what_is_no_bench_file_is_refused_in_a_sentence(tmp_path, capsys, content, message):
    path = tmp_path / "b.json"
    if isinstance(content, dict):
        bench(path, rank("x", 1.0), wall=9.0, **content)
    elif content is not None:
        path.write_text(content)
    assert run(["--predict", str(path)], None) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1 and "python -m fccl_mpi.bench --json" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--participants", "0"], "--participants=0 is out of range: it must be 1 or more"),
        (["--participants", "4,x"], "--participants=x is out of range"),
        (["--nodes", "0"], "--nodes=0 is out of range: it must be 1 or more"),
    ],
    ids=" ".join,
)
def test_numbers_out_of_range_are_refused(tmp_path, capsys, words, message):
    path = bench(tmp_path / "b.json", rank("x", 1.0), wall=9.0)
    assert run(["--predict", str(path), *words], None) == 2
    assert message in capsys.readouterr().err


def test_a_prediction_stands_beside_what_was_measured(tmp_path, capsys):
    path = bench(tmp_path / "b.json", rank("x", 1.0), rank("y", 1.0), wall=16.0)
    assert run(["--predict", str(path), "--participants", "2,1024", "--nodes", "1"], None) == 0
    shown = capsys.readouterr().out
    assert "16.000 (+0%)" in shown and "1024" in shown
