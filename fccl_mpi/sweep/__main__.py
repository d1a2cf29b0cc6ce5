"""Many federations from one command: ``python -m fccl_mpi.sweep method=fccl,fedmd seed=0,1,2 [options]``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fccl_mpi.config.cli import Parser
from fccl_mpi.core.errors import UserError
from fccl_mpi.methods.registry import METHODS
from fccl_mpi.sweep.sweep import Sweep


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    0: all is finished, or submitted; 1: some points failed; 2: something for the user to mend; 75: stopped.
    """
    try:
        options = make_parser().parse_intermixed_args(arguments)
        sweep = Sweep(options, METHODS)
        for option in ("status", "table", "cancel", "dry_run", "print_config"):
            if getattr(options, option):
                return getattr(sweep, option)()
        if options.search:
            return sweep.search()
        return sweep.run_here() if options.launcher == "local" else sweep.submit()
    except UserError as error:
        print(f"fccl_mpi: {error}", file=sys.stderr)
        return 2


def make_parser() -> argparse.ArgumentParser:
    """The command line, as `fccl_mpi.run` has it, and what a sweep adds."""
    purpose = (
        "Run many federations. A setting with several values is an axis: method=fccl,fedmd, seed=range(3), "
        "method=glob(fed*); all combinations are run. The same command again does what is not finished."
    )
    parser = Parser(program="fccl_mpi.sweep", purpose=purpose, methods=METHODS)
    add = parser.add_argument
    add("--points", type=Path, metavar="FILE", help="YAML file of `axes:` and explicit `points:`")
    add("--name", help="of the sweep's folder <out>/sweeps/<name>; by default made of its words")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="print the points and the work, start nothing")
    what.add_argument("--status", action="store_true", help="print how far each point is")
    what.add_argument("--table", action="store_true", help="print accuracies, mean and deviation over seeds")
    what.add_argument("--cancel", action="store_true", help="stop what is running or queued")
    add("--launcher", choices=("local", "slurm"), default="local", help="where points run (default: local)")
    add("--max-running", type=count, default=0, metavar="N", help="points, or SLURM tasks, at the same time")
    add(
        "--points-per-task",
        type=count,
        default=1,
        metavar="N",
        help="short points in a row in a SLURM task",
    )
    add(
        "--sbatch",
        default="",
        metavar='"OPTIONS"',
        help='your site\'s: --sbatch="--partition=gpu --gres=gpu:4"',
    )
    add("--script", type=Path, default=Path("slurm/array.sbatch"), help="batch script (default: %(default)s)")
    add("--search", choices=("optuna",), help="try points of choice(...) and interval(...) instead of all")
    add(
        "--trials",
        type=count,
        default=50,
        metavar="N",
        help="of the search, over all calls (default: 50)",
    )
    add("--metric", default="inter_top1", help="to maximise, of metrics.jsonl (default: %(default)s)")
    return parser


def count(text: str) -> int:
    """A number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
