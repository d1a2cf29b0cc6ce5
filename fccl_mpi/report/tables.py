"""The paper's tables and those it has not, from the runs of a setting; tables as CSV, Markdown, LaTeX."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fccl_mpi.report import paper
from fccl_mpi.report.runs import Run, Setting
from fccl_mpi.report.statistics import (
    CONFIDENCE,
    RULES,
    Sample,
    accuracies,
    confidence,
    inter,
    intra,
    mean_of,
    paired,
    sample,
)

Values = Callable[[np.ndarray, Sequence[str]], np.ndarray]  # of an accuracy matrix and its domains, (K,)


@dataclass(kw_only=True)
class Cell:
    """One cell: what is shown, what it is sorted by, and what the CSV has."""

    text: str
    value: float | None = None
    data: dict[str, float | int | str | None] = field(default_factory=dict)
    """Columns of the CSV below this one's, by the end of their names."""
    mark: str = ""
    """"bold" or "underline"."""
    paper: float | None = None


@dataclass(kw_only=True)
class Table:
    """A table; the first column names the row."""

    name: str
    title: str
    caption: str
    columns: list[str]
    rows: list[list[Cell]]

    @property
    def csv(self) -> str:
        """Comma-separated values, unrounded."""
        ends = [
            list(dict.fromkeys(end for row in self.rows for end in row[i].data))
            for i in range(len(self.columns))
        ]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            [f"{name}{end}" for name, some in zip(self.columns, ends, strict=True) for end in some]
        )
        for row in self.rows:
            writer.writerow(
                [cell.data.get(end) for cell, some in zip(row, ends, strict=True) for end in some]
            )
        return out.getvalue()

    @property
    def markdown(self) -> str:
        """A Markdown table and its caption."""
        marks = {"": "{}", "bold": "**{}**", "underline": "<u>{}</u>"}
        lines = [[_markdown(name) for name in self.columns], ["---", *["--:"] * (len(self.columns) - 1)]]
        for row in self.rows:
            lines.append([marks[cell.mark].format(_markdown(cell.text)) + _beside(cell) for cell in row])
        return (
            "\n".join("| " + " | ".join(line) + " |" for line in lines)
            + f"\n\n{self.title}. {self.caption}\n"
        )

    @property
    def latex(self) -> str:
        """A table environment for the package booktabs."""
        marks = {"": "{}", "bold": r"\textbf{{{}}}", "underline": r"\underline{{{}}}"}
        body = [" & ".join(map(_latex, self.columns)) + r" \\", r"\midrule"]
        for row in self.rows:
            cells = [marks[cell.mark].format(_latex(cell.text)) + _latex(_beside(cell)) for cell in row]
            body.append(" & ".join(cells) + r" \\")
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_latex(f'{self.title}. {self.caption}')}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
                r"\toprule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )


def tables_of(setting: Setting, *, measure: str, rule: str, with_paper: bool) -> list[Table]:
    """The paper's tables of a setting, then differences to the baselines and what was exchanged."""
    both: list[tuple[str, Values]] = [("inter", inter), ("intra", lambda matrix, domains: intra(matrix))]
    if len(set(setting.example.domains)) < 2:
        both = both[1:]
    if setting.key.get("homogeneous"):
        groups = [("table3", "Table 3, one architecture for all: inter- and intra-domain accuracy", both)]
    else:
        titles = {
            "inter": "Table 1: inter-domain accuracy, each participant on the others' domains",
            "intra": "Table 2: intra-domain accuracy, each participant on its own domain",
        }
        groups = [(f"table{1 + (of == 'intra')}", titles[of], [(of, values)]) for of, values in both]
    caption = accuracy_caption(setting, measure, rule)
    found = [
        Table(
            name=name,
            title=title,
            caption=caption + paper_sentence(setting, with_paper),
            **accuracy_rows(setting, of, measure, rule, with_paper),
        )
        for name, title, of in groups
    ]
    if len(setting.variants) > 1:
        found.append(differences_table(setting, [of for of, _ in both], measure, rule))
    return [*found, ledger(setting, measure, rule)]


