"""Raw image sets to checked HDF5 files of 32×32 images: `python -m data_prep <set> --raw PATH`."""

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from fccl_mpi.core.cores import own_cores
from fccl_mpi.core.errors import UserError

EXAMPLES = """
examples:
  python -m data_prep --list
  python -m data_prep quickstart
  python -m data_prep mnist --raw raw/mnist --download
  python -m data_prep office_home --raw OfficeHomeDataset_10072016.zip
  python -m data_prep image_folder --raw photos --public holiday
  python -m data_prep verify data/*/*.h5
  python -m data_prep inspect data/digits/mnist.h5
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: 0 on success, 2 on what the user can mend, 128 + the signal when stopped."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _stop)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # so that a name the terminal cannot show is no error
            stream.reconfigure(errors="backslashreplace")
    try:
        options = _parser().parse_args(arguments)
        if options.list:
            from data_prep.registry import listing

            print(listing())
        elif not options.command:
            raise UserError("no set is named: see python -m data_prep --help, or --list")
        else:
            options.run(options)
    except UserError as error:
        return _fail(str(error))
    except BrokenPipeError:  # whoever read our lines has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(
            f"{os.fsdecode(error.filename)} cannot be used ({error.strerror}): see that you may read it"
        )
    except KeyboardInterrupt as stop:
        print("stopped: nothing half-made was left behind", file=sys.stderr)
        return 128 + (stop.args[0] if stop.args else signal.SIGINT)
    return 0


def _fail(sentence: str) -> int:
    from data_prep.progress import printable

    print(f"error: {printable(sentence)}", file=sys.stderr)
    return 2


def _stop(number: int, frame: object) -> NoReturn:
    """A batch system's stop unwinds like an interrupt, so that temporary files go."""
    raise KeyboardInterrupt(number)


# --- commands -------------------------------------------------------------------------------------


def _convert(options: argparse.Namespace) -> None:
    from data_prep.build import build
    from data_prep.progress import printable
    from data_prep.registry import SOURCES
    from data_prep.source import Options

    given = {name: value for name, value in vars(options).items() if name in Options.__dataclass_fields__}
    given["raw"] = given["raw"] or Path("raw") / options.command
    names = {name: printable(given.get(name) or "") for name in ("task", "public", "domain")}
    given |= {**names, "domain": tuple(name for name in names["domain"].split(",") if name)}
    given["processes"] = given.get("processes") or len(own_cores())
    chosen = Options(**given)
    build(SOURCES[options.command].plan(chosen), chosen)


def _quickstart(options: argparse.Namespace) -> None:
    from data_prep.quickstart import make

    make(options.data)


def _verify(options: argparse.Namespace) -> None:
    from data_prep.inspect import verify

    for path in options.files:
        verify(path)


def _inspect(options: argparse.Namespace) -> None:
    from data_prep.inspect import inspect

    inspect(options.file, options.sheet)


# --- the command line -----------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    from data_prep.registry import SOURCES

    parser = argparse.ArgumentParser(
        prog="python -m data_prep",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--list", action="store_true", help="what sets there are, what raw files each wants, where from"
    )
    commands = parser.add_subparsers(dest="command", metavar="command")
    for source in SOURCES.values():
        command = commands.add_parser(source.name, help=f"{source.title} → {source.makes.replace('%', '%%')}")
        command.description = f"{source.title}. Raw files: {source.wants}. Published: {source.published}."
        command.set_defaults(run=_convert)
        _add_common(command)
        for group, add in _GROUPS.items():
            if group in source.options:
                add(command)
    quickstart = commands.add_parser("quickstart", help="the embedded sets of scenario quickstart")
    quickstart.set_defaults(run=_quickstart)
    _add_data(quickstart)
    verify = commands.add_parser("verify", help="recompute the digests of files")
    verify.set_defaults(run=_verify)
    verify.add_argument("files", type=Path, nargs="+", metavar="FILE")
    inspect = commands.add_parser(
        "inspect", help="counts, statistics, provenance and a contact sheet of a file"
    )
    inspect.set_defaults(run=_inspect)
    inspect.add_argument("file", type=Path, metavar="FILE")
    inspect.add_argument(
        "--sheet", type=Path, metavar="PNG", help="where the contact sheet goes (default: beside FILE)"
    )
    return parser


def _add_data(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="folder of the HDF5 files (default: data)",
    )


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--raw", type=Path, metavar="PATH", help="folder or archive of raw files (default: raw/<set>)"
    )
    _add_data(command)
    command.add_argument("--download", action="store_true", help="fetch the raw files into --raw first")
    command.add_argument(
        "--force", action="store_true", help="make the files again even if they are up to date"
    )


def _add_filter(command: argparse.ArgumentParser) -> None:
    from data_prep.pixels import FILTERS

    command.add_argument(
        "--filter",
        choices=FILTERS,
        default=FILTERS[0],
        help="resizing filter, antialiased (default: bicubic; bilinear is the released program's)",
    )


def _add_checksum(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--any-checksum", action="store_true", help="accept raw files that differ from the published ones"
    )


def _add_files(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--background", default="white", metavar="COLOUR", help="behind transparent images (default: white)"
    )
    command.add_argument(
        "--skip-broken",
        action="store_true",
        help="leave out files that are no whole images, and list them in the file",
    )
    command.add_argument(
        "--processes", type=_positive, metavar="N", help="decoding processes (default: one a core)"
    )


def _add_folders(command: argparse.ArgumentParser) -> None:
    _add_files(command)
    command.add_argument(
        "--allow-missing-classes", action="store_true", help="accept domains that lack classes"
    )
    command.add_argument(
        "--released-split",
        action="store_true",
        help="test on all of a domain, training images included, as the program released with FCCL",
    )


def _add_domains(command: argparse.ArgumentParser) -> None:
    command.add_argument("--domain", metavar="NAME,…", help="only these domains")


def _add_split(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--train-share",
        type=_share,
        default=0.7,
        metavar="SHARE",
        help="share of a class for training where a set is not split already (default: 0.7)",
    )


def _add_seed(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")


def _add_part(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--part",
        choices=("train", "test"),
        default="",
        help="only this published part, split per class into training and test images",
    )


def _add_public_part(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--part", choices=("train", "test", "all"), default="", help="which part of the set (default: train)"
    )
    command.add_argument("--images", type=_positive, default=0, metavar="N", help="draw only so many")


def _add_names(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--task", default="", metavar="NAME", help="the tree is domain/class/file: make a task"
    )
    command.add_argument(
        "--public", default="", metavar="NAME", help="the tree is class/file or files: a public set"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return number


_GROUPS = {
    "filter": _add_filter,
    "checksum": _add_checksum,
    "files": _add_files,
    "folders": _add_folders,
    "domains": _add_domains,
    "split": _add_split,
    "seed": _add_seed,
    "part": _add_part,
    "public": _add_public_part,
    "names": _add_names,
}


if __name__ == "__main__":
    code = main()
    if code >= 128:  # stopped: do not wait for processes that the signal may have caught anywhere
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
