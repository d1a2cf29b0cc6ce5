"""What all figures share: colours, style, and how a drawing becomes SVG, PNG and data."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fccl_mpi.report.runs import Setting, Variant

INK = "#212223"  # lines and text; the page replaces it by the reader's own text colour

# Distinct for all kinds of colour vision and on light and dark ground: after Okabe and Ito, and Tol.
COLOURS = {
    "solo": "#888888",
    "fedavg": "#0072b2",
    "fedmd": "#56b4e9",
    "feddf": "#cc79a7",
    "fml": "#999933",
    "rcfl": "#aa4499",
    "fedmatch": "#009e73",
    "fccl": "#d55e00",
    "fccl_plus": "#e69f00",
}
DASHES = ("-", "--", ":", "-.")
MARKERS = "os^Dv*PX<>phd"
MOST_VARIANTS = 10  # that one figure shows

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fccl_mpi",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#88888855",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure, drawn."""

    name: str
    title: str
    caption: str
    alt: str
    """What it shows, in words made from its data."""
    csv: str
    svg: str
    png: bytes

    @property
    def inline_svg(self) -> str:
        """For a page: in the reader's text colour, with ids of its own; the page has the alternative text."""
        svg = self.svg[self.svg.index("<svg") :].replace(INK, "currentColor")
        svg = re.sub(r'\bid="', f'id="{self.name}-', svg)
        svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{self.name}-", svg)
        return svg.replace("<svg", '<svg role="presentation" aria-hidden="true"', 1)


@dataclass(frozen=True, kw_only=True)
class Omitted:
    """A figure whose runs are not there."""

    title: str
    what_to_run: str
    """A sentence."""


def picture(figure: Figure, data: Sequence[Sequence[object]], **about: str) -> Picture:
    """Render a figure; ``data`` are the rows behind it, the first their names."""
    svg, png, text = io.StringIO(), io.BytesIO(), io.StringIO()
    with rc_context(STYLE):
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=200, facecolor="white", metadata={"Software": None})
    csv.writer(text, lineterminator="\n").writerows(data)
    return Picture(svg=svg.getvalue(), png=png.getvalue(), csv=text.getvalue(), **about)


def shown(setting: Setting) -> tuple[list[Variant], str]:
    """The variants that a figure has room for, methods themselves first; a sentence on those left out."""
    order = sorted(setting.variants, key=lambda variant: not variant.is_base)
    kept = [variant for variant in setting.variants if variant in order[:MOST_VARIANTS]]
    left = len(setting.variants) - len(kept)
    return kept, f" {left} more variants are in the tables only." if left else ""


def look_of(variant: Variant, among: Sequence[Variant]) -> dict[str, Any]:
    """Colour of a method, dashes of its variants."""
    others = [name for name in dict.fromkeys(v.method for v in among) if name not in COLOURS]
    spare = list(COLOURS.values())
    colour = COLOURS.get(variant.method) or spare[others.index(variant.method) % len(spare)]
    place = [v for v in among if v.method == variant.method].index(variant)
    return {"color": colour, "linestyle": DASHES[place % len(DASHES)]}


def legend(figure: Figure, axes: Axes, columns: int = 4, **look: Any) -> None:
    """One legend for all panels, below them."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(columns, max(1, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, **look)
