"""diagnostics.h5: what the report's figures need of a run's last round beyond its metrics.

::

    diagnostics/<participant>.h5    written by the ranks, side by side
    diagnostics.h5                  all of them in one, by the server, which then removes the parts

The file holds ``/participants/<participant>/<array>``, the list ``/domains`` and the attributes ``schema``,
``kind``, ``round`` and ``complete``. The arrays are ``public`` and ``private`` (C, C), the participant's
cross-correlation matrices, and, if its model gives features, ``features`` float16 (n, F) of test images
with their ``labels`` (n,) and ``domains`` (n,), which count in the list.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from fccl_mpi.core import hdf5
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import explaining
from fccl_mpi.core.hdf5 import UnfitError, attribute, dataset

SCHEMA = 1
NAME = "diagnostics.h5"
ARRAYS = ("public", "private", "features", "labels", "domains")
ADVICE = (
    "make room or mend its permissions, and the same command makes it, or leave it out by diagnostics=false"
)


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """What `merge` wrote, in memory."""

    domains: list[str]
    participants: dict[str, dict[str, np.ndarray]]
    """Arrays of each participant by name."""


def write_part(run: Path, participant: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write one participant's arrays. Raises UserError where they cannot be written."""
    path = _part(run, participant)
    with explaining(path, ADVICE), hdf5.writing(path) as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)


def merge(run: Path, participants: Sequence[str], *, round: int, domains: Sequence[str]) -> None:
    """Make one file of the participants' parts, whole or not at all, and remove these.

    Raises UserError where it cannot be written.
    """
    with explaining(run / NAME, ADVICE), hdf5.writing(run / NAME) as file:
        group = file.create_group("participants")
        for name in participants:
            with h5py.File(_part(run, name), "r", locking=False) as part:
                part.copy(part["/"], group, name)
        hdf5.write_strings(file, "domains", domains)
        hdf5.seal(file, {"schema": SCHEMA, "kind": "diagnostics", "round": round})
    shutil.rmtree(run / "diagnostics", ignore_errors=True)


def recorded_round(run: Path) -> int | None:
    """The round that a run's diagnostics are of, or None where there are none that can be read."""
    try:
        with hdf5.reading(run / NAME) as file:
            return _round(file)
    except UnfitError:
        return None


def read(run: Path) -> Diagnostics:
    """All of a run's diagnostics. Raises UserError naming the file where it cannot be read."""
    try:
        with hdf5.reading(run / NAME) as file:
            _round(file)
            participants = {
                who: {name: dataset(part, name)[()] for name in ARRAYS if name in part}
                for who, part in file["participants"].items()
            }
            return Diagnostics(domains=hdf5.strings(file, "domains"), participants=participants)
    except UnfitError as error:
        reason = f"{run / NAME} cannot serve as diagnostics: {error}"
        raise UserError(f"{reason}; remove it, and the run's command makes it again") from error


def _round(file: h5py.File) -> int:
    if attribute(file, "schema", int) != SCHEMA or not attribute(file, "complete", bool):
        raise UnfitError(f"it is incomplete or not of schema {SCHEMA}")
    return attribute(file, "round", int)


def _part(run: Path, participant: str) -> Path:
    return run / "diagnostics" / f"{participant}.h5"
