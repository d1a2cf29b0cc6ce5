"""Before round 1: every rank shows what it has, and all stop together where that does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import fccl_mpi
from fccl_mpi.config.compose import digest
from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import AgreedError
from fccl_mpi.data.schema import read_public_header
from fccl_mpi.federation.placement import cores_shown, gpu_shown
from fccl_mpi.federation.voice import Voice
from fccl_mpi.federation.world import Place

if TYPE_CHECKING:
    from fccl_mpi.federation.participant import Participant


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a rank shows the others; the server has no images and no model."""

    place: Place
    config: str
    versions: str
    cores: str
    gpu: str = ""
    public: str = ""
    domain: str = ""
    class_names: tuple[str, ...] = ()
    private_images: int = 0
    test_images: int = 0
    model: str = ""
    parameters: int = 0

    @property
    def classes(self) -> int:
        """C."""
        return len(self.class_names)


def card_of_server(config: Config, place: Place) -> Card:
    """The server's card."""
    return Card(place=place, config=digest(config), versions=versions(), cores=cores_shown())


def card_of_participant(me: Participant, place: Place) -> Card:
    """A participant's card."""
    return Card(
        place=place,
        config=digest(me.config),
        versions=versions(),
        cores=cores_shown(),
        gpu=gpu_shown(me.device),
        public=read_public_header(Path(me.config.data) / me.config.public.file).digest,
        domain=me.header.digest,
        class_names=me.header.classes,
        private_images=len(me.private),
        test_images=len(me.tests[me.own.domain]),
        model=f"{me.own.model} × {me.own.width:g}",
        parameters=sum(parameter.numel() for parameter in me.model.parameters()),
    )


def compare(cards: list[Card]) -> None:
    """Raise AgreedError, the same on every rank, where ranks differ in what must be equal."""
    server, first, *others = cards
    for card in [server, *others]:
        for key, name in _EQUAL.items():
            mine, theirs = getattr(card, key), getattr(first, key)
            if mine != theirs and not (card is server and key in ("public", "class_names")):
                raise AgreedError(
                    f"{card.place.address} and {first.place.address} differ in {name}: {mine} and {theirs}; "
                    "start all ranks with the same command, software and image sets"
                )


_EQUAL = {
    "config": "the configuration's digest",
    "versions": "software versions",
    "public": "the public set's digest",
    "class_names": "the classes",
}


def introduce(voice: Voice, config: Config, cards: list[Card]) -> None:
    """A run's first lines: versions, what is run, and who is where with what."""
    what = f"{config.scenario}, method {config.method.name}, seed {config.seed}, {config.rounds} rounds"
    voice.say(f"{versions()}; {what}")
    for card in cards:
        where = f"rank {card.place.rank} on {card.place.host}"
        if card.place.rank == 0:
            voice.say(f"{where}, {card.cores}: server")
            continue
        device = f"{card.place.device} ({card.gpu})" if card.gpu else card.place.device
        threads = f"{card.place.threads} thread{'s' * (card.place.threads > 1)}"
        voice.say(
            f"{where}, {device}, {threads} on {card.cores}: "
            f"{card.place.who}, {card.model}, {card.parameters:,} parameters, "
            f"{card.private_images} private and {card.test_images} test images"
        )
    logits = config.public_batch_size * cards[1].classes
    received = 4 * logits * (1 if config.collective == "allreduce" else len(cards[1:]))
    voice.say(
        f"public: {config.public.name}, {config.public_size} images, an exchange every {config.exchange}; "
        f"a batch of {config.public_batch_size} is {received} bytes of logits to each"
    )


def versions() -> str:
    """Versions of what determines a run's numbers."""
    return f"fccl_mpi {fccl_mpi.__version__}, torch {version('torch')}, numpy {version('numpy')}"
