"""The public images of a run, and in which batches they are seen."""

from pathlib import Path

import torch
from torch import Tensor

from fccl_mpi.config.schema import Config
from fccl_mpi.core.seeds import generator
from fccl_mpi.data import schema
from fccl_mpi.data.augment import augment
from fccl_mpi.data.images import Normaliser, to_device
from fccl_mpi.data.partition import draw


class PublicImages:
    """The public images of a run, and the batches that every participant sees alike in a round."""

    def __init__(self, config: Config, device: torch.device) -> None:
        path = Path(config.data) / config.public.file
        images, labels = schema.read_public(path)
        chosen = draw(len(images), config.public_size, config.seed, config.public.name, "public")
        self.images = to_device(images[chosen], device)
        self.labels = None if labels is None else torch.from_numpy(labels[chosen]).to(device)
        self.normalise = Normaliser(config.public.mean, config.public.std, device)
        self.batch_size = config.public_batch_size
        self.epochs = config.public_epochs
        self.seed = config.seed

    def batches_of(self, round: int) -> list[Tensor]:
        """The round's augmented batches, uint8 (B, 3, 32, 32) each, from (seed, round) alone."""
        found = []
        for epoch in range(self.epochs):
            randomness = generator(self.seed, "public", round, epoch)
            order = randomness.permutation(len(self.images))
            for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
                chosen = torch.from_numpy(order[start : start + self.batch_size])
                found.append(augment(self.images[chosen.to(self.images.device)], randomness))
        return found
