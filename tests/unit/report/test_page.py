"""The command, its files, and the page in a real browser."""

import re
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from fccl_mpi.report.__main__ import main
from tests.conftest import skip_suite
from tests.unit.report.conftest import CONFIG, FCCL, SOLO, add_diagnostics, matrix, write_run
from tests.unit.report.test_figures import END
from tests.unit.report.test_tables import START


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """The report of a few runs, one of them unfinished, with a name that HTML must not take for its own."""
    folder = tmp_path_factory.mktemp("report")
    make_run = partial(write_run, folder / "runs")
    make_run(SOLO, 0, [matrix([60, 70, 80, 90], [10, 20, 30, 40])], rounds=0)
    for method in (FCCL, {**FCCL, "distillation": False}):
        add_diagnostics(make_run(method, 0, [START, START, END]))
    make_run({"name": "<script>alert(1)</script>"}, 0, [START, START, START])
    make_run(FCCL, 2, [START])
    make_run(FCCL, 0, [START, START, END], public={**CONFIG["public"], "name": "imagenet"})
    assert main([str(folder / "runs"), "--out", str(folder / "report"), "--with-paper"]) == 0
    return folder / "report"


def test_tables_and_figures_are_files_too_and_the_page_needs_no_network(report):
    slug = "digits-cifar100-r2"
    tables = {path.name for path in (report / "tables").iterdir()}
    assert {f"{slug}-table1.{ending}" for ending in ("csv", "md", "tex")} <= tables
    figures = {path.name for path in (report / "figures").iterdir()}
    for name in ("fig4", "fig5", "fig6", "fig7", "fig8", "matrix", "bytes", "time"):
        assert {f"{slug}-{name}.{ending}" for ending in ("png", "svg", "csv")} <= figures
    page = (report / "report.html").read_text()
    links = re.findall(r'(?:src|href)="(?!data:|#)([^"]*)"', page)
    assert links == [] and "@import" not in page and "url(http" not in page
    assert "<script>alert(1)" not in page
    assert len(re.findall(r'role="img" aria-label="[^"]{60,}"', page)) == page.count("<figure>")
    targets = set(re.findall(r'\bid="([^"]+)"', page))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', page)) <= targets


def test_equal_runs_give_equal_bytes_and_a_summary(make_run, tmp_path, capsys):
    for seed in (0, 1):
        add_diagnostics(make_run(FCCL, seed, [START, START, END]))
    make_run(FCCL, 2, [START])
    for name in "ab":
        assert main([str(tmp_path / "runs"), "--out", str(tmp_path / name)]) == 0
    for path in (tmp_path / "a").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == [
        "3 run folders: 2 finished, 1 unfinished",
        "digits, public set cifar100, 2 rounds: fccl (2)",
    ]


def test_errors_are_one_sentence_with_exit_code_2(tmp_path, make_run, capsys):
    assert main([str(tmp_path), "--out", str(tmp_path / "report")]) == 2
    assert "there is no run folder" in capsys.readouterr().err and not (tmp_path / "report").exists()
    run = make_run(FCCL, 0, [START] * 3)
    for words, message in (
        (["--rule", "worst"], "--rule worst is not one of final, best, last3"),
        (["--only", "table9"], "--only table9 is not one of table1, table2"),
        (["--measure", "top5"], "--measure top5: not all runs of 'digits, public set cifar100, 2 rounds'"),
    ):
        assert main([str(run), "--out", str(tmp_path / "report"), *words]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "report").exists()
    (tmp_path / "file").touch()
    assert main([str(run), "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_missing_extra_is_named(make_run, tmp_path):
    run = make_run(FCCL, 0, [START] * 3)
    code = (
        "import sys; sys.modules['matplotlib'] = None; from fccl_mpi.report.__main__ import main; "
        f"sys.exit(main([{str(run)!r}, '--out', {str(tmp_path / 'report')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and 'pip install "fccl_mpi[report]"' in done.stderr, done.stderr
    assert not (tmp_path / "report").exists()


def test_three_hundred_runs_take_less_than_twenty_seconds(make_run, tmp_path):
    for seed in range(20):
        make_run(SOLO, seed, [START], rounds=0)
        for weight in range(14):
            run = make_run({**FCCL, "off_diag_weight": weight / 100}, seed, [START, START, END])
            if not seed:
                add_diagnostics(run)
    begun = time.process_time()
    assert main([str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    assert time.process_time() - begun < 20
    table = (tmp_path / "report" / "tables" / "digits-cifar100-r2-table1.csv").read_text()
    assert len(table.splitlines()) == 16


@pytest.fixture
def browser():
    """Headless Chromium, as apt-get install chromium chromium-driver has it."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        skip_suite("chromium", "there is no chromium: apt-get install chromium chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=390,800"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def test_the_page_in_a_browser(report, browser):
    browser.get((report / "report.html").as_uri())
    first = browser.find_element("css selector", "section table")
    button = first.find_elements("css selector", "th button")[-1]

    def order() -> list[str]:
        return [row.text for row in first.find_elements("css selector", "tbody td:first-child")]

    own, ablated = "<script>alert(1)</script>", "fccl distillation=false"
    assert order() == ["solo", "fccl", ablated, own]
    button.click()
    assert order() == ["fccl", ablated, "solo", own]  # means of 26.5, 26.5, 25 and 10
    button.click()
    assert order() == [own, "solo", "fccl", ablated]
    assert button.find_element("xpath", "..").get_attribute("aria-sort") == "ascending"

    def ground() -> str:
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    def scheme(value: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": value}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    scheme("light")
    light = ground()
    scheme("dark")
    assert light != ground()
    text = "return getComputedStyle(document.querySelector('figure svg text')).fill"
    body = "return getComputedStyle(document.body).color"
    assert browser.execute_script(text) == browser.execute_script(body)  # figures follow
    wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not browser.execute_script(wide)  # on a phone, only tables and figures scroll sideways
    assert browser.get_log("browser") == []
