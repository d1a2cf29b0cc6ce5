"""A run's folder: ``<out>/<scenario>/<method>/<config digest>-s<seed>/``."""

import fcntl
import hashlib
import os
from pathlib import Path
from typing import TextIO

from fccl_mpi.config.compose import digest, to_yaml
from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import replacing
from fccl_mpi.store.checkpoint import Checkpoints
from fccl_mpi.store.history import History


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
        self.checkpoints = Checkpoints(self.path / "checkpoints")
        self.log = self.path / "log" / "run.log"
        self._lock: TextIO | None = None

    def claim(self) -> None:
        """Make the folder, or take it up again, as the only process.

        Raises UserError where another run holds it, where it may not be written, or where it holds a run
        and ``resume=never``.
        """
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("a+")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{self.path} is in use by another run: wait for it, or change out= or seed="
                ) from None
            config_file = self.path / "config.yaml"
            if self.config.resume == "never" and config_file.exists():
                raise UserError(
                    f"{self.path} holds a run already: resume=auto goes on with it; or change out="
                )
            with replacing(config_file) as temporary:
                temporary.write_text(to_yaml(self.config), encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be written ({os.strerror(error.errno or 0)}): change out="
            ) from error


def pretrained_path(config: Config, participant: str, images_digest: str) -> Path:
    """Where a participant's pretrained model lies: under a key of all that determines it.

    ``images_digest`` is that of its private images, wherever they come from. Runs that differ in method,
    rounds or the other participants find the same file.
    """
    own = config.participants[participant]
    settings = (config.seed, config.pretrain_epochs, config.local_batch_size, config.lr)
    key = "/".join(map(str, (images_digest, own.model, own.width, config.homogeneous, *settings)))
    name = f"{participant}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.h5"
    return Path(config.out) / "pretrained" / config.scenario / name