def accuracy_caption(setting: Setting, measure: str, rule: str) -> str:
    """What the numbers of a setting are."""
    seeds = ", ".join(map(str, setting.seeds))
    return (
        f"{measure.replace('top', 'Top-')} accuracy in percent, {RULES[rule]}; mean ± standard deviation "
        f"over n of the seeds {seeds} (none for n = 1). Bold: best mean; underlined: best of a domain."
    )


def paper_sentence(setting: Setting, with_paper: bool) -> str:
    """How the paper's numbers are marked, or that it has none."""
    if not with_paper:
        return ""
    if paper.numbers(setting, "inter"):
        return " In brackets after p: the paper's own number."
    return " The paper has no numbers for this scenario with this public set."


def accuracy_rows(
    setting: Setting, of: Sequence[tuple[str, Values]], measure: str, rule: str, with_paper: bool
) -> dict:
    """Columns and rows: methods × participants and their mean, for one or both of inter and intra."""
    names = setting.example.names
    columns = ["method", "n"]
    rows = [[Cell(text=v.label, data={"": v.label}), number(len(v.runs))] for v in setting.variants]
    for key, values in of:
        sign = " →" if key == "inter" else ""
        prefix = f"{key} " if len(of) > 1 else ""
        columns += [f"{prefix}{name}{sign}" for name in names] + [f"{prefix}mean"]
        theirs = paper.numbers(setting, key) if with_paper else {}
        samples = []
        for variant in setting.variants:
            each = np.array(
                [values(accuracies(run, measure, rule), run.domains) for run in variant.runs.values()]
            )
            samples.append([sample(column) for column in [*each.T, each.mean(1)]])
        best = [max(round(s.mean, 2) for s in column) for column in zip(*samples, strict=True)]
        for row, variant, mine in zip(rows, setting.variants, samples, strict=True):
            known = theirs.get(variant.label)
            paper_row = [*known, float(np.mean(known))] if known else [None] * len(mine)
            for place, (one, top, theirs_) in enumerate(zip(mine, best, paper_row, strict=True)):
                mark = "bold" if place == len(names) else "underline"
                is_best = len(samples) > 1 and round(one.mean, 2) == top
                row.append(accuracy_cell(one, mark if is_best else "", theirs_))
    return {"columns": columns, "rows": rows}


def differences_table(setting: Setting, of: Sequence[str], measure: str, rule: str) -> Table:
    """Each variant against SOLO and FCCL, seed by seed."""
    bases = [base for base in (setting.base("solo"), setting.base("fccl")) if base is not None]
    columns, rows = ["method"], [[Cell(text=v.label, data={"": v.label})] for v in setting.variants]
    for base in bases:
        columns += [*(f"{key} − {base.label}" for key in of), f"n with {base.label}"]
        for row, variant in zip(rows, setting.variants, strict=True):
            if variant is base:
                row += [number(None)] * (len(of) + 1)
                continue
            row += [difference_cell(paired(variant, base, key, measure, rule)) for key in of]
            row.append(number(len(variant.runs.keys() & base.runs.keys())))
    return Table(
        name="differences",
        title="Differences to " + " and ".join(base.label for base in bases),
        caption=f"Percentage points, the mean over the n seeds that both have, with the {CONFIDENCE:.0%} "
        "interval of Student's t over them (none for n = 1). Where it holds 0, the seeds show no difference.",
        columns=columns,
        rows=rows,
    )


