"""HDF5 checkpoints: a file for each participant, and a commit file that makes them one.

::

    checkpoints/round_0003/<participant>.h5     written by the ranks, side by side
    checkpoints/round_0003/commit.json          written last, by the server, naming all of them

No commit, no checkpoint. A model file holds ``/state/<tensor>`` as the model's ``state_dict`` names
them, and the attributes ``schema``, ``kind``, ``digest``, ``complete`` and what the writer adds.
Optimisers are made anew in every round, so weights and buffers are all the state there is.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import h5py
import numpy as np

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import replacing, sha256_of

SCHEMA = 1
COMMIT = "commit.json"

State = Mapping[str, np.ndarray]


def write_model(path: Path, state: State, about: Mapping[str, str | int]) -> str:
    """Write a model's state atomically, with ``about`` as attributes; returns the file's sha256."""
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        group = file.create_group("state")
        for name, array in state.items():
            group.create_dataset(name, data=array)
        file.attrs.update({"schema": SCHEMA, "kind": "model", **about, "digest": state_digest(state)})
        file.flush()
        file.attrs["complete"] = True
    return sha256_of(path)


def read_model(path: Path, like: State) -> dict[str, np.ndarray]:
    """Read a model's state, which must have the names, shapes and dtypes of ``like``.

    Raises UserError naming the file and the reason.
    """
    try:
        with h5py.File(path, "r", locking=False) as file:
            if file.attrs.get("schema") != SCHEMA or not file.attrs.get("complete", False):
                raise _unfit(path, f"it is incomplete or not of schema {SCHEMA}")
            group = file.get("state")
            names = set(group) if isinstance(group, h5py.Group) else set()
            if names != set(like):
                raise _unfit(
                    path, f"its tensors are other ones ({', '.join(sorted(names ^ set(like))[:3])} ...)"
                )
            state = {}
            for name, wanted in like.items():
                dataset = group[name]
                if dataset.shape != wanted.shape or dataset.dtype != wanted.dtype:
                    raise _unfit(
                        path, f"{name} is {dataset.dtype} {dataset.shape}, not {wanted.dtype} {wanted.shape}"
                    )
                state[name] = np.asarray(dataset[()])  # a scalar too
            if file.attrs.get("digest") != state_digest(state):
                raise _unfit(path, "its content does not match its digest, so it is damaged")
    except OSError as error:
        raise _unfit(path, str(error)) from error
    return state


def state_digest(state: State) -> str:
    """Hex sha256 of names, dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    for name, array in state.items():
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def model_path(self, round: int, participant: str) -> Path:
        """Where a participant's model of a round lies."""
        return self._round(round) / f"{participant}.h5"

    def commit(self, round: int, files: Mapping[str, str], about: Mapping[str, object], keep: int) -> None:
        """Make the written models of a round a checkpoint, then remove all but the newest ``keep`` (0: all).

        ``files`` maps participant to sha256; ``about`` is what a resuming run must equal.
        """
        with replacing(self._round(round) / COMMIT) as temporary:
            temporary.write_text(json.dumps({"round": round, "files": dict(files), **about}, indent=1))
        committed = self._rounds()
        for old in committed[keep:] if keep else []:
            (self._round(old) / COMMIT).unlink()  # first, so that a half removed one is none
            shutil.rmtree(self._round(old))

    def newest_intact(self, tell: Callable[[str], object] = lambda damage: None) -> tuple[int, dict] | None:
        """Round and commit of the newest complete checkpoint whose files have the bytes that were committed.

        None where there is none. Each damaged one on the way is passed over and its `damage` told; older ones
        are not read.
        """
        for round in self._rounds():
            if damage := self.damage(round):
                tell(damage)
            else:
                return round, json.loads((self._round(round) / COMMIT).read_text())
        return None

    def damage(self, round: int) -> str:
        """What is wrong with a committed checkpoint, or an empty string."""
        try:
            files = json.loads((self._round(round) / COMMIT).read_text())["files"]
            for name, digest in files.items():
                if sha256_of(self.model_path(round, name)) != digest:
                    return f"{self.model_path(round, name)} does not match its sha256"
        except (OSError, ValueError, KeyError) as error:
            return f"{self._round(round)}: {error}"
        return ""

    def _round(self, round: int) -> Path:
        return self.folder / f"round_{round:04d}"

    def _rounds(self) -> list[int]:
        """Rounds with a commit file, newest first."""
        names = [path.parent.name for path in self.folder.glob(f"round_*/{COMMIT}")]
        return sorted((int(name.removeprefix("round_")) for name in names), reverse=True)


def _unfit(path: Path, reason: str) -> UserError:
    return UserError(f"{path} cannot serve as this model: {reason}; remove it, and it is made again")
