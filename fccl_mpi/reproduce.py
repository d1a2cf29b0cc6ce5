"""A table or figure of the paper, from nothing: ``python -m fccl_mpi.reproduce table1 --scenario digits``.

The sweep behind it is planned, what is missing of it is run, and the result is drawn. Settings and options
that follow are those of `fccl_mpi.sweep`; a setting replaces the plan's own.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fccl_mpi.config.compose import parse
from fccl_mpi.core.errors import UserError
from fccl_mpi.methods.registry import METHODS
from fccl_mpi.report.__main__ import draw
from fccl_mpi.sweep import __main__ as sweep
from fccl_mpi.sweep.status import FINISHED
from fccl_mpi.sweep.sweep import Sweep

COMPARED = "method=solo,fedmd,fml,rcfl,feddf,fedmatch,fccl"
CONTINUAL = "method.distillation=true,false"
PUBLIC = "public="
PUBLIC_SETS = {  # the paper's three for its own scenarios, and what there is for the others
    "digits": "cifar100,imagenet,fashion_mnist",
    "office_home": "cifar100,imagenet,fashion_mnist",
    "quickstart": "photos,letters",
    "digits_real": "tiny_imagenet,cifar10",
}
PLANS = {  # the axes of the sweep behind each
    "table1": (COMPARED,),
    "table2": (COMPARED,),
    "table3": (COMPARED.replace("solo", "solo,fedavg"), "homogeneous=true"),
    "fig4": ("method=fccl", CONTINUAL),
    "fig5": ("method=fccl",),
    "fig6": (COMPARED,),
    "fig7": ("method=fccl", PUBLIC),
    "fig8": ("method=fccl", CONTINUAL, PUBLIC),
}
PAPERS_SCENARIOS = ("digits", "office_home")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code of `fccl_mpi.sweep`."""
    options, rest = make_parser().parse_known_args(arguments)
    try:
        words = plan(options.target, options.scenario, options.seeds, rest)
        of_sweep = sweep.make_parser().parse_intermixed_args(words)
        code = sweep.main(words)
        if code == 2 or of_sweep.status or of_sweep.table or of_sweep.cancel or of_sweep.dry_run:
            return code
        points = Sweep(of_sweep, METHODS)
        finished = [one.point for one in points.look(points.configs) if one.state == FINISHED]
        if not finished:
            print("nothing is finished yet: the same command draws it later")
            return code
        where = options.report or Path("report") / f"{options.target}-{options.scenario}"
        parts = [options.target, *(["differences"] if options.target.startswith("table") else [])]
        paper = options.scenario in PAPERS_SCENARIOS
        print(draw([Path(point.folder) for point in finished], where, only=parts, with_paper=paper))
    except UserError as error:
        print(f"fccl_mpi: {error}", file=sys.stderr)
        return 2
    return code


def make_parser() -> argparse.ArgumentParser:
    """The command line; the rest is the sweep's."""
    parser = argparse.ArgumentParser(
        prog="python -m fccl_mpi.reproduce",
        description="Run what is missing for a table or figure of the paper, and draw it.",
        epilog="What follows is fccl_mpi.sweep's: settings, as rounds=10 or public=cifar100,imagenet, and "
        "options, as --launcher slurm, --dry-run or --status; see python -m fccl_mpi.sweep --help.",
        allow_abbrev=False,
    )
    parser.add_argument("target", choices=PLANS, help="table or figure of the paper")
    parser.add_argument("--scenario", default="quickstart", help="participants and domains (%(default)s)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N - 1 (%(default)s)")
    parser.add_argument("--report", type=Path, help="where to draw it (report/<target>-<scenario>)")
    return parser


def plan(target: str, scenario: str, seeds: int, rest: Sequence[str]) -> list[str]:
    """The sweep's command line: the target's axes but for what ``rest`` sets, and ``rest``.

    Raises UserError where a target takes more than there is.
    """
    given = {parse(word).key_or_group for word in sweep.make_parser().parse_intermixed_args(rest).overrides}
    words = [f"scenario={scenario}", f"seed=range({seeds})", *PLANS[target]]
    if PUBLIC in words:
        words.remove(PUBLIC)
        if scenario in PUBLIC_SETS:
            words.append(PUBLIC + PUBLIC_SETS[scenario])
        elif "public" not in given:
            raise UserError(
                f"{target} compares public sets: name some for scenario={scenario}, as public=a,b"
            )
    return [*(word for word in words if parse(word).key_or_group not in given), *rest]


if __name__ == "__main__":
    sys.exit(main())
