"""The whole report: run folders in; report.html, tables and figures out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import explaining, replacing
from fccl_mpi.report import beyond, figures, page, paper
from fccl_mpi.report.drawing import Omitted, Picture
from fccl_mpi.report.runs import Run, Setting, find, mark_duplicates, read_run, settings_of
from fccl_mpi.report.statistics import RULES
from fccl_mpi.report.tables import Table, tables_of, unused_table

OF_A_SETTING = {
    "fig4": lambda setting, choice: figures.figure4(setting),
    "fig5": lambda setting, choice: figures.figure5(setting),
    "fig6": lambda setting, choice: figures.figure6(setting, choice.measure_of(setting)),
    "matrix": lambda setting, choice: beyond.accuracy_matrices(
        setting, choice.measure_of(setting), choice.rule
    ),
    "bytes": lambda setting, choice: beyond.accuracy_against_bytes(setting, choice.measure_of(setting)),
    "time": lambda setting, choice: beyond.time_by_phase(setting),
}
OF_A_FAMILY = {"fig7": figures.figure7, "fig8": figures.figure8}
TABLES = ("table1", "table2", "table3", "differences", "ledger")
PARTS = (*TABLES, *OF_A_SETTING, *OF_A_FAMILY)


@dataclass(kw_only=True)
class Choice:
    """What of the runs is shown, and how."""

    rule: str = "final"
    """Which rounds count; see `statistics.RULES`."""
    measure: str = ""
    """"top1" or "top5"; empty: the paper's for each scenario."""
    with_paper: bool = False
    """The paper's own numbers beside one's own."""
    draw: int = 3
    """How many settings get figures, those with most runs first."""
    only: Sequence[str] = PARTS
    """Tables and figures by name."""

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("rule", self.rule, RULES),
            *(("only", part, PARTS) for part in self.only),
        ):
            if value not in choices:
                raise UserError(f"--{name} {value} is not one of {', '.join(choices)}")

    def measure_of(self, setting: Setting) -> str:
        """The measure that a setting's numbers are. Raises UserError where its runs have no such numbers."""
        lines = (
            line for variant in setting.variants for run in variant.runs.values() for line in run.evaluated
        )
        if self.measure and any(line.get(self.measure) is None for line in lines):
            raise UserError(f"--measure {self.measure}: not all runs of '{setting.title}' have it")
        return self.measure or paper.measure_of(setting)


@dataclass(kw_only=True)
class Section:
    """A part of the page: a setting, or several that differ in the public set."""

    title: str
    slug: str
    tables: list[Table] = field(default_factory=list)
    figures: list[Picture | Omitted] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def make(paths: Sequence[Path], out: Path, choice: Choice) -> str:
    """Read the runs at or below ``paths``, write the report to ``out``, and say what it holds.

    Raises UserError where there are no run folders, or where ``out`` cannot be written.
    """
    runs = [read_run(path) for path in find(paths)]
    mark_duplicates(runs)
    settings = settings_of(runs)
    sections = [section_of(setting, choice, place < choice.draw) for place, setting in enumerate(settings)]
    sections += [across(family, choice) for family in figures.families_of(settings)[: choice.draw]]
    sections = [section for section in sections if section.tables or section.figures]
    unused = unused_table(runs, settings)
    with explaining(out, "let --out name another folder"):
        write_files(out, sections, unused)
        with replacing(out / "report.html") as temporary:
            temporary.write_text(page.render(runs, sections, unused), encoding="utf-8")
    return summary(runs, settings, out)


def section_of(setting: Setting, choice: Choice, draw: bool) -> Section:
    """Tables and figures of one setting."""
    section = Section(title=setting.title, slug=setting.slug)
    tables = tables_of(
        setting, measure=choice.measure_of(setting), rule=choice.rule, with_paper=choice.with_paper
    )
    section.tables = [table for table in tables if table.name in choice.only]
    if draw:
        section.figures = [
            figure(setting, choice) for name, figure in OF_A_SETTING.items() if name in choice.only
        ]
    else:
        section.notes.append("Without figures, since other settings have more runs: raise --draw.")
    return section


def across(family: Sequence[Setting], choice: Choice) -> Section:
    """Figures of settings that differ in the public set alone."""
    measure = choice.measure_of(family[0])
    shown = [
        figure(family, measure, choice.rule, choice.with_paper)
        for name, figure in OF_A_FAMILY.items()
        if name in choice.only
    ]
    title = f"Across public sets: {family[0].title.replace(f'public set {family[0].public}, ', '')}"
    return Section(title=title, slug=f"{family[0].slug}-public-sets", figures=shown)


def write_files(out: Path, sections: Sequence[Section], unused: Table | None) -> None:
    """Tables as CSV, Markdown and LaTeX, figures as PNG and SVG with their data as CSV."""
    for folder in ("tables", "figures"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    named = [(f"{section.slug}-{table.name}", table) for section in sections for table in section.tables]
    for name, table in [*named, *([("unused", unused)] if unused else [])]:
        for ending, text in (("csv", table.csv), ("md", table.markdown), ("tex", table.latex)):
            (out / "tables" / f"{name}.{ending}").write_text(text, encoding="utf-8")
    for section in sections:
        for figure in section.figures:
            if isinstance(figure, Picture):
                (out / "figures" / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
                (out / "figures" / f"{figure.name}.csv").write_text(figure.csv, encoding="utf-8")
                (out / "figures" / f"{figure.name}.png").write_bytes(figure.png)


def summary(runs: Sequence[Run], settings: Sequence[Setting], out: Path) -> str:
    """What was found, in a few lines."""
    states = Counter(run.status for run in runs)
    lines = [
        f"{len(runs)} run folders: " + ", ".join(f"{count} {state}" for state, count in states.most_common())
    ]
    for setting in settings:
        lines.append(f"{setting.title}: " + ", ".join(f"{v.label} ({len(v.runs)})" for v in setting.variants))
    return "\n".join([*lines, f"everything lies in {out}, open {out / 'report.html'}"])
