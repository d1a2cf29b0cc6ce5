"""HDF5 checkpoints: a file for each participant, and a commit file that makes them one.

::

    checkpoints/round_0003/<participant>.h5     written by the ranks, side by side
    checkpoints/round_0003/commit.json          written last, by the server, naming all of them

No commit, no checkpoint. A model file holds ``/state/<tensor>`` as the model's ``state_dict`` names
them, and the attributes ``schema``, ``kind``, ``digest``, ``complete`` and what the writer adds.
Optimisers are made anew in every round, so weights and buffers are all the state there is. They lie on
the host, so that it does not matter which device made them.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np

from fccl_mpi.core import hdf5
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import explaining, replacing, sha256_of
from fccl_mpi.core.hdf5 import UnfitError, attribute, dataset

SCHEMA = 2
COMMIT = "commit.json"
ADVICE = "make room or mend its permissions, and the same command goes on from the last checkpoint"

State = Mapping[str, np.ndarray]


def write_model(path: Path, state: State, about: Mapping[str, str | int]) -> str:
    """Write a model's state atomically, with ``about`` as attributes; returns the file's sha256.

    Raises UserError where it cannot be written.
    """
    with explaining(path, ADVICE):
        with hdf5.writing(path) as file:
            group = file.create_group("state")
            for name, array in state.items():
                group.create_dataset(name, data=array)
            hdf5.seal(file, {"schema": SCHEMA, "kind": "model", **about, "digest": state_digest(state)})
        return sha256_of(path)


class ModelWriter:
    """Writes a model in a thread of its own, while the federation goes on."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[str] | None = None

    def begin(self, path: Path, state: State, about: Mapping[str, str | int]) -> None:
        """Begin to write what ``state`` is now, as `write_model` does; `finish` comes before the next."""
        taken = {name: array.copy() for name, array in state.items()}
        self._writing = self._thread.submit(write_model, path, taken, about)

    @property
    def busy(self) -> bool:
        """Whether something was begun that nobody has waited for."""
        return self._writing is not None

    def finish(self) -> str:
        """The sha256 of what was begun, once it is on disk. Raises UserError where it cannot be written."""
        assert self._writing is not None
        writing, self._writing = self._writing, None
        return writing.result()


def read_model(path: Path, like: State | None = None) -> dict[str, np.ndarray]:
    """Read a model's state; with ``like`` it must have the same names, shapes and dtypes.

    Raises UserError naming the file and the reason.
    """
    try:
        with hdf5.reading(path) as file:
            if attribute(file, "schema", int) != SCHEMA or not attribute(file, "complete", bool):
                raise UnfitError(f"it is incomplete or not of schema {SCHEMA}")
            group = file.get("state")
            if not isinstance(group, h5py.Group):
                raise UnfitError("it has no group /state")
            if like is not None and set(group) != set(like):
                other = sorted(set(group) ^ set(like))
                raise UnfitError(f"its tensors are other ones ({', '.join(other[:3])} ...)")
            stored = {name: dataset(file, f"state/{name}") for name in like or group}
            for name, wanted in (like or {}).items():
                found = stored[name]
                if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
                    raise UnfitError(
                        f"{name} is {found.dtype} {found.shape}, not {wanted.dtype} {wanted.shape}"
                    )
            state = {name: np.asarray(found[()]) for name, found in stored.items()}  # a scalar too
            if attribute(file, "digest", str) != state_digest(state):
                raise UnfitError("its content does not match its digest, so it is damaged")
    except UnfitError as error:
        reason = f"{path} cannot serve as this model: {error}"
        raise UserError(f"{reason}; remove it, and it is made again") from error
    return state


