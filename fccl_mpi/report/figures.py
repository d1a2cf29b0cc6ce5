"""Figures 4 to 8 of the paper, from runs: each a picture, or a sentence that says what to run for it."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from fccl_mpi.report import paper
from fccl_mpi.report.drawing import (
    COLOURS,
    MARKERS,
    STYLE,
    Omitted,
    Picture,
    legend,
    look_of,
    picture,
    shown,
)
from fccl_mpi.report.runs import Run, Setting, Variant, hashable
from fccl_mpi.report.statistics import accuracies, inter, intra, mean_of, overall, sample
from fccl_mpi.store.diagnostics import Diagnostics, read

MOST_HEAT_MAPS = 8  # participants in one row


@rc_context(STYLE)
def figure4(setting: Setting) -> Picture | Omitted:
    """t-SNE of features by class: trained by cross entropy alone, and by the whole local loss."""
    title = "Figure 4: features of one participant, t-SNE by class"
    full, ablated = setting.base("fccl"), without_continual_learning(setting)
    seeds = [
        seed
        for seed in (sorted(full.runs.keys() & ablated.runs.keys()) if full and ablated else [])
        if full and ablated and full.runs[seed].has_diagnostics and ablated.runs[seed].has_diagnostics
    ]
    if not (full and ablated and seeds):
        return Omitted(
            title=title,
            what_to_run="It needs two runs of one seed with diagnostics=true, method=fccl and "
            "method=fccl method.distillation=false.",
        )
    runs = {"cross entropy (CE)": ablated.runs[seeds[0]], "whole local loss": full.runs[seeds[0]]}
    recorded = {label: read(run.path) for label, run in runs.items()}
    who = full.runs[seeds[0]].names[0]
    if any("features" not in of.participants[who] for of in recorded.values()):
        return Omitted(title=title, what_to_run=f"The model of {who} gives no features(images).")
    domains = next(iter(recorded.values())).domains[:2]
    figure = Figure(figsize=(6, 3 * len(domains)))
    panels = figure.subplots(len(domains), 2, squeeze=False)
    data: list[Sequence[object]] = [("local loss", "domain", "class", "x", "y")]
    scores = []
    for column, (label, of) in enumerate(recorded.items()):
        for row, domain in enumerate(domains):
            features, classes = features_on(of, who, row)
            place, score = embed(features), silhouette(features, classes)
            scatter(panels[row][column], place, classes)
            panels[row][column].set_title(f"{who} → {domain}, {label}")
            scores.append((label, domain, score))
            data += [(label, domain, int(c), *map(float, xy)) for c, xy in zip(classes, place, strict=True)]
    if len(np.unique(classes)) <= 10:
        legend(figure, panels[0][0], columns=10, columnspacing=1, handletextpad=0)
    told = "; ".join(f"{who} → {domain}, {label}: {score}" for label, domain, score in scores)
    return picture(
        figure,
        data,
        name=f"{setting.slug}-fig4",
        title=title,
        caption=f"Penultimate features of test images after the last round, seed {seeds[0]}; top: the own "
        "domain, bottom: another. Each panel is an embedding of its own: compare how far classes are apart, "
        "not places.",
        alt="Scatter plots of features by class, each class a colour and marker. Mean silhouette of the "
        f"classes in feature space, from −1 for mixed to 1 for separate: {told}.",
    )


@rc_context(STYLE)
def figure5(setting: Setting) -> Picture | Omitted:
    """Heat maps of M_i on public and on private images, for each participant."""
    title = "Figure 5: cross-correlation matrices M of Eq. 1"
    first = [variant for variant in (setting.base("fccl"),) if variant] + setting.variants
    found = next(((v, seed) for v in first for seed in sorted(v.runs) if v.runs[seed].has_diagnostics), None)
    if found is None:
        return Omitted(
            title=title, what_to_run="It needs a run with diagnostics=true, method=fccl for choice."
        )
    variant, seed = found
    participants = read(variant.runs[seed].path).participants
    names = variant.runs[seed].names[:MOST_HEAT_MAPS]
    figure = Figure(figsize=(1.7 * len(names) + 0.6, 3.7))
    panels = figure.subplots(2, len(names), squeeze=False)
    data: list[Sequence[object]] = [("participant", "images", "u", "v", "M")]
    told = []
    for column, name in enumerate(names):
        for row, images in enumerate(("public", "private")):
            matrix = participants[name][images]
            image = panels[row][column].imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1)
            panels[row][column].set(title=f"{name}, {images}", xticks=[], yticks=[])
            panels[row][column].grid(False)
            data += [(name, images, u, v, float(matrix[u, v])) for u, v in np.ndindex(matrix.shape)]
            off = matrix[~np.eye(len(matrix), dtype=bool)].mean()
            told.append(f"{name} {images} {matrix.diagonal().mean():.2f} and {off:.2f}")
    figure.colorbar(image, ax=panels.ravel().tolist(), shrink=0.6, label="M")
    return picture(
        figure,
        data,
        name=f"{setting.slug}-fig5",
        title=title,
        caption=f"{variant.label}, seed {seed}, last round. Top: on public images, against the participants' "
        "mean; on the diagonal 1 means agreement on a class. Bottom: on private images, which no other model "
        "may see, so against the own logits: the diagonal is 1, and what is off it tells how far classes are "
        "kept apart.",
        alt=f"Heat maps of correlation between logit dimensions, blue −1 to red 1, for {variant.label}. Mean "
        f"on the diagonal and mean off it: {'; '.join(told)}.",
    )


@rc_context(STYLE)
def figure6(setting: Setting, measure: str) -> Picture | Omitted:
    """Mean intra-domain accuracy and local loss over rounds."""
    title = "Figure 6: intra-domain accuracy and local loss over rounds"
    last = setting.key["rounds"]
    if not last:
        return Omitted(title=title, what_to_run="It needs runs with rounds=1 or more.")
    variants, left = shown(setting)
    figure = Figure(figsize=(7.2, 3.4))
    left_panel, right_panel = figure.subplots(1, 2)
    data: list[Sequence[object]] = [("method", "quantity", "round", "mean", "std", "n")]
    told = []
    for variant in variants:
        look = look_of(variant, variants)
        runs = list(variant.runs.values())
        curves = [
            {line["round"]: float(intra(np.array(line[measure])).mean()) for line in run.evaluated}
            for run in runs
        ]
        data += draw_curves(left_panel, curves, last, variant.label, look, "intra")
        ends = sample([curve[max(curve)] for curve in curves])
        told.append(f"{variant.label} from {sample([c[0] for c in curves]).mean:.1f} to {ends.mean:.1f} %")
        losses = [local_losses(run) for run in runs]
        if all(losses):
            data += draw_curves(right_panel, losses, last, variant.label, look, "local loss")
    left_panel.set(xlabel="round", ylabel="mean intra-domain accuracy, %")
    right_panel.set(xlabel="round", ylabel="local loss, mean of participants")
    for panel in (left_panel, right_panel):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if right_panel.lines and all((line.get_ydata() > 0).all() for line in right_panel.lines):
        right_panel.set_yscale("log")  # a distillation of parts of a distribution may fall below 0
        right_panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        right_panel.yaxis.set_major_formatter("{x:g}")
        right_panel.yaxis.set_minor_formatter(NullFormatter())
    legend(figure, left_panel)
    return picture(
        figure,
        data,
        name=f"{setting.slug}-fig6",
        title=title,
        caption="Lines are means over seeds, bands one standard deviation. The local loss is what each "
        f"method minimises on private images, so levels compare only where it is the same.{left}",
        alt=f"Line charts over {last} rounds. Mean intra-domain accuracy: {'; '.join(told)}.",
    )


@rc_context(STYLE)
def figure7(family: Sequence[Setting], measure: str, rule: str, with_paper: bool) -> Picture | Omitted:
    """FCCL by public set: inter-domain accuracy of each participant, and overall."""
    title = "Figure 7: FCCL by public set"
    having = [(setting, base) for setting in family if (base := setting.base("fccl"))]
    if len(having) < 2:
        return Omitted(
            title=title,
            what_to_run="It needs method=fccl with two public sets or more, as "
            "public=cifar100,fashion_mnist.",
        )
    names = having[0][0].example.names
    figure = Figure(figsize=(7.2, 3.4))
    left_panel, right_panel = figure.subplots(1, 2, width_ratios=[3, 1.2])
    data: list[Sequence[object]] = [("public set", "quantity", "mean", "std", "n", "paper")]
    told = []
    for place, (setting, base) in enumerate(having):
        public = setting.public
        matrices = [(accuracies(run, measure, rule), run.domains) for run in base.runs.values()]
        each = np.array([inter(*of) for of in matrices])
        columns = [*each.T, each.mean(1)]
        theirs = paper.figure_numbers(setting, "public_sets").get(public, []) if with_paper else []
        theirs = [*theirs, float(np.mean(theirs))] if theirs else []
        data += draw_bars(left_panel, columns, [*names, "mean"], place, len(having), public, theirs)
        data += draw_bars(
            right_panel,
            [np.array([overall(*of) for of in matrices])],
            ["overall"],
            place,
            len(having),
            public,
        )
        told.append(f"{public} {sample(list(columns[-1])).mean:.1f} %")
    left_panel.set(ylabel="inter-domain accuracy, %")
    right_panel.set(ylabel="mean of intra and inter, %")
    legend(figure, left_panel)
    return picture(
        figure,
        data,
        name=f"{having[0][0].slug}-fig7",
        title=title,
        caption=f"Means over seeds, error bars one standard deviation.{_paper_marks(with_paper)}",
        alt=f"Bar charts by public set. Mean inter-domain accuracy of fccl: {'; '.join(told)}.",
    )


@rc_context(STYLE)
def figure8(family: Sequence[Setting], measure: str, rule: str, with_paper: bool) -> Picture | Omitted:
    """FCCL with and without its continual-learning part, by public set."""
    title = "Figure 8: FCCL with and without continual learning"
    having = [
        (setting, full, ablated)
        for setting in family
        if (full := setting.base("fccl")) and (ablated := without_continual_learning(setting))
    ]
    if not having:
        return Omitted(title=title, what_to_run="It needs method=fccl method.distillation=true,false.")
    figure = Figure(figsize=(7.2, 3.2))
    panels = figure.subplots(1, 2)
    data: list[Sequence[object]] = [("part", "quantity", "mean", "std", "n", "paper")]
    told = []
    publics = [setting.public for setting, *_ in having]
    for panel, of in zip(panels, ("inter", "intra"), strict=True):
        for place, part in enumerate(("with", "without")):
            columns = [
                np.array([mean_of(run, of, measure, rule) for run in variants[place].runs.values()])
                for _, *variants in having
            ]
            theirs = [
                paper.figure_numbers(setting, "continual").get(public, {}).get(of, [None, None])[place]
                for public, (setting, *_) in zip(publics, having, strict=True)
            ]
            rows = draw_bars(panel, columns, publics, place, 2, part, theirs if with_paper else [])
            data += [(part, f"{of} {row[1]}", *row[2:]) for row in rows]
            told += [
                f"{of} {part} on {public} {sample(list(c)).mean:.1f} %"
                for public, c in zip(publics, columns, strict=True)
            ]
        panel.set(ylabel=f"{of}-domain accuracy, %")
    legend(figure, panels[0], title="continual learning")
    return picture(
        figure,
        data,
        name=f"{having[0][0].slug}-fig8",
        title=title,
        caption="With the two teachers of the local update (Eq. 4 to 6), and by cross entropy alone "
        "(method.distillation=false). Means over seeds, error bars one standard deviation."
        f"{_paper_marks(with_paper)}",
        alt=f"Bar charts with and without continual learning: {'; '.join(told)}.",
    )


def families_of(settings: Sequence[Setting]) -> list[list[Setting]]:
    """Settings of several domains that differ in the public set alone, together."""
    found: dict[str, list[Setting]] = {}
    for setting in settings:
        if len(set(setting.example.domains)) < 2:
            continue
        key = {name: value for name, value in setting.key.items() if not name.startswith("public.")}
        found.setdefault(hashable(key), []).append(setting)
    return list(found.values())


def without_continual_learning(setting: Setting) -> Variant | None:
    """FCCL with cross entropy alone in the local update, and all else as in FCCL itself."""
    base = setting.base("fccl")
    wanted = None if base is None else base.parameters | {"distillation": False}
    return next((v for v in setting.variants if v.method == "fccl" and v.parameters == wanted), None)


def features_on(of: Diagnostics, who: str, domain: int) -> tuple[np.ndarray, np.ndarray]:
    """A participant's features (n, F) and classes (n,) of one domain's test images."""
    mine = of.participants[who]
    chosen = mine["domains"] == domain
    return mine["features"][chosen].astype(np.float32), mine["labels"][chosen]


def embed(features: np.ndarray) -> np.ndarray:
    """t-SNE in the plane, (n, 2), the same whenever it is drawn."""
    perplexity = min(30.0, (len(features) - 1) / 3)
    with warnings.catch_warnings(), threadpool_limits(1):  # sums in one order, whatever the machine
        warnings.simplefilter("ignore")  # of features that do not vary
        return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(features)


def silhouette(features: np.ndarray, classes: np.ndarray) -> str:
    """Mean silhouette of the classes, as text; how compact and separate they are."""
    if not 2 <= len(np.unique(classes)) < len(classes):
        return "not defined"
    return f"{silhouette_score(features, classes):.2f}"


def scatter(axes: Axes, place: np.ndarray, classes: np.ndarray) -> None:
    """Points, each class in a colour and marker of its own."""
    palette = [COLOURS[name] for name in ("fccl", "fedmd", "fedmatch", "feddf", "fccl_plus")]
    for label in np.unique(classes):
        x, y = place[classes == label].T
        marker = MARKERS[label // len(palette) % len(MARKERS)]
        look = {"color": palette[label % len(palette)], "marker": marker, "s": 8, "linewidths": 0}
        axes.scatter(x, y, label=str(label), rasterized=True, **look)
    axes.set(xticks=[], yticks=[])
    axes.grid(False)


def local_losses(run: Run) -> dict[int, float]:
    """Mean over participants of the local loss, by round from 1 on; empty where one has none."""
    found = {}
    for line in run.rounds[1:]:
        values = [terms.get("local") for terms in line["loss"].values()]
        if any(value is None for value in values):
            return {}
        found[line["round"]] = float(np.mean(values))
    return found


def draw_curves(
    axes: Axes,
    curves: Sequence[Mapping[int, float]],
    last: int,
    label: str,
    look: dict,
    quantity: str,
) -> list[tuple]:
    """Mean and deviation over runs of a quantity by round, where all have it.

    A single point goes on as a level line.
    """
    rounds = sorted(set(curves[0]).intersection(*curves))
    array = np.array([[curve[round] for round in rounds] for curve in curves])
    mean = array.mean(0)
    std = array.std(0, ddof=1) if len(array) > 1 else np.full(len(rounds), np.nan)
    if len(rounds) == 1 and last > rounds[0]:
        axes.axhline(mean[0], label=label, linewidth=1, **look)
    else:
        axes.plot(rounds, mean, label=label, linewidth=1.4, **look)
        if len(array) > 1:
            axes.fill_between(rounds, mean - std, mean + std, color=look["color"], alpha=0.18, linewidth=0)
    return [
        (label, quantity, int(r), float(m), "" if np.isnan(s) else float(s), len(array))
        for r, m, s in zip(rounds, mean, std, strict=True)
    ]


def draw_bars(
    axes: Axes,
    columns: Sequence[np.ndarray],
    names: Sequence[str],
    place: int,
    among: int,
    label: str,
    theirs: Sequence[float | None] = (),
) -> list[tuple]:
    """One bar of each group: means of ``columns`` with deviations, the paper's number as a cross."""
    palette = [COLOURS[name] for name in ("fccl", "fedmd", "fedmatch", "feddf", "fccl_plus", "fedavg", "fml")]
    samples = [sample(list(column)) for column in columns]
    width = 0.8 / among
    x = np.arange(len(names)) + (place - (among - 1) / 2) * width
    axes.bar(
        x,
        [one.mean for one in samples],
        width * 0.92,
        yerr=[one.std or 0 for one in samples],
        color=palette[place % len(palette)],
        label=label,
        error_kw={"ecolor": STYLE["text.color"], "elinewidth": 0.8},
    )
    drawn = [(at, value) for at, value in zip(x, theirs, strict=False) if value is not None]
    if drawn:
        axes.plot(*zip(*drawn, strict=True), "x", color=STYLE["text.color"], markersize=4)
    axes.set_xticks(np.arange(len(names)), names)
    axes.grid(False, axis="x")
    padded = [*theirs, *[None] * (len(names) - len(theirs))]
    return [
        (label, name, one.mean, "" if one.std is None else one.std, one.n, "" if their is None else their)
        for name, one, their in zip(names, samples, padded, strict=True)
    ]


def _paper_marks(with_paper: bool) -> str:
    return " Crosses: the paper's own numbers, where it has some." if with_paper else ""
