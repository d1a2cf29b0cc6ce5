"""What the paper does not show: who learns from whom, and whether it is worth it on one's own cluster."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from fccl_mpi.report.drawing import STYLE, Omitted, Picture, legend, look_of, picture, shown
from fccl_mpi.report.runs import Run, Setting
from fccl_mpi.report.statistics import accuracies, overall

PHASES = {  # in the order of a round
    "teachers": "#999933",
    "collaborate": "#d55e00",
    "local": "#0072b2",
    "evaluate": "#56b4e9",
    "exchange": "#cc79a7",
    "wait": "#bbbbbb",
}
LEGEND = {
    "collaborate": "collaborate (computing)",
    "exchange": "exchange (sending and waiting)",
    "wait": "waiting for the slowest",
}


@rc_context(STYLE)
def accuracy_matrices(setting: Setting, measure: str, rule: str) -> Picture:
    """Participants × test domains for each method, and the difference to SOLO."""
    variants, left = shown(setting)
    solo = setting.base("solo")
    names = setting.example.names
    means = {
        variant.label: np.mean([accuracies(run, measure, rule) for run in variant.runs.values()], axis=0)
        for variant in variants
    }
    columns = min(3, len(variants))
    rows = -(-len(variants) // columns)
    side = min(2.3, 0.5 * len(names) + 0.5)
    figure = Figure(figsize=(columns * side + 1.4, rows * (side + 0.35) + 0.3))
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    reference = None if solo is None else means.get(solo.label)
    shift = (
        max((np.abs(matrix - reference).max() for matrix in means.values()), default=1)
        if reference is not None
        else 1
    )
    data: list[Sequence[object]] = [("method", "participant", "on", "percent", "points over solo")]
    told = []
    for panel, variant in zip(panels, variants, strict=False):
        matrix = means[variant.label]
        own = reference is None or variant is solo
        image = heat_map(panel, matrix if own else matrix - reference, matrix, shift, own, names)
        panel.set_title(variant.label if own else f"{variant.label} − solo")
        if not own:
            shifts = image
            best = np.unravel_index(np.argmax(matrix - reference), matrix.shape)
            told.append(
                f"{variant.label} gains most where {names[best[0]]} meets {names[best[1]]}, "
                f"{(matrix - reference)[best]:+.1f} points"
            )
        for i, j in np.ndindex(matrix.shape):
            gain = "" if reference is None else float(matrix[i, j] - reference[i, j])
            data.append((variant.label, names[i], names[j], float(matrix[i, j]), gain))
    for panel in panels[len(variants) :]:
        panel.set_axis_off()
    if reference is not None and told:
        figure.colorbar(shifts, ax=panels.tolist(), shrink=0.6, label="points over solo")
    return picture(
        figure,
        data,
        name=f"{setting.slug}-matrix",
        title="Who learns from whom: accuracy of each participant on each domain",
        caption="Rows are participants, columns test domains. Numbers are accuracies in percent, means over "
        f"seeds; colour is the accuracy for solo, and for others the difference to it.{left}",
        alt="Heat maps of accuracy by participant and domain. "
        f"{'; '.join(told) or 'Without solo, no differences'}.",
    )


@rc_context(STYLE)
def accuracy_against_bytes(setting: Setting, measure: str) -> Picture | Omitted:
    """Overall accuracy after each round against all that was sent until then."""
    title = "What a byte buys: accuracy against bytes exchanged"
    variants, left = shown(setting)
    sending = [v for v in variants if all(sum(cumulated_mb(run)) > 0 for run in v.runs.values())]
    if not sending:
        return Omitted(
            title=title, what_to_run="It needs a method that exchanges something, such as method=fccl."
        )
    figure = Figure(figsize=(6.4, 3.6))
    axes = figure.subplots()
    data: list[Sequence[object]] = [("method", "round", "MB so far", "overall accuracy")]
    told = []
    for variant in variants:
        look = look_of(variant, variants)
        runs = list(variant.runs.values())
        seen = [{line["round"]: line[measure] for line in run.evaluated} for run in runs]
        rounds = sorted(set(seen[0]).intersection(*seen))
        curve = np.mean(
            [
                [overall(np.array(found[round]), run.domains) for round in rounds]
                for run, found in zip(runs, seen, strict=True)
            ],
            axis=0,
        )
        sent = np.mean([cumulated_mb(run)[rounds] for run in runs], axis=0)
        if variant in sending:
            axes.plot(sent[1:], curve[1:], label=variant.label, marker=".", linewidth=1.2, **look)
        else:
            axes.axhline(curve[-1], label=f"{variant.label} (nothing sent)", linewidth=1, **look)
        data += [(variant.label, r, float(x), float(y)) for r, x, y in zip(rounds, sent, curve, strict=True)]
        told.append(f"{variant.label} {curve[-1]:.1f} % for {sent[-1]:.3g} MB")
    axes.set(
        xlabel="MB that all participants sent, summed over rounds",
        ylabel="mean of intra and inter, %",
        xscale="log",
    )
    legend(figure, axes)
    return picture(
        figure,
        data,
        name=f"{setting.slug}-bytes",
        title=title,
        caption=f"A point for each round, means over seeds. The scale of bytes is logarithmic.{left}",
        alt=f"Line chart of accuracy over bytes. At the end: {'; '.join(told)}.",
    )


@rc_context(STYLE)
def time_by_phase(setting: Setting) -> Picture | Omitted:
    """Seconds of a round by phase and participant: who waits for whom."""
    title = "Who waits for whom: a round's time by phase and participant"
    variants, left = shown(setting)
    timed = [v for v in variants if all(len(run.rounds) > 1 for run in v.runs.values())]
    if not timed:
        return Omitted(title=title, what_to_run="It needs runs with rounds=1 or more.")
    names = setting.example.names
    figure = Figure(figsize=(7.2, 0.17 * len(timed) * (len(names) + 1) + 1.2))
    axes = figure.subplots()
    data: list[Sequence[object]] = [("method", "participant", *PHASES)]
    told, ticks = [], []
    place = 0.0
    for variant in timed:
        seconds = np.mean([phases_of(run) for run in variant.runs.values()], axis=0)  # (K, phases)
        for name, row in zip(names, seconds, strict=True):
            begun = np.cumsum([0, *row[:-1]])
            for phase, left_edge, width in zip(PHASES, begun, row, strict=True):
                label = LEGEND.get(phase, phase) if not place else None
                axes.barh(place, width, left=left_edge, height=0.85, color=PHASES[phase], label=label)
            ticks.append((place, f"{variant.label}, {name}"))
            data.append((variant.label, name, *map(float, row)))
            place += 1
        place += 0.7
        slowest = names[int(np.argmin(seconds[:, -2:].sum(1)))]
        told.append(f"{variant.label} {seconds.sum(1).mean():.1f} s, paced by {slowest}")
    axes.set_yticks(*zip(*ticks, strict=True), fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel="seconds a round")
    axes.grid(False, axis="y")
    legend(figure, axes, columns=3)
    return picture(
        figure,
        data,
        name=f"{setting.slug}-time",
        title=title,
        caption="Means over rounds from 1 on and seeds, without writing checkpoints. Exchange is what a "
        "participant spends in collectives, mostly waiting for others to come; the last part is the wait for "
        f"the slowest at the round's end.{left}",
        alt="Stacked bars of seconds by phase. Time of a round and the participant that waits least: "
        f"{'; '.join(told)}.",
    )


def heat_map(
    axes: Axes, colour: np.ndarray, numbers: np.ndarray, shift: float, own: bool, names: Sequence[str]
) -> AxesImage:
    """A matrix by colour, with numbers where they have room."""
    scale: dict[str, Any] = {"cmap": "cividis", "vmin": 0, "vmax": 100}
    if not own:
        scale = {"cmap": "RdBu_r", "vmin": -shift, "vmax": shift}
    image = axes.imshow(colour, **scale)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.label_outer()
    axes.grid(False)
    if len(names) <= 8:
        for i, j in np.ndindex(numbers.shape):
            red, green, blue, _ = image.cmap(image.norm(colour[i, j]))
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            axes.text(
                j,
                i,
                f"{numbers[i, j]:.1f}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if dark else "black",
            )
    return image


def cumulated_mb(run: Run) -> np.ndarray:
    """MB exchanged until the end of each round."""
    return np.cumsum([line.get("bytes_exchanged") or 0 for line in run.rounds]) / 1e6


def phases_of(run: Run) -> np.ndarray:
    """Mean seconds of a round from 1 on, (K, phases), of which the last is what is left of its wall time."""
    rounds = []
    for line in run.rounds[1:]:
        seconds = line["seconds"]
        rows = []
        for name in run.names:
            took = {phase: seconds.get(phase, {}).get(name, 0.0) for phase in PHASES}
            took["collaborate"] = max(0.0, took["collaborate"] - took["exchange"])
            took["wait"] = max(0.0, seconds["wall"] - sum(took.values()))
            rows.append(list(took.values()))
        rounds.append(rows)
    return np.mean(rounds, axis=0)