def state_digest(state: State) -> str:
    """Hex sha256 of names, dtypes, shapes and bytes, whatever the order of the tensors."""
    digest = hashlib.sha256()
    for name, array in sorted(state.items()):
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, participants: Sequence[str] = ()) -> None:
        """Those below ``folder``, in which a checkpoint must hold ``participants``, where any are given."""
        self.folder, self.participants = folder, participants

    def model_path(self, round: int, participant: str) -> Path:
        """Where a participant's model of a round lies."""
        return self._round(round) / f"{participant}.h5"

    def commit(self, round: int, files: Mapping[str, str], about: Mapping[str, object], keep: int) -> None:
        """Make the written models of a round a checkpoint, then keep the newest ``keep`` up to it (0: all).

        ``files`` maps participant to sha256; ``about`` is what a resuming run must equal. Raises UserError
        where it cannot be written.
        """
        path = self._round(round) / COMMIT
        with explaining(path, ADVICE), replacing(path) as temporary:
            temporary.write_text(json.dumps({"round": round, "files": dict(files), **about}, indent=1))
        if keep:
            committed = self.rounds()
            # Later ones are damaged, or the run would have gone on from them.
            kept = [other for other in committed if other <= round][:keep]
            for old in set(committed) - set(kept):
                (self._round(old) / COMMIT).unlink()  # first, so that a half removed one is none
                shutil.rmtree(self._round(old))

    def rounds(self) -> list[int]:
        """Rounds with a commit file, newest first."""
        names = [path.parent.name.removeprefix("round_") for path in self.folder.glob(f"round_*/{COMMIT}")]
        rounds = [int(name) for name in names if name.isdecimal()]
        return sorted((round for round in rounds if (self._round(round) / COMMIT).exists()), reverse=True)

    def read_commit(self, round: int) -> dict:
        """A round's commit. Raises UnfitError with the reason where it is none of this run's."""
        path = self._round(round) / COMMIT
        try:
            if not path.is_file():
                raise ValueError("it is no file")
            commit = json.loads(path.read_text("utf-8"))
            if not isinstance(commit, dict) or type(commit.get("round")) is not int:
                raise ValueError("it names no round")
            if commit["round"] != round:
                raise ValueError(f"it is of round {commit['round']}")
            for key in ("files", "data"):
                if not isinstance(commit.get(key), dict) or not all(
                    isinstance(value, str) for value in commit[key].values()
                ):
                    raise ValueError(f"its {key} are missing")
            if any(Path(name).name != name for name in commit["files"]):
                raise ValueError("it names files outside of its folder")
            if not commit["files"] or (self.participants and set(commit["files"]) != set(self.participants)):
                raise ValueError(f"its models are those of {', '.join(commit['files']) or 'nobody'}")
        except (OSError, ValueError, RecursionError) as error:
            raise UnfitError(f"{path} is damaged ({error})") from error
        return commit

    def newest_intact(self, tell: Callable[[str], object] = lambda damage: None) -> tuple[int, dict] | None:
        """Round and commit of the newest complete checkpoint whose files have the bytes that were committed.

        None where there is none. Each damaged one on the way is passed over and its damage told; older ones
        are not read.
        """
        for round in self.rounds():
            try:
                return round, self.intact(round)
            except UnfitError as damage:
                tell(str(damage))
        return None

    def intact(self, round: int) -> dict:
        """A round's commit, once all its files are seen to be as committed. Raises UnfitError."""
        commit = self.read_commit(round)
        for name, digest in commit["files"].items():
            path = self.model_path(round, name)
            try:
                if not path.is_file() or sha256_of(path) != digest:
                    raise UnfitError(f"{path} does not match its sha256")
            except OSError as error:
                raise UnfitError(f"{path} cannot be read ({error})") from error
        return commit

    def remove_unfinished(self) -> None:
        """Remove the folders of rounds whose checkpoint was never committed."""
        for folder in self.folder.glob("round_*"):
            if not (folder / COMMIT).exists():
                shutil.rmtree(folder)

    def _round(self, round: int) -> Path:
        return self.folder / f"round_{round:04d}"
