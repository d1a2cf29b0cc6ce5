"""A run's models for use elsewhere: ``python -m fccl_mpi.export RUN [--out DIR] [--format pt] [--round N]``.

Writes each participant's model of the newest intact checkpoint as a plain ``state_dict``, and what a
method keeps beside it (the meme of `fml`) as a file of its own: ``<participant>.safetensors`` and
``<participant>.<companion>.safetensors``. `fccl_mpi.models.build` makes the model that takes them.
"""

import argparse
import io
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import explaining, replacing
from fccl_mpi.core.hdf5 import UnfitError
from fccl_mpi.store.checkpoint import Checkpoints, State, read_model

FORMATS = ("safetensors", "pt")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 done, 2 the user's error."""
    parser = argparse.ArgumentParser(prog="python -m fccl_mpi.export", description=__doc__.partition(":")[0])
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder: it holds checkpoints/")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to; by default RUN/export")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="by default safetensors")
    parser.add_argument("--round", type=int, metavar="N", help="the checkpoint of that round, not the newest")
    options = parser.parse_args(arguments)
    try:
        for path in export(options.run, options.out or options.run / "export", options.format, options.round):
            print(path)
    except UserError as error:
        print(f"fccl_mpi: {error}", file=sys.stderr)
        return 2
    return 0


def export(run: Path, out: Path, format: str = FORMATS[0], round: int | None = None) -> list[Path]:
    """Write every network of one checkpoint into ``out``; returns the files.

    Raises UserError where there is no intact checkpoint, where safetensors is not installed, or where
    ``out`` cannot be written.
    """
    checkpoints = Checkpoints(run / "checkpoints")
    damages: list[str] = []
    if round is None:
        found = checkpoints.newest_intact(damages.append)
        if found is None:
            raise UserError(
                f"{'; '.join([f'{run} holds no intact checkpoint', *damages])}: name the folder of a run, "
                "<out>/<scenario>/<method>/<digest>-s<seed>"
            )
        round, commit = found
    else:
        try:
            commit = checkpoints.intact(round)
        except UnfitError as error:
            kept = ", ".join(map(str, sorted(checkpoints.rounds()))) or "none"
            raise UserError(f"round {round} cannot be exported: {error}; checkpoints kept: {kept}") from error
    written = []
    for participant in commit["files"]:
        networks: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
        for name, array in read_model(checkpoints.model_path(round, participant)).items():
            companion, _, tensor = name.rpartition(":")
            networks[companion][tensor] = array
        for companion, state in networks.items():
            path = out / ".".join(filter(None, (participant, companion, format)))
            with explaining(path, "make room there, or choose another --out"), replacing(path) as temporary:
                temporary.write_bytes(_encoded(state, format))
            written.append(path)
    return written


def _encoded(state: State, format: str) -> bytes:
    if format == "pt":
        import torch

        buffer = io.BytesIO()
        torch.save({name: torch.from_numpy(array) for name, array in state.items()}, buffer)
        return buffer.getvalue()
    try:
        from safetensors.numpy import save
    except ImportError as error:
        raise UserError(
            'safetensors is not installed: pip install "fccl_mpi[export]", or --format pt'
        ) from error
    return save(dict(state))


if __name__ == "__main__":
    sys.exit(main())
