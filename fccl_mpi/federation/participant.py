"""What one rank above 0 holds: a model of its own, private images, test sets, the public images."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fccl_mpi.config.schema import IMAGENET_MEAN, IMAGENET_STD, Config
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.seeds import derive, generator
from fccl_mpi.data import schema
from fccl_mpi.data.images import ImageSet, Normaliser
from fccl_mpi.data.partition import batches, draw, split_domain
from fccl_mpi.data.public import PublicImages
from fccl_mpi.federation.exchange import Exchange, average
from fccl_mpi.federation.staging import Staging
from fccl_mpi.maths.accuracy import count_correct
from fccl_mpi.maths.aggregation import AGGREGATES
from fccl_mpi.models.registry import build
from fccl_mpi.models.tuning import tune

Counts = tuple[int, int, int]
"""Of a test set: its images, those that are right by top 1, and by top 5 (or all classes)."""


class Participant:
    """A participant's model, images and the operations that methods are made of.

    Attributes a method uses: ``name``, ``index`` among the participants, ``participants`` (K), ``model``,
    ``companions`` (networks that the method keeps beside it), ``public``, ``private``, ``exchange``,
    ``config`` (the run's), ``own`` (its own part of it).
    """

    def __init__(self, config: Config, name: str, exchange: Exchange, device: torch.device) -> None:
        """Read the image sets and build the model. Raises UserError for files or sizes that do not fit."""
        self.config, self.own = config, config.participants[name]
        self.name, self.index = name, exchange.rank - 1
        self.participants = exchange.participants
        self.exchange, self.device = exchange, device
        self.staging = Staging(device, config.gpu_aware_mpi)
        self.seconds: dict[str, float] = defaultdict(float)
        self.phase = ""  # of the round, while it is `timed`
        self.skipped = 0  # batches that on_nonfinite=skip_batch has left out in this round

        home = Path(config.data) / config.task
        self.header = schema.read_domain_header(home / f"{self.own.domain}.h5")
        train = schema.read_split(self.header.path, "train")
        chosen = self._private_images(train.labels)
        private = train.images[chosen], train.labels[chosen]
        self.private, self.private_digest = ImageSet(*private, device), schema.content_digest(*private)
        self.tests = {}  # by domain
        for domain in dict.fromkeys(other.domain for other in config.participants.values()):
            test = schema.read_split(home / f"{domain}.h5", "test")
            chosen = draw(len(test.labels), config.test_size, config.seed, domain, "test")
            self.tests[domain] = ImageSet(test.images[chosen], test.labels[chosen], device)
        self.public = PublicImages(config, device)
        self.normalise = Normaliser(IMAGENET_MEAN, IMAGENET_STD, device)
        self.classes = len(self.header.classes)

        # Models whose parameters are averaged begin as one, as in the released program.
        torch.manual_seed(derive(config.seed, *([] if config.homogeneous else [name]), "init"))
        self.model = self.adopt(build(self.own.model, classes=self.classes, width=self.own.width))
        self.pretrained_logits: Tensor  # on the private images, once it is pretrained
        self.companions: dict[str, nn.Module] = config.method.prepare(self)
        self._sound_buffers = [buffer.clone() for buffer in self.model.buffers()]

    def _private_images(self, labels: np.ndarray) -> np.ndarray:
        """Indices of the own images among the domain's training images."""
        seed, domain = self.config.seed, self.own.domain
        everyone = self.config.participants.items()
        shares = {name: other.share for name, other in everyone if other.domain == domain}
        mine = np.arange(len(labels))
        if len(shares) > 1:
            mine = split_domain(labels, shares, self.config.label_skew, seed, domain)[self.name]
        return mine[draw(len(mine), self.own.private_size, seed, self.name, "private")]

    def adopt(self, network: nn.Module) -> nn.Module:
        """Bring a network to the participant's device, to compute there as the run asks; see `tune`."""
        config = self.config
        sizes = (config.public_batch_size, config.local_batch_size, config.evaluate_batch_size)
        return tune(
            network,
            self.device,
            precision=config.precision,
            recompute=self.name in config.recompute,
            compile=config.compile,
            batch_sizes=sizes,
        )

    def state(self) -> dict[str, np.ndarray]:
        """The model's parameters and buffers."""
        return _arrays(self.model)

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take on parameters and buffers; the inverse of `state`."""
        _load(self.model, state)

    def whole_state(self) -> dict[str, np.ndarray]:
        """`state`, and that of every companion as ``<companion>:<tensor>``."""
        state = self.state()
        for companion, network in self.companions.items():
            state |= {f"{companion}:{name}": value for name, value in _arrays(network).items()}
        return state

    def load_whole(self, state: dict[str, np.ndarray]) -> None:
        """Take on the model's and the companions' state; the inverse of `whole_state`."""
        parts: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
        for name, value in state.items():
            companion, _, tensor = name.rpartition(":")
            parts[companion][tensor] = value
        self.load(parts[""])
        for companion, network in self.companions.items():
            _load(network, parts[companion])

    def seed_everything(self, *purpose: str | int) -> None:
        """Seed torch's global generators (initialisation, dropout) for one purpose of this participant."""
        torch.manual_seed(derive(self.config.seed, self.name, *purpose))

    def optimizer(self, *models: nn.Module) -> torch.optim.Optimizer:
        """A new Adam over the parameters of ``models``, by default of the own one."""
        parameters = [parameter for model in models or (self.model,) for parameter in model.parameters()]
        return torch.optim.Adam(parameters, lr=self.config.lr, fused=True)

    def share(self, logits: Tensor, kind: str = "logits", mean: bool = False) -> Tensor:
        """Exchange logits (B, C), or another tensor, on public images: all participants', (K, B, C).

        In participant order, the own ones at ``index``; or, if that is all that is wanted, their ``mean``
        (1, B, C). Valid until the next exchange. Raises AgreedError where some are not finite, unless
        ``on_nonfinite=skip_batch``.
        """
        return self.begin_to_share(logits, kind, mean)()

    def begin_to_share(
        self, logits: Tensor, kind: str = "logits", mean: bool = False
    ) -> Callable[[], Tensor]:
        """Give what `share` gives; the function that is returned waits for the others' and returns them.

        Several may be under way at a time; they are waited for in their order.
        """
        own = self.staging.send(logits)
        receive = self.exchange.begin(kind, own, tuple(own.shape), empty=self.staging.empty, mean=mean)
        return lambda: self.staging.take(receive())

    def average(self, model: nn.Module | None = None, weight: float = 1.0, group: str = "") -> None:
        """Replace a model's parameters and buffers, by default the own one's, by the mean over participants.

        ``weight`` is the own share in it, ``group`` the participants it runs over; see `exchange.average`.
        """
        model = self.model if model is None else model
        tensors = [*model.parameters(), *model.buffers()]
        own = torch.cat([tensor.detach().flatten().to("cpu", torch.float32) for tensor in tensors]).numpy()
        mean = torch.from_numpy(average(self.exchange, own, weight, group))
        with torch.no_grad():
            for tensor, part in zip(tensors, mean.split([tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def consensus(self, entries: Sequence[Tensor]) -> Tensor:
        """What the participants' logits (B, C) say together: their mean, or as ``aggregate=`` says."""
        return AGGREGATES[self.config.aggregate](entries)

    def with_own(self, everyone: Tensor, own: Tensor, sent: Tensor) -> Sequence[Tensor]:
        """Entries for `consensus` in which ``own`` (B, C) stands for what this participant has ``sent``.

        ``everyone`` is as `share` returned it: of all (K, B, C), or their mean (1, B, C).
        """
        if self.config.collective == "allreduce":
            return [everyone[0] + (own - sent.detach()) / self.participants]
        return [*everyone[: self.index], own, *everyone[self.index + 1 :]]

    @torch.no_grad()
    def predict(self, images: Tensor | Sequence[Tensor], normalise: Normaliser | None = None) -> Tensor:
        """Logits (N, C) of uint8 images in eval mode, without gradient; ``images`` whole or in batches."""
        normalise = normalise or self.normalise
        if isinstance(images, Tensor):
            images = images.split(self.config.evaluate_batch_size)
        self.model.eval()
        logits = torch.cat([self.model(normalise(batch)) for batch in images])
        self.model.train()
        return logits

    def train_privately(
        self,
        loss_terms: Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]],
        epochs: int,
        *purpose: str | int,
    ) -> dict[str, float]:
        """Train the model on the private images with a new Adam.

        Args:
            loss_terms: of (logits (B, C), labels (B,), indices (B,) into the private images), named scalars;
                the one named "local" is minimised, the others are for the record.
            epochs: passes over the private images.
            purpose: what the order of images and dropout are drawn from, beside seed and participant.

        Returns:
            Mean of every term over the images of all steps.

        Raises:
            UserError: a term is not finite.
        """
        optimizer = self.optimizer()
        totals: dict[str, Tensor | float] = defaultdict(float)
        seen = 0
        self.seed_everything(*purpose)
        self.model.train()
        for epoch in range(epochs):
            order = generator(self.config.seed, self.name, *purpose, epoch).permutation(len(self.private))
            for batch in batches(len(self.private), self.config.local_batch_size, order):
                chosen = torch.from_numpy(batch).to(self.device)
                logits = self.model(self.normalise(self.private.images[chosen]))
                terms = loss_terms(logits, self.private.labels[chosen], chosen)
                if self.step(optimizer, terms["local"]):
                    seen += len(batch)
                    for name, value in terms.items():
                        totals[name] += value.detach() * len(batch)  # summed on the device, read once
        return self.means(totals, seen, epochs * len(self.private))

    def step(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
        """One optimiser step; False where ``on_nonfinite=skip_batch`` has skipped it.

        Only there is each step's result looked at, since that makes a GPU wait. What the forward pass has
        put into BatchNorm's running statistics is then taken back.
        """
        optimizer.zero_grad()
        loss.backward()
        if self.exchange.skips_nonfinite:
            gradients = [
                p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
            ]
            if not all_finite([loss, *gradients]):
                self.skip_batch()
                return False
            self._sound_buffers = [buffer.clone() for buffer in self.model.buffers()]
        optimizer.step()
        return True

    def skip_batch(self) -> None:
        """Count a batch that is not learnt from, and have the model as it was before it."""
        self.skipped += 1
        for buffer, sound in zip(self.model.buffers(), self._sound_buffers, strict=True):
            buffer.copy_(sound)

    def means(self, totals: dict[str, Tensor | float], count: int, planned: int) -> dict[str, float]:
        """Sums over ``count`` images or batches, of ``planned``, as plain means.

        Raises UserError naming round and participant where one is not finite, or where all were skipped.
        """
        where = f"round {self.exchange.round}, participant {self.name}"
        if planned and not count:
            raise UserError(f"{where}: no batch gave finite losses and gradients; try a lower lr")
        means = {name: float(total) / max(1, count) for name, total in totals.items()}
        for name, value in means.items():
            if not np.isfinite(value):
                raise UserError(
                    f"{where}: its {name} loss became {value}; try a lower lr, or on_nonfinite=skip_batch"
                )
        return means

    def refuse_nonfinite(self) -> None:
        """Raise UserError where the last step has left a model that is not finite, before it is saved."""
        networks = [self.model, *self.companions.values()]
        if not all_finite([tensor for network in networks for tensor in network.state_dict().values()]):
            raise UserError(
                f"round {self.exchange.round}, participant {self.name}: its model is no longer finite; the "
                "last checkpoint is intact: try a lower lr, or on_nonfinite=skip_batch"
            )

    def evaluate(self) -> dict[str, Counts]:
        """What the model gets right on the test set of every participant's domain."""
        found = {}
        for domain, test in self.tests.items():
            logits = self.predict(test.images)
            right = [count_correct(logits, test.labels, k) for k in (1, min(5, self.classes))]
            found[domain] = (len(test), int(right[0]), int(right[1]))
        return found

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the seconds spent inside to ``seconds[phase]``, and those spent waiting to "exchange"."""
        begun, waited = time.perf_counter(), self.exchange.seconds_waited
        self.phase = phase
        yield
        self.phase = ""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[phase] += time.perf_counter() - begun
        self.seconds["exchange"] += self.exchange.seconds_waited - waited


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether no entry is NaN or infinite; the device is asked once."""
    return bool(torch.stack([tensor.isfinite().all() for tensor in tensors]).all())


def _arrays(network: nn.Module) -> dict[str, np.ndarray]:
    """Parameters and buffers by name, on the host."""
    return {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}


def _load(network: nn.Module, arrays: dict[str, np.ndarray]) -> None:
    """The inverse of `_arrays`."""
    network.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
