"""Tables from hand-made runs, each cell recomputed by hand."""

import csv
import io
import json
from pathlib import Path

import pytest

from fccl_mpi.core.errors import UserError
from fccl_mpi.report import paper
from fccl_mpi.report.runs import find, mark_duplicates, read_run, settings_of
from fccl_mpi.report.statistics import confidence
from fccl_mpi.report.tables import Table, tables_of, unused_table
from tests.unit.report.conftest import CONFIG, FCCL, SOLO, matrix

START = matrix([50, 50, 50, 50], [10, 10, 10, 10])


def settings_in(*paths: Path):
    """All runs below, and the settings of those that can be used."""
    runs = [read_run(path) for path in find(paths)]
    mark_duplicates(runs)
    return runs, settings_of(runs)


def tables_in(*paths: Path, rule: str = "final", with_paper: bool = False) -> dict[str, Table]:
    """The tables of the only setting, by name."""
    _, (setting,) = settings_in(*paths)
    return {
        table.name: table for table in tables_of(setting, measure="top1", rule=rule, with_paper=with_paper)
    }


def cells(table: Table) -> dict[str, list[str]]:
    """What is shown, by row."""
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}


@pytest.fixture
def two_methods(make_run, tmp_path):
    """FCCL with two seeds and SOLO with one, which has no rounds."""
    make_run(SOLO, 0, [matrix([60, 70, 80, 90], [10, 20, 30, 40])], rounds=0)
    for seed, shift in ((0, 0), (1, 4)):
        rounds = [START, START, matrix([61 + shift, 70, 80, 91], [16 + shift, 20, 30, 40])]
        make_run(FCCL, seed, rounds)
    return tmp_path / "runs"


def test_tables_1_and_2_are_means_and_deviations_over_seeds(two_methods):
    tables = tables_in(two_methods)
    # mnist inter: 16 and 20, mean 18, deviation 2.83; mean of participants: 26.5 and 27.5
    assert tables["table1"].columns == ["method", "n", "mnist →", "usps →", "svhn →", "syn →", "mean"]
    assert cells(tables["table1"]) == {
        "solo": ["1", "10.00", "20.00", "30.00", "40.00", "25.00"],
        "fccl": ["2", "18.00 ± 2.83", "20.00 ± 0.00", "30.00 ± 0.00", "40.00 ± 0.00", "27.00 ± 0.71"],
    }
    # mnist intra: 61 and 65; mean of participants: 75.5 and 76.5
    assert cells(tables["table2"]) == {
        "solo": ["1", "60.00", "70.00", "80.00", "90.00", "75.00"],
        "fccl": ["2", "63.00 ± 2.83", "70.00 ± 0.00", "80.00 ± 0.00", "91.00 ± 0.00", "76.00 ± 0.71"],
    }
    solo, fccl = tables["table2"].rows
    assert [cell.mark for cell in solo[2:]] == ["", "underline", "underline", "", ""]
    assert [cell.mark for cell in fccl[2:]] == ["underline"] * 4 + ["bold"]
    assert "the seeds 0, 1" in tables["table1"].caption and "the last round" in tables["table1"].caption


def test_differences_are_paired_by_seed_with_a_t_interval(two_methods, make_run):
    make_run(SOLO, 1, [matrix([60, 70, 80, 90], [10, 20, 30, 40])], rounds=0)
    # inter: 26.5 − 25 and 27.5 − 25, mean 2, deviation √0.5, t(1) = 12.7062: 2 ± 12.7062 × 0.5
    table = tables_in(two_methods)["differences"]
    assert table.columns[1:4] == ["inter − solo", "intra − solo", "n with solo"]
    assert cells(table)["fccl"][:3] == ["+2.00 [-4.35, +8.35]", "+1.00 [-5.35, +7.35]", "2"]
    assert cells(table)["solo"][3:] == ["-2.00 [-8.35, +4.35]", "-1.00 [-7.35, +5.35]", "2"]
    assert cells(table)["solo"][:3] == ["–", "–", "–"]


def test_one_common_seed_gives_a_difference_without_an_interval(two_methods):
    table = tables_in(two_methods)["differences"]
    assert cells(table)["fccl"][:3] == ["+1.50", "+0.50", "1"]
    assert confidence([1.5]) is None


@pytest.mark.parametrize(
    ("rule", "inter", "words"),
    [
        ("final", "10.00", "the last round"),
        ("best", "40.00", "chosen on the test images"),  # round 1: 50 / 40
        ("last3", "25.00", "the mean of the last three rounds"),  # (40 + 25 + 10) / 3
    ],
)
def test_the_rule_says_which_rounds_count(make_run, tmp_path, rule, inter, words):
    rounds = [matrix([50] * 4, [value] * 4) for value in (0, 40, 25, 10)]
    rounds.insert(2, None)  # evaluate_every has passed it over
    make_run(FCCL, 0, rounds, rounds=4)
    table = tables_in(tmp_path, rule=rule)["table1"]
    assert cells(table)["fccl"][-1] == inter
    assert words in table.caption


