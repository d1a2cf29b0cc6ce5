"""A bench under a real mpirun."""

import json

from fccl_mpi.bench.command import run
from tests.unit.federation.test_federation import federate, numbers

TWO = ("~participants.blue", "~participants.grey")


def test_a_bench_measures_the_run_it_would_be_and_predicts_larger_ones(mpirun, tiny, tmp_path, capsys):
    plain = federate(tiny(*TWO, "pretrain_epochs=1", "diagnostics=false"))
    kept, file = set(tmp_path.rglob("*")), tmp_path / "bench.json"
    done = mpirun(3, "--rounds", "2", "--json", str(file), *TWO, program="fccl_mpi.bench")
    assert done.returncode == 0, done.stderr
    assert set(tmp_path.rglob("*")) == kept | {file}  # the runs' folder is as it was
    found, last = json.loads(file.read_text()), numbers(plain)[-1]
    assert found["last_round"] == {"top1": last["top1"], "loss": last["loss"]}

    server, *ranks = found["ranks"]
    about, exchange = found["round"], found["exchanges"][0]
    assert exchange["bytes"] == 2 * 16 * 3 * 4 and about["bytes"] == 2 * exchange["bytes"]
    assert about["calls"] == 2 + 2  # logits, reports and checkpoints
    assert (
        set(ranks[0]["floor"]) == {"teachers", "collaborate", "local", "evaluate"} <= set(ranks[0]["phases"])
    )
    assert about["ratio"] > 0.5  # on a machine that has nothing else to do, above 1; CPU time is so on any
    assert about["cpu_ratio"] > 1 and about["cpu"] > sum(own["cpu"] for own in ranks)
    # two public batches of 16, and 20 and 2 x 24 private images
    images = [own["images_per_s"] * about["wall"] for own in ranks]
    assert 0.9 < images[1] / images[0] / ((32 + 48) / (32 + 20)) < 1.1
    assert 0 < exchange["bare_ms"]["median"] <= exchange["bare_ms"]["p99"]
    assert 0 < about["start_up"] < 100 and min(own["peak_mb"] for own in ranks) > server["peak_mb"] > 10
    assert f"wait for {about['waited_for']}" in done.stdout

    assert run(["--predict", str(file), "--participants", "2,64"], None) == 0
    shown = capsys.readouterr().out
    assert f"{about['wall']:.3f} (" in shown and " 64 │" in shown
