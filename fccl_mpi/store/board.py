"""TensorBoard's view of a run: the same numbers as metrics.jsonl, through tensorboardX (no torch)."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fccl_mpi.core.errors import UserError


def require_tensorboard(wanted: bool) -> None:
    """Raise UserError where tensorboardX is ``wanted`` but missing."""
    if wanted and find_spec("tensorboardX") is None:
        raise UserError(
            'tensorboard=true needs tensorboardX: pip install "fccl_mpi[tensorboard]", '
            "or leave tensorboard=false"
        )


class Board:
    """Scalars in ``<run>/tensorboard``. What a resumed run does again replaces what was there."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; no file is made before there is a round."""
        self.folder = folder
        self._writer: Any = None

    def append(self, line: dict[str, Any], names: list[str]) -> None:
        """Add a round's line of metrics.jsonl; ``names`` are the participants in its order."""
        if self._writer is None:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(str(self.folder), purge_step=line["round"])
        for tag, value in scalars(line, names):
            self._writer.add_scalar(tag, value, line["round"])
        self._writer.flush()


def scalars(line: dict[str, Any], names: list[str]) -> Iterator[tuple[str, float]]:
    """Tags and values of a round: what is one number, by its name, then what participants have."""
    for key, value in line.items():
        if key != "round" and isinstance(value, int | float):
            yield key, value
    if line["top1"] is not None:
        for name, row in zip(names, line["top1"], strict=True):
            for domain, accuracy in zip(names, row, strict=True):
                yield f"top1/{name}/on_{domain}", accuracy
    for name, losses in line["loss"].items():
        for term, value in losses.items():
            yield f"loss/{term}/{name}", value
    for phase, seconds in line["seconds"].items():
        if isinstance(seconds, dict):
            for name, value in seconds.items():
                yield f"seconds/{phase}/{name}", value
        else:
            yield f"seconds/{phase}", seconds