def test_table_3_has_both_measures_for_one_architecture(make_run, tmp_path):
    make_run(FCCL, 0, [START, START, matrix([61, 70, 80, 91], [16, 20, 30, 40])], homogeneous=True)
    tables = tables_in(tmp_path)
    assert "table1" not in tables and "table2" not in tables
    assert tables["table3"].columns[2:] == [
        *(f"inter {name}" for name in ("mnist →", "usps →", "svhn →", "syn →", "mean")),
        *(f"intra {name}" for name in ("mnist", "usps", "svhn", "syn", "mean")),
    ]
    assert cells(tables["table3"])["fccl"][1:] == [
        *("16.00", "20.00", "30.00", "40.00", "26.50"),
        *("61.00", "70.00", "80.00", "91.00", "75.50"),
    ]


def test_the_papers_numbers_stand_beside_and_never_in_the_means(two_methods):
    with_paper, without = (tables_in(two_methods, with_paper=some)["table1"] for some in (True, False))
    assert [cell.paper for cell in with_paper.rows[1][2:]] == [
        20.74,
        20.60,
        44.68,
        48.02,
        pytest.approx(33.51),
    ]
    assert cells(with_paper) == cells(without) and without.rows[1][2].paper is None
    assert (
        "18.00 ± 2.83</u> (p 20.74)" in with_paper.markdown and "the paper's own number" in with_paper.caption
    )


def test_where_the_paper_has_no_numbers_it_is_said(make_run, tmp_path):
    make_run(FCCL, 0, [START] * 3, public={**CONFIG["public"], "name": "photos"})
    table = tables_in(tmp_path, with_paper=True)["table1"]
    assert all(cell.paper is None for row in table.rows for cell in row)
    assert "The paper has no numbers" in table.caption


def test_csv_markdown_and_latex_say_the_same(two_methods):
    table = tables_in(two_methods)["table1"]
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(table.csv))}
    assert rows["fccl"]["mnist →"] == "18.0" and float(rows["fccl"]["mnist → std"]) == pytest.approx(8**0.5)
    assert rows["solo"]["mnist → std"] == "" and rows["solo"]["n"] == "1"
    assert "| fccl | 2 | <u>18.00 ± 2.83</u> |" in table.markdown and "**27.00 ± 0.71**" in table.markdown
    assert (
        r"fccl & 2 & \underline{18.00 $\pm$ 2.83}" in table.latex
        and r"\textbf{27.00 $\pm$ 0.71}" in table.latex
    )


def test_the_ledger_adds_up_bytes_and_time(two_methods):
    # 1000 bytes in each of 2 rounds; overall (75.5 + 26.5) / 2 and (76.5 + 27.5) / 2, solo (75 + 25) / 2
    table = tables_in(two_methods)["ledger"]
    assert table.columns[2:5] == ["MB a round", "MB a run", "s a round"]
    assert cells(table)["fccl"] == ["–", "0.001", "0.002", "2.0", "51.50", "+1.00", "+500.00"]
    assert cells(table)["solo"] == ["–", "0", "0", "–", "50.00", "–", "–"]


def test_what_cannot_be_used_is_listed_and_in_no_number(two_methods, make_run, tmp_path):
    bad = matrix([0] * 4, [0] * 4)
    unfinished = make_run(FCCL, 2, [START, bad])
    empty = make_run(FCCL, 7, [])
    nan = make_run(FCCL, 3, [START, START, matrix([float("nan")] * 4, [0] * 4)])
    wide = make_run(FCCL, 4, [START, START, [[1.0, 2.0]]])
    torn = make_run(FCCL, 5, [START, START, bad])
    (torn / "metrics.jsonl").write_text((torn / "metrics.jsonl").read_text()[:-20] + "}\n")
    lossless = make_run(FCCL, 6, [START, START, bad])
    text = (lossless / "metrics.jsonl").read_text().replace('"local": 0.5', '"local": NaN')
    (lossless / "metrics.jsonl").write_text(text)
    again = make_run(FCCL, 0, [START, START, bad], device="cuda")  # which does not bear on numbers
    foreign = tmp_path / "runs" / "foreign"
    foreign.mkdir()
    (foreign / "config.yaml").write_text("model: gpt\n")
    broken = tmp_path / "runs" / "broken"
    broken.mkdir()
    (broken / "config.yaml").write_text("a: [1\n")

    before = cells(tables_in(two_methods)["table1"])
    assert before["fccl"][0] == "2" and before["fccl"][-1] == "27.00 ± 0.71"
    runs, settings = settings_in(two_methods)
    told = {row[2].text: (row[0].text, row[3].text) for row in unused_table(runs, settings).rows}
    first = next(run.path for run in runs if run.status == "finished" and run.method == "fccl")
    assert told == {
        str(unfinished): ("unfinished", "it has 1 of 2 rounds"),
        str(empty): ("unfinished", "it has no round yet"),
        str(nan): ("failed", "round 2: top1 is not finite"),
        str(wide): ("failed", "round 2: top1 is (1, 2), for 4 participants"),
        str(torn): ("failed", told[str(torn)][1]),
        str(lossless): ("failed", "round 1: a loss is not finite"),
        str(again): ("duplicate", f"it repeats {first}"),
        str(foreign): (
            "foreign",
            "its config.yaml lacks scenario, task, method, participants, public, seed, rounds",
        ),
        str(broken): ("foreign", told[str(broken)][1]),
        settings[0].title: ("missing", "others have a finished run of this seed"),  # SOLO of seed 1
    }
    assert "metrics.jsonl cannot be read" in told[str(torn)][1]
    assert "cannot be read" in told[str(broken)][1]


