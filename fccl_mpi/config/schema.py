"""Every setting of a run, with its meaning, its default and its check.

The dataclasses are Hydra structured configs: their types convert and refuse what a user writes, their
``__post_init__`` checks ranges. The docstring under a field is what ``--help`` prints.
"""

import math
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from omegaconf import MISSING

from fccl_mpi.core.errors import UserError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def require(holds: bool, key: str, value: object, rule: str) -> None:
    """Raise UserError ``key=value: rule`` unless ``holds``."""
    if not holds:
        raise UserError(f"{key}={value} is out of range: it must be {rule}")


def require_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise UserError unless ``value`` is one of ``choices``."""
    require(value in choices, key, value, "one of " + ", ".join(choices))


def require_finite(settings: object, prefix: str = "") -> None:
    """Raise UserError where a number in a dataclass, alone or in a list, is NaN or infinite."""
    for item in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, item.name)
        for number in value if isinstance(value, list) else [value]:
            holds = not isinstance(number, float) or math.isfinite(number)
            require(holds, prefix + item.name, number, "a finite number")


@dataclass(kw_only=True)
class ParticipantConfig:
    """One participant: its domain, its model and how much it trains."""

    domain: str = ""
    """Its domain, `<data>/<task>/<domain>.h5`; empty: the domain it is named after."""
    share: float = 1.0
    """Its part of the domain's training images, relative to other participants of the same domain."""
    model: str = "resnet10"
    """Backbone: a name of fccl_mpi.models, or your own builder as `package.module:function`."""
    width: float = 1.0
    """Factor on all channel counts; below 1 for a slim model."""
    private_size: int = 0
    """Private training images, drawn from the domain's training set; 0 takes all of them."""
    local_epochs: int = 1
    """Passes over the private images in each round's local update."""

    def __post_init__(self) -> None:
        require_finite(self, "participants.<domain>.")
        require(self.share > 0, "participants.<domain>.share", self.share, "above 0")
        require(self.width > 0, "participants.<domain>.width", self.width, "above 0")
        require(self.private_size >= 0, "participants.<domain>.private_size", self.private_size, "0 or more")
        require(self.local_epochs >= 0, "participants.<domain>.local_epochs", self.local_epochs, "0 or more")


@dataclass(kw_only=True)
class PublicConfig:
    """The public image set on which logits are exchanged."""

    name: str = MISSING
    """Its name."""
    file: str = MISSING
    """Its HDF5 file, below `data`."""
    mean: list[float] = field(default_factory=lambda: list(IMAGENET_MEAN))
    """Mean per channel (R, G, B), of pixels in [0, 1], that normalising subtracts."""
    std: list[float] = field(default_factory=lambda: list(IMAGENET_STD))
    """Standard deviation per channel that normalising divides by."""

    def __post_init__(self) -> None:
        require_finite(self, "public.")
        require(len(self.mean) == 3, "public.mean", self.mean, "three numbers")
        require(len(self.std) == 3 and min(self.std) > 0, "public.std", self.std, "three numbers above 0")


