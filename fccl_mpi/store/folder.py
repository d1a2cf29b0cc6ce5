"""A run's folder: ``<out>/<scenario>/<method>/<config digest>-s<seed>/``."""

import errno
import fcntl
import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from omegaconf import OmegaConf

from fccl_mpi.config.compose import FREE_KEYS, digest, to_yaml
from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import explaining, replacing
from fccl_mpi.core.hdf5 import UnfitError
from fccl_mpi.store.checkpoint import Checkpoints
from fccl_mpi.store.history import History

# What, beside its model and private images, determines a pretrained model.
PRETRAINING_KEYS = [
    "seed",
    "homogeneous",
    "pretrain_epochs",
    "local_batch_size",
    "lr",
    "precision",
    "compile",
]
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)  # a file system without locks


class RunFolder:
    """The folder of one run: what determines its numbers determines its name."""

    def __init__(self, config: Config) -> None:
        """Name the folder, without making it."""
        self.config = config
        self.digest = digest(config)
        self.path = (
            Path(config.out) / config.scenario / config.method.name / f"{self.digest[:8]}-s{config.seed}"
        )
        self.history = History(self.path / "metrics.jsonl")
        self.checkpoints = Checkpoints(self.path / "checkpoints", list(config.participants))
        self.log = self.path / "log" / "run.log"
        self._config = self.path / "config.yaml"
        self._lock: TextIO | None = None

    def claim(self) -> None:
        """Make the folder, or take it up again, as the only process; remove what a killed one left half-made.

        Raises UserError where another run holds it, where it may not be written, where it holds another
        run than this, and where it holds any and ``resume=never``.
        """
        with explaining(self.path, "change out="):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("a+")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{self.path} is in use by another run: wait for it, or change out= or seed="
                ) from None
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                warnings.warn(f"{self.path} lies where files cannot be locked: never start this run twice")
            if self.config.resume == "never" and self._config.exists():
                raise UserError(
                    f"{self.path} holds a run already: resume=auto goes on with it; or change out="
                )
            self._refuse_another_run()
            for part in self.path.rglob(".*.part"):
                part.unlink()
            self.checkpoints.remove_unfinished()
            text = to_yaml(self.config).encode()
            if not self._config.exists() or self._config.read_bytes() != text:
                with replacing(self._config) as temporary:
                    temporary.write_bytes(text)

    def release(self) -> None:
        """Let go of the folder, which the end of the process does too."""
        if self._lock:
            self._lock.close()

    def _refuse_another_run(self) -> None:
        """Raise UserError where the folder was moved here or its config.yaml was changed by hand."""
        stored, own = self._stored_settings(), _settings(to_yaml(self.config))
        differing = [
            f"{key}={stored.get(key, 'nothing')} there and {own.get(key, 'nothing')} now"
            for key in {**own, **stored}
            if stored and key.split(".")[0] not in FREE_KEYS and stored.get(key) != own.get(key)
        ]
        if differing:
            more = f" and {len(differing) - 5} more" if len(differing) > 5 else ""
            raise UserError(
                f"{self._config} is of another run ({', '.join(differing[:5])}{more}): restore it, or "
                "change out="
            )
        for round in self.checkpoints.rounds():
            try:
                commit = self.checkpoints.read_commit(round)
            except UnfitError:
                continue  # who resumes names it
            if commit.get("config") != self.digest:
                raise UserError(f"{self.path} holds checkpoints of another configuration: change out=")
            if round > self.config.rounds:
                raise UserError(
                    f"rounds={self.config.rounds}, but {self.path} has {round} already: ask for as many or "
                    "more, or change out="
                )
            return

    def _stored_settings(self) -> dict[str, object]:
        """What config.yaml says, nothing where there is none yet."""
        if not self._config.exists():
            return {}
        try:
            return _settings(self._config.read_text("utf-8"))
        except OSError:
            raise
        except Exception as error:  # YAML, OmegaConf, Unicode and recursion errors
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise UserError(
                f"{self._config} cannot be read ({reason}): restore it, or remove it, and it is written anew"
            ) from error


def _settings(text: str) -> dict[str, object]:
    """A configuration in YAML by dotted keys, and the participants in their order, which is the ranks'."""
    settings = OmegaConf.to_container(OmegaConf.create(text))
    participants = settings.get("participants") if isinstance(settings, Mapping) else None
    order = {"participants": list(participants)} if isinstance(participants, Mapping) else {}
    return order | _flat(settings, "")


def _flat(settings: object, prefix: str) -> dict[str, object]:
    if not isinstance(settings, Mapping):
        return {prefix: settings}
    flat: dict[str, object] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}.{key}".lstrip("."))
    return flat


def pretrained_path(config: Config, participant: str, images_digest: str) -> Path:
    """Where a participant's pretrained model lies: under a key of all that determines it.

    ``images_digest`` is that of its private images, wherever they come from. Runs that differ in method,
    rounds or the other participants find the same file.
    """
    own = config.participants[participant]
    settings = [getattr(config, key) for key in PRETRAINING_KEYS]
    key = "/".join(map(str, (images_digest, own.model, own.width, *settings)))
    name = f"{participant}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.h5"
    return Path(config.out) / "pretrained" / config.scenario / name
