"""Where every method starts: a model trained alone, on private images (SOLO), and what it gets right.

Both follow from settings and images alone, so they are stored and made once for all methods.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from fccl_mpi import maths
from fccl_mpi.core.files import explaining, replacing
from fccl_mpi.data.schema import content_digest
from fccl_mpi.store.checkpoint import ADVICE, read_model, state_digest, write_model
from fccl_mpi.store.folder import pretrained_path

if TYPE_CHECKING:
    import torch

    from fccl_mpi.federation.participant import Counts, Participant


class StoppedError(Exception):
    """Pretraining was asked to stop."""


def pretrain(me: Participant, stop: object) -> bool:
    """Bring the model to where every method starts.

    The result is stored under a key of what determines it. Returns False where ``stop`` came true before
    that: nothing is stored then.
    """
    path = pretrained_path(me.config, me.name, me.private_digest)
    if path.exists():
        me.load(read_model(path, like=me.state()))
        return True

    def loss_terms(logits: torch.Tensor, labels: torch.Tensor, _: torch.Tensor) -> dict[str, torch.Tensor]:
        if stop:
            raise StoppedError
        return {"local": maths.distillation.cross_entropy(logits, labels)}

    try:
        me.train_privately(loss_terms, me.config.pretrain_epochs, "pretrain")
    except StoppedError:
        return False
    me.refuse_nonfinite()
    write_model(path, me.state(), {"participant": me.name, "epochs": me.config.pretrain_epochs})
    return True


def evaluate_pretrained(me: Participant) -> dict[str, Counts]:
    """`Participant.evaluate` of the model that `pretrain` has brought.

    The result is stored beside it, under a key of the weights, the test sets and how they are passed through.
    """
    sets = [
        f"{domain} {content_digest(test.images.cpu().numpy(), test.labels.cpu().numpy())}"
        for domain, test in sorted(me.tests.items())
    ]
    settings = [me.config.evaluate_batch_size, me.config.precision, me.config.compile]
    key = "/".join(map(str, (state_digest(me.state()), *sets, *settings)))
    suffix = f".{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    path = pretrained_path(me.config, me.name, me.private_digest).with_suffix(suffix)
    try:
        stored = json.loads(path.read_text("utf-8"))
        found = {domain: tuple(stored[domain]) for domain in me.tests}
        if all(are_counts(counts, len(me.tests[domain])) for domain, counts in found.items()):
            return found
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass  # it is not there, or damaged: it is made again
    found = me.evaluate()
    with explaining(path, ADVICE), replacing(path) as temporary:
        temporary.write_text(json.dumps(found), "utf-8")
    return found


def are_counts(found: tuple, images: int) -> bool:
    """Whether these can be what `Participant.evaluate` finds for a test set of so many ``images``."""
    if len(found) != 3 or any(type(number) is not int for number in found):
        return False
    total, top1, top5 = found
    return total == images and 0 <= top1 <= top5 <= images