@dataclass(kw_only=True)
class Config:
    """A run: `mpirun -n <participants + 1> python -m fccl_mpi.run [key=value ...]`."""

    scenario: str = MISSING
    """Which participants, domains and sizes: a preset (see the choices below)."""
    task: str = MISSING
    """Folder below `data` with one HDF5 file a domain, `<task>/<domain>.h5`."""
    method: Any = MISSING
    """The federated method; `method.<key>=` sets its own parameters."""
    preset: str = "none"
    """A reading of the paper laid over scenario and method: cvpr2022_released or cvpr2022_paper."""
    participants: dict[str, ParticipantConfig] = field(default_factory=dict)
    """The participants by domain, in rank order; `~participants.<domain>` takes one out."""
    public: PublicConfig = field(default_factory=PublicConfig)
    """The public image set; `public=<name>` chooses one."""
    exchange: str = "batch"
    """When logits travel: at every public `batch` (as released) or once a `round` (Algorithm 1)."""
    collective: str = "allgather"
    """How logits travel: by `allgather` everyone gets each one's; by `allreduce` their mean, whose bytes do
    not grow with the participants, for methods that need no more: fccl, fccl_plus, fedmd, feddf."""
    aggregate: str = "mean"
    """How the participants' logits become one: `mean`, or `median` or `trimmed_mean` of each entry, which a
    participant that sends garbage cannot ruin."""
    homogeneous: bool = False
    """Give all participants the model `homogeneous_model` and average parameters between the collaborative
    and the local update, whatever the method (Table 3)."""
    homogeneous_model: str = "resnet18"
    """The model of all participants where `homogeneous=true`."""
    homogeneous_width: float = 1.0
    """Its factor on all channel counts."""
    label_skew: float = 0.0
    """Dirichlet α with which a domain's classes fall to its participants where it has several: the smaller,
    the more uneven; 0 splits them evenly."""
    seed: int = 0
    """All randomness of the run follows from it."""
    rounds: int = 40
    """Communication rounds T; a finished run goes on when it grows."""
    public_size: int = 5000
    """Public images N_0, drawn from the public set."""
    public_batch_size: int = 512
    """Public images in one exchange and one collaborative step; an incomplete last batch is dropped."""
    public_epochs: int = 1
    """Passes over the public images in each collaborative update."""
    local_batch_size: int = 512
    """Private images in one step of pretraining or local update."""
    lr: float = 0.001
    """Learning rate of Adam, everywhere."""
    pretrain_epochs: int = 50
    """Epochs each participant trains alone before round 1; the result is the intra-domain teacher."""
    test_size: int = 0
    """Test images of each domain, drawn from its test set; 0 takes all of them."""
    evaluate_batch_size: int = 512
    """Test images in one forward pass; does not bear on results beyond rounding."""
    data: str = "data"
    """Folder of the HDF5 image sets."""
    out: str = "runs"
    """Folder of run folders: <out>/<scenario>/<method>/<config digest>-s<seed>."""
    resume: str = "auto"
    """`auto` goes on from the last complete checkpoint; `never` refuses a folder that holds a run."""
    evaluate_every: int = 1
    """Rounds between evaluations on the test sets; round 0 and the last one always have one."""
    checkpoint_every: int = 1
    """Rounds between checkpoints; the last round always has one."""
    keep: int = 2
    """Complete checkpoints kept; 0 keeps all."""
    diagnostics: bool = True
    """After the last round, write what the report's figures need beyond metrics into `diagnostics.h5`."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too, into `tensorboard/`; needs the extra `tensorboard`."""
    device: str = "auto"
    """`auto` takes a GPU where there is one; `cpu` or `cuda` insist."""
    stop_after: float = 0.0
    """Minutes since the start after which the run stops at the end of a round, as on SIGTERM; 0: never."""
    timeout: float = 30.0
    """Minutes a rank waits for others in an exchange before it ends the job, naming them; 0: for ever."""
    on_nonfinite: str = "stop"
    """A batch whose logits, loss or gradient are not finite: `stop` the run, or `skip_batch`, which looks at
    every step and so is slower on a GPU."""
    precision: str = "float32"
    """How networks compute: `float32`; `tf32`, the same but on a GPU's tensor cores; `bf16`, autocast to
    bfloat16, which on a CPU pays for wide ResNets only. Losses and exchanges are float32 in all of them."""
    compile: bool = False
    """Run networks through torch.compile: minutes at the start, for which many rounds on a GPU may pay."""
    recompute: Any = False
    """Keep a network's activations between its blocks only, and compute a block's own anew in the backward
    pass: the same numbers from less memory, for one more forward pass a step. `true` at all participants, or
    at those of a list, as in `recompute=[syn]`."""
    gpu_aware_mpi: bool = False
    """Hand MPI what lies on the GPU as it is; for an MPI library that was built with CUDA or ROCm."""
    threads: int = 0
    """CPU threads of each rank; 0: OMP_NUM_THREADS, or its cores by the participants that share them."""

    def __post_init__(self) -> None:
        require_finite(self)
        if is_dataclass(self.method):
            require_finite(self.method, "method.")
        require_choice("exchange", self.exchange, ("batch", "round"))
        require_choice("collective", self.collective, ("allgather", "allreduce"))
        if self.collective == "allreduce":
            require(self.aggregate == "mean", "aggregate", self.aggregate, "mean where collective=allreduce")
            name, suffices = getattr(self.method, "name", ""), getattr(self.method, "mean_suffices", True)
            rule = f"allgather with method={name}, which needs the logits of each participant"
            require(suffices, "collective", self.collective, rule)
        require_choice("aggregate", self.aggregate, ("mean", "median", "trimmed_mean"))
        require_choice("resume", self.resume, ("auto", "never"))
        require_choice("device", self.device, ("auto", "cpu", "cuda"))
        require_choice("on_nonfinite", self.on_nonfinite, ("stop", "skip_batch"))
        require_choice("precision", self.precision, ("float32", "tf32", "bf16"))
        for key in ("seed", "rounds", "public_epochs", "pretrain_epochs", "test_size", "keep", "threads"):
            require(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        for key in ("public_size", "local_batch_size", "evaluate_batch_size"):
            require(getattr(self, key) >= 1, key, getattr(self, key), "1 or more")
        for key in ("evaluate_every", "checkpoint_every"):
            require(getattr(self, key) >= 1, key, getattr(self, key), "1 or more")
        for key in ("stop_after", "timeout"):
            require(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        require(self.lr > 0, "lr", self.lr, "above 0")
        require(self.label_skew >= 0, "label_skew", self.label_skew, "0 or more")
        require(self.homogeneous_width > 0, "homogeneous_width", self.homogeneous_width, "above 0")
        require(
            1 <= self.public_batch_size <= self.public_size,
            "public_batch_size",
            self.public_batch_size,
            f"from 1 to public_size={self.public_size}, since incomplete batches are dropped",
        )
        require(len(self.participants) >= 1, "participants", "{}", "at least one")
        asked, everyone = self.recompute, list(self.participants)
        if isinstance(asked, bool):
            self.recompute = everyone if asked else []
        known = isinstance(self.recompute, list) and all(name in everyone for name in self.recompute)
        require(known, "recompute", asked, f"true, false or a list of some of {', '.join(everyone)}")
        require(not (self.compile and self.recompute), "recompute", asked, "false where compile=true")
        for name, own in self.participants.items():
            own.domain = own.domain or name
            if self.homogeneous:
                own.model, own.width = self.homogeneous_model, self.homogeneous_width
