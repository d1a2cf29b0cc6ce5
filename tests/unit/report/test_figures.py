"""Figures from hand-made runs: what is drawn, what is said in words, and what to run where nothing is."""

import csv
import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from fccl_mpi.report import beyond, figures
from fccl_mpi.report.drawing import Omitted, Picture
from tests.unit.report.conftest import CONFIG, FCCL, SOLO, add_diagnostics, matrix
from tests.unit.report.test_tables import START, settings_in

END = matrix([62, 70, 80, 90], [16, 20, 30, 40])


def rows(picture: Picture) -> list[dict[str, str]]:
    """The data behind a figure."""
    assert picture.png.startswith(b"\x89PNG") and ET.fromstring(picture.svg) is not None
    return list(csv.DictReader(io.StringIO(picture.csv)))


@pytest.fixture
def setting(make_run, tmp_path):
    """FCCL, FCCL without continual learning and SOLO; diagnostics of the first seed."""
    make_run(SOLO, 0, [matrix([60, 70, 80, 90], [10, 20, 30, 40])], rounds=0)
    for seed, shift in ((0, 0), (1, 4)):
        for method in (FCCL, {**FCCL, "distillation": False}):
            end = (np.array(END) + shift).tolist()
            run = make_run(method, seed, [START, START, end])
            if seed == 0:
                add_diagnostics(run)
    _, (setting,) = settings_in(tmp_path)
    return setting


def test_figure_4_embeds_the_first_participants_features_of_two_domains(setting):
    picture = figures.figure4(setting)
    data = rows(picture)
    assert len(data) == 2 * 2 * 40 and {row["domain"] for row in data} == {"mnist", "usps"}
    assert {row["local loss"] for row in data} == {"cross entropy (CE)", "whole local loss"}
    assert "mnist → usps, whole local loss: 0.7" in picture.alt  # classes 9 apart with noise of 1
    assert picture == figures.figure4(setting)  # every run of the program draws the same


def test_figure_5_shows_each_participants_matrices(setting):
    picture = figures.figure5(setting)
    data = rows(picture)
    assert len(data) == 4 * 2 * 4 * 4
    assert {row["M"] for row in data if row["u"] == row["v"]} == {"1.0"}
    assert "mnist public 1.00 and -0.50; mnist private 1.00 and -0.50; usps public" in picture.alt


def test_figure_6_has_a_band_over_seeds_and_the_local_loss(setting):
    picture = figures.figure6(setting, "top1")
    data = {(row["method"], row["quantity"], row["round"]): row for row in rows(picture)}
    last = data["fccl", "intra", "2"]  # 75.5 and 79.5
    assert (float(last["mean"]), float(last["std"]), last["n"]) == (77.5, pytest.approx(8**0.5), "2")
    assert float(data["fccl", "local loss", "1"]["mean"]) == 0.5 and ("fccl", "local loss", "0") not in data
    assert data["solo", "intra", "0"]["std"] == "" and ("solo", "local loss", "1") not in data
    assert "fccl from 50.0 to 77.5 %" in picture.alt


def test_figures_7_and_8_span_public_sets_and_take_the_papers_numbers(setting, make_run, tmp_path):
    other = {**CONFIG["public"], "name": "fashion_mnist"}
    make_run(FCCL, 0, [START, START, START], public=other)
    make_run(FCCL, 0, [START, START, START], public=other, lr=0.1)  # another setting, in no bar
    _, settings = settings_in(tmp_path)
    family = next(some for some in figures.families_of(settings) if len(some) == 2)
    picture = figures.figure7(family, "top1", "final", with_paper=True)
    data = {(row["public set"], row["quantity"]): row for row in rows(picture)}
    assert float(data["cifar100", "mnist"]["mean"]) == 18 and data["cifar100", "mnist"]["paper"] == "20.74"
    assert float(data["cifar100", "overall"]["mean"]) == (77.5 + 28.5) / 2
    assert data["fashion_mnist", "mean"]["mean"] == "10.0" and data["fashion_mnist", "mean"]["n"] == "1"
    picture = figures.figure8(family, "top1", "final", with_paper=True)
    data = {(row["part"], row["quantity"]): row for row in rows(picture)}
    assert set(data) == {(p, f"{of} cifar100") for p in ("with", "without") for of in ("inter", "intra")}
    assert data["without", "intra cifar100"]["paper"] == "82.07"


def test_who_learns_from_whom_is_the_difference_to_solo(setting):
    picture = beyond.accuracy_matrices(setting, "top1", "final")
    data = {(row["method"], row["participant"], row["on"]): row for row in rows(picture)}
    assert float(data["fccl", "mnist", "usps"]["percent"]) == 18
    assert float(data["fccl", "mnist", "usps"]["points over solo"]) == 8
    assert "fccl gains most where mnist meets usps, +8.0 points" in picture.alt


def test_bytes_are_summed_over_rounds(setting):
    data = {
        (row["method"], row["round"]): row for row in rows(beyond.accuracy_against_bytes(setting, "top1"))
    }
    assert [data["fccl", str(r)]["MB so far"] for r in range(3)] == ["0.0", "0.001", "0.002"]
    assert float(data["fccl", "2"]["overall accuracy"]) == (77.5 + 28.5) / 2


def test_the_time_of_a_round_is_split_without_counting_a_wait_twice(setting):
    # of 2 s: 0.25 local, evaluate and exchange each, nothing left of collaborate, 1.25 s waited
    data = rows(beyond.time_by_phase(setting))
    assert {(r["collaborate"], r["local"], r["exchange"], r["wait"]) for r in data} == {
        ("0.0", "0.25", "0.25", "1.25")
    }
    assert "solo" not in {row["method"] for row in data}


def test_what_is_missing_is_said_with_what_to_run(make_run, tmp_path):
    make_run(SOLO, 0, [START], rounds=0)
    _, settings = settings_in(tmp_path)
    (setting,) = settings
    omitted = [
        figures.figure4(setting),
        figures.figure5(setting),
        figures.figure6(setting, "top1"),
        figures.figure7(settings, "top1", "final", False),
        figures.figure8(settings, "top1", "final", False),
        beyond.accuracy_against_bytes(setting, "top1"),
        beyond.time_by_phase(setting),
    ]
    assert all(isinstance(figure, Omitted) and figure.what_to_run.endswith(".") for figure in omitted)
    assert "method=fccl method.distillation=false" in omitted[0].what_to_run


def test_a_model_without_features_leaves_figure_4_out(make_run, tmp_path):
    from fccl_mpi.store.diagnostics import merge, write_part
    from tests.unit.report.conftest import NAMES

    for method in (FCCL, {**FCCL, "distillation": False}):
        run = make_run(method, 0, [START, START, END])
        for name in NAMES:
            write_part(run, name, {"public": np.eye(4), "private": np.eye(4)})
        merge(run, NAMES, round=2, domains=NAMES)
    _, (setting,) = settings_in(tmp_path)
    assert "gives no features" in figures.figure4(setting).what_to_run
    assert isinstance(figures.figure5(setting), Picture)
