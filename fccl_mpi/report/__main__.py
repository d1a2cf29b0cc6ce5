"""``python -m fccl_mpi.report RUNS... --out report``: run folders to tables, figures and one page."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fccl_mpi.core.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 done, 2 the user's error."""
    options = vars(make_parser().parse_args(arguments))
    paths, out = options.pop("runs"), options.pop("out")
    try:
        print(draw(paths, out, **options))
    except UserError as error:
        print(f"fccl_mpi: {error}", file=sys.stderr)
        return 2
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line; what is left out takes the defaults of `report.Choice`."""
    parser = argparse.ArgumentParser(
        prog="python -m fccl_mpi.report", description="Make tables, figures and one HTML page of run folders."
    )

    def add(*names: str, **about: object) -> None:
        parser.add_argument(*names, **{"default": argparse.SUPPRESS, **about})  # type: ignore[arg-type]

    add("runs", nargs="+", type=Path, metavar="RUNS", help="run folders, or folders that hold some")
    add("--out", type=Path, default=Path("report"), help="folder of report.html, tables/, figures/ (report)")
    add("--rule", help="which rounds count: final, each run's best, or last3")
    add("--measure", choices=("top1", "top5"), help="accuracy shown; by default the paper's for the scenario")
    add("--with-paper", action="store_true", help="the paper's own numbers beside one's own")
    add("--draw", type=int, metavar="N", help="settings that get figures, those with most runs first (3)")
    add("--only", nargs="+", metavar="PART", help="tables and figures by name, as table1 fig6 ledger")
    return parser


def draw(paths: Sequence[Path], out: Path, **choice: object) -> str:
    """Make the report and say what it holds. Raises UserError, also where a package is missing."""
    try:
        from fccl_mpi.report.report import Choice, make
    except ModuleNotFoundError as error:
        raise UserError(f'{error.name} is missing: pip install "fccl_mpi[report]"') from error
    return make(paths, out, Choice(**choice))  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
