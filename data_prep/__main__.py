"""Raw image sets to HDF5 files: `python -m data_prep quickstart [--data DIR]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fccl_mpi.core.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 on what the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m data_prep", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    quickstart = commands.add_parser("quickstart", help="make the embedded demonstration image sets")
    quickstart.add_argument("--data", type=Path, default=Path("data"), help="folder of the HDF5 files")
    options = parser.parse_args(arguments)
    try:
        from data_prep.quickstart import make

        make(options.data)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
