"""Tables and figures of the paper: the plan behind each, and all of them from an empty folder."""

import csv
import os
import subprocess
import sys

import pytest

from fccl_mpi.core.errors import UserError
from fccl_mpi.methods.registry import METHODS
from fccl_mpi.reproduce import PLANS, plan
from fccl_mpi.sweep.__main__ import make_parser
from fccl_mpi.sweep.sweep import Sweep
from tests.conftest import PRESETS
from tests.mpi.conftest import OPEN_MPI
from tests.unit.test_floors import ROOT

COMPARED = ["solo", "fedmd", "fml", "rcfl", "feddf", "fedmatch", "fccl"]


@pytest.mark.parametrize("target", PLANS)
def test_each_target_plans_the_runs_that_it_draws(target, tiny_data, tmp_path):
    more = [f"--config-dir={PRESETS}", f"data={tiny_data}", f"out={tmp_path}", "rounds=1"]
    if target in ("fig7", "fig8"):
        more.append("public=noise,photos")
    words = plan(target, "tiny", 2, more)
    configs = list(Sweep(make_parser().parse_intermixed_args(words), METHODS).configs.values())
    assert {(config.scenario, config.rounds) for config in configs} == {("tiny", 1)}
    seen = {
        (config.seed, config.method.name, getattr(config.method, "distillation", True), config.public.name)
        for config in configs
    }
    methods = {
        **dict.fromkeys(("table1", "table2", "fig6"), COMPARED),
        "table3": [*COMPARED, "fedavg"],
    }.get(target, ["fccl"])
    continual = [True, False] if target in ("fig4", "fig8") else [True]
    publics = ["noise", "photos"] if target in ("fig7", "fig8") else ["noise"]
    assert len(seen) == len(configs)
    assert seen == {(s, m, c, p) for s in (0, 1) for m in methods for c in continual for p in publics}
    assert {config.homogeneous for config in configs} == {target == "table3"}
    assert not list(tmp_path.iterdir())


def test_every_scenario_compares_the_public_sets_that_it_has():
    assert "public=cifar100,imagenet,fashion_mnist" in plan("fig7", "digits", 3, [])
    assert "public=photos,letters" in plan("fig8", "quickstart", 3, [])
    assert "public=noise,photos" in plan("fig8", "tiny", 3, ["public=noise,photos"])
    with pytest.raises(UserError, match="fig7 compares public sets: name some for scenario=tiny"):
        plan("fig7", "tiny", 3, [])


def test_all_tables_and_figures_of_the_quickstart_from_an_empty_folder(tmp_path):
    """Each target as a user types it, but for two participants of slim models and few images."""
    slim = [
        *("~participants.optdigits", "~participants.mnist_m", "rounds=1", "pretrain_epochs=1"),
        *("public_size=64", "public_batch_size=32", "test_size=40", "threads=1", "homogeneous_width=0.125"),
        "homogeneous_model=resnet10",
        *(f"participants.{name}.model=resnet10" for name in ("mnist", "syn")),
        *(f"participants.{name}.width=0.125" for name in ("mnist", "syn")),
        *(f"participants.{name}.private_size=40" for name in ("mnist", "syn")),
    ]
    drawn, made = {}, {}
    for target in PLANS:
        done = subprocess.run(
            [sys.executable, "-m", "fccl_mpi.reproduce", target, "--seeds=1", *slim],
            capture_output=True,
            text=True,
            timeout=400,
            cwd=tmp_path,
            env={**os.environ, **OPEN_MPI, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        report = tmp_path / "report" / f"{target}-quickstart"
        assert "Not drawn" not in (report / "report.html").read_text()
        drawn[target] = [path.stem for path in report.glob("*/*.csv") if target in path.stem]
        there = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
        assert made.items() <= there.items(), "what is finished is not run again"
        assert target not in ("table2", "fig5", "fig6") or there == made
        made = there
    assert all(drawn.values()), drawn
    (path,) = (tmp_path / "report/table1-quickstart/tables").glob("*table1.csv")
    rows = list(csv.DictReader(path.open()))
    assert sorted((row["method"], row["n"]) for row in rows) == [(method, "1") for method in sorted(COMPARED)]
    assert all(0 <= float(row["mean"]) <= 100 for row in rows)


def test_an_own_setting_replaces_the_plans():
    words = plan("table1", "quickstart", 3, ["method=fccl", "seed=7"])
    assert words == ["scenario=quickstart", "method=fccl", "seed=7"]