def ledger(setting: Setting, measure: str, rule: str) -> Table:
    """What each method sent and took: is it worth it?"""
    solo = setting.base("solo")
    columns = [
        "method",
        "kinds",
        "MB a round",
        "MB a run",
        "s a round",
        "overall",
        "points over solo",
        "points a MB",
    ]
    rows = []
    for variant in setting.variants:
        runs = list(variant.runs.values())
        each_round, whole = (float(np.mean([some(run) for run in runs])) for some in (mb_a_round, mb_a_run))
        seconds = [float(np.mean(walls)) for run in runs if (walls := walls_of(run))]
        gains = [] if solo is None or variant is solo else paired(variant, solo, "overall", measure, rule)
        gain = float(np.mean(gains)) if gains else None
        kinds = sorted(
            {kind for run in runs for line in run.rounds for kind in line.get("bytes_by_kind", {})}
        )
        overall = float(np.mean([mean_of(run, "overall", measure, rule) for run in runs]))
        rows.append(
            [
                Cell(text=variant.label, data={"": variant.label}),
                Cell(text=", ".join(kinds) or "–", data={"": " ".join(kinds)}),
                number(each_round, "{:.3g}"),
                number(whole, "{:.3g}"),
                number(float(np.mean(seconds)) if seconds else None, "{:.1f}"),
                number(overall, "{:.2f}"),
                number(gain, "{:+.2f}"),
                number(gain / whole if gain is not None and whole else None, "{:+,.2f}"),
            ]
        )
    return Table(
        name="ledger",
        title="What it costs",
        caption="Payload of all arrays that the participants gave, in MB (10⁶ bytes), which every rank "
        "receives, and wall time: means over rounds from 1 on and seeds. Overall: mean of intra and inter.",
        columns=columns,
        rows=rows,
    )


def unused_table(runs: Sequence[Run], settings: Sequence[Setting]) -> Table | None:
    """Run folders that are in no number, and seeds that are missing."""
    rows = [
        [
            Cell(text=text, data={"": text})
            for text in (
                run.status,
                f"{run.method} seed {run.seed}" if run.config else "",
                str(run.path),
                run.reason,
            )
        ]
        for run in runs
        if run.status != "finished"
    ]
    for setting in settings:
        for label, seeds in setting.missing():
            which = f"{label} seed {', '.join(map(str, seeds))}"
            reason = "others have a finished run of this seed"
            rows.append(
                [Cell(text=text, data={"": text}) for text in ("missing", which, setting.title, reason)]
            )
    if not rows:
        return None
    return Table(
        name="unused",
        title="Runs that are in no number",
        caption="Nothing here is averaged into anything above.",
        columns=["state", "run", "where", "why"],
        rows=rows,
    )


def accuracy_cell(of: Sample, mark: str, theirs: float | None) -> Cell:
    """Mean ± deviation."""
    text = f"{of.mean:.2f}" + ("" if of.std is None else f" ± {of.std:.2f}")
    data: dict[str, float | int | str | None] = {"": of.mean, " std": of.std, " n": of.n}
    if theirs is not None:
        data[" paper"] = theirs
    return Cell(text=text, value=of.mean, data=data, mark=mark, paper=theirs)


def difference_cell(values: Sequence[float]) -> Cell:
    """Mean difference and its interval."""
    if not values:
        return number(None)
    mean, (low, high) = sample(values).mean, confidence(values) or (None, None)
    interval = "" if low is None else f" [{low:+.2f}, {high:+.2f}]"
    return Cell(text=f"{mean:+.2f}{interval}", value=mean, data={"": mean, " low": low, " high": high})


def number(value: float | None, form: str = "{}") -> Cell:
    """A plain number."""
    return Cell(text="–" if value is None else form.format(value), value=value, data={"": value})


def mb_a_run(run: Run) -> float:
    """MB that all participants gave in the whole run."""
    return sum(line.get("bytes_exchanged") or 0 for line in run.rounds) / 1e6


def mb_a_round(run: Run) -> float:
    """The same in a round from 1 on."""
    return mb_a_run(run) / max(1, len(run.rounds) - 1)


def walls_of(run: Run) -> list[float]:
    """Seconds of each round from 1 on."""
    return [line["seconds"]["wall"] for line in run.rounds[1:]]


def _beside(cell: Cell) -> str:
    return "" if cell.paper is None else f" (p {cell.paper:.2f})"


def _markdown(text: str) -> str:
    return text.replace("|", "\\|")


def _latex(text: str) -> str:
    escapes = {character: f"\\{character}" for character in "&%$#_{}"} | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "−": "$-$",
        "→": r"$\rightarrow$",
        "–": "--",
        "×": r"$\times$",
        "⁶": "$^6$",
    }
    return "".join(escapes.get(character, character) for character in text)
