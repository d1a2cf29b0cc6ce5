"""The page: one HTML file that needs no network, made from `page.html`."""

import base64
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import fccl_mpi
from fccl_mpi.report.drawing import Picture
from fccl_mpi.report.runs import Run
from fccl_mpi.report.tables import Table

if TYPE_CHECKING:
    from fccl_mpi.report.report import Section


def render(runs: Sequence[Run], sections: "Sequence[Section]", unused: Table | None) -> str:
    """HTML of all sections; equal runs give equal bytes."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["picture"] = lambda figure: isinstance(figure, Picture)
    environment.filters["data_uri"] = data_uri
    return environment.get_template("page.html").render(
        version=fccl_mpi.__version__,
        states=Counter(run.status for run in runs).most_common(),
        sections=sections,
        unused=unused,
    )


def data_uri(text: str) -> str:
    """A link that holds a CSV file."""
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