def test_office_home_is_told_in_top_5_as_in_the_paper(make_run, tmp_path):
    names = ("art", "clipart", "product", "real_world")
    participants = {name: {"domain": name, "model": "resnet18", "width": 1.0} for name in names}
    run = make_run(
        FCCL, 0, [START] * 3, scenario="office_home", task="office_home", participants=participants
    )
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["top5"] = matrix([90] * 4, [70] * 4)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, (setting,) = settings_in(tmp_path)
    assert paper.measure_of(setting) == "top5"
    table = tables_of(setting, measure="top5", rule="final", with_paper=True)[0]
    assert cells(table)["fccl"][-1] == "70.00" and table.rows[0][2].paper == 25.55
    assert table.caption.startswith("Top-5 accuracy")


def test_a_line_that_is_being_written_is_not_read(make_run):
    path = make_run(FCCL, 0, [START] * 3)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "to')
    assert read_run(path).status == "finished"


def test_settings_are_kept_apart_and_solo_serves_all_that_it_fits(make_run, tmp_path):
    make_run(SOLO, 0, [matrix([60] * 4, [10] * 4)], rounds=0)
    other = {**CONFIG["public"], "name": "imagenet"}
    end = matrix([70] * 4, [20] * 4)
    make_run(FCCL, 0, [START, START, end])
    make_run(FCCL, 0, [START, START, end], public=other)
    make_run(FCCL, 0, [START, end], rounds=1)
    make_run(FCCL, 0, [START, START, end], lr=0.01)
    _, settings = settings_in(tmp_path)
    assert {setting.title: [variant.label for variant in setting.variants] for setting in settings} == {
        "digits, public set cifar100, 2 rounds, lr=0.001": ["solo", "fccl"],
        "digits, public set imagenet, 2 rounds, lr=0.001": ["solo", "fccl"],
        "digits, public set cifar100, 1 rounds, lr=0.001": ["solo", "fccl"],
        "digits, public set cifar100, 2 rounds, lr=0.01": ["fccl"],
    }
    assert len({setting.slug for setting in settings}) == 4


def test_a_solo_run_of_the_setting_itself_goes_before_a_borrowed_one(make_run, tmp_path):
    make_run(SOLO, 0, [matrix([60] * 4, [10] * 4)], rounds=0)
    own = make_run(SOLO, 0, [matrix([60] * 4, [10] * 4)] * 3)
    make_run(FCCL, 0, [START] * 3)
    _, (setting,) = settings_in(tmp_path)
    assert setting.base("solo").runs[0].path == own


def test_a_method_is_the_variant_nearest_to_its_defaults(make_run, tmp_path):
    for changes in ({"distillation": False}, {}, {"off_diag_weight": 0.1}):
        make_run({**FCCL, **changes}, 0, [START] * 3)
    _, (setting,) = settings_in(tmp_path)
    assert [variant.label for variant in setting.variants] == [
        "fccl",
        "fccl distillation=false",
        "fccl off_diag_weight=0.1",
    ]
    assert setting.base("fccl").parameters["distillation"] is True


def test_means_are_those_that_the_run_recorded(tiny):
    from fccl_mpi.report.statistics import mean_of
    from tests.unit.federation.test_federation import TWO, federate

    folder = federate(tiny(*TWO, "scenario=skewed", "rounds=1", "participants.red.private_size=0"))
    run = read_run(folder.path)
    last = json.loads((folder.path / "metrics.jsonl").read_text().splitlines()[-1])
    assert run.status == "finished"
    for of in ("intra", "inter"):
        assert mean_of(run, of, "top1", "final") == pytest.approx(last[f"{of}_top1"])


def test_paths_without_runs_are_refused(tmp_path):
    with pytest.raises(UserError, match="there is no run folder"):
        find([tmp_path])
    with pytest.raises(UserError, match="is no folder"):
        find([tmp_path / "nowhere"])
