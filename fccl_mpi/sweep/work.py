"""What a sweep will take, told before it begins."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import UserError
from fccl_mpi.data.schema import DomainHeader, read_domain_header
from fccl_mpi.methods.base import LogitsMethod
from fccl_mpi.store.history import History
from fccl_mpi.sweep.points import Point, key_of_pretraining


def estimate(points: Mapping[Point, Config], done: Mapping[Point, int]) -> str:
    """The work that is left, in a sentence; ``done`` has the last round of the points that have begun."""
    left = {point: max(0, point.rounds - done.get(point, 0)) for point in points}
    participants = sum(rounds * (point.ranks - 1) for point, rounds in left.items())
    text = f"{sum(left.values()):,} rounds, {participants:,} counted for each participant"
    try:
        begun = {key_of_pretraining(points[point]) for point in done}
        pretraining = {key_of_pretraining(config): pretraining_images(config) for config in points.values()}
        trained = sum(images for key, images in pretraining.items() if key not in begun)
        trained += sum(rounds * images_of_a_round(points[point]) for point, rounds in left.items())
        tested = sum((left[point] + (point not in done)) * test_images(points[point]) for point in points)
    except UserError as error:
        return f"{text}; its images cannot be counted: {error}"
    text += f"; {trained:,} images forward and backward, {tested:,} forward to be tested"
    seconds, images = 0.0, 0
    for point in done:
        lines = History(Path(point.folder) / "metrics.jsonl").read()[1:]
        seconds += sum(line["seconds"]["wall"] for line in lines)
        images += len(lines) * images_of_a_round(points[point])
    if images:
        text += f"; about {trained * seconds / images / 3600:.2g} h, one at a time, as the rounds so far"
    return text


def pretraining_images(config: Config) -> int:
    """Forwarded and backwarded before round 1, by all participants."""
    return config.pretrain_epochs * sum(_private_images(config, name) for name in config.participants)


def images_of_a_round(config: Config) -> int:
    """Forwarded and backwarded in a round by all participants, private and public ones."""
    public = 0
    if isinstance(config.method, LogitsMethod) and config.method.exchanges():
        batches = config.public_size // config.public_batch_size
        public = config.public_epochs * batches * config.public_batch_size
    own = config.participants.items()
    return sum(public + other.local_epochs * _private_images(config, name) for name, other in own)


def test_images(config: Config) -> int:
    """Forwarded to test all participants on all domains."""
    domains = {own.domain for own in config.participants.values()}
    sizes = (config.test_size or _header(config.data, config.task, domain).test_size for domain in domains)
    return len(config.participants) * sum(sizes)


def _private_images(config: Config, name: str) -> int:
    own = config.participants[name]
    if own.private_size:
        return own.private_size
    shares = sum(other.share for other in config.participants.values() if other.domain == own.domain)
    return int(_header(config.data, config.task, own.domain).train_size * own.share / shares)


@cache
def _header(data: str, task: str, domain: str) -> DomainHeader:
    return read_domain_header(Path(data) / task / f"{domain}.h5")
