"""The floor of a round: its forward and backward passes and optimiser steps, and nothing else.

What a round consists of is seen, not told, so that it holds for every method, also a user's own: a hook
notes each pass through the model or a companion, another each optimiser step. The floor does the same
passes and steps on images that already lie on the device, with a loss that costs nothing.
"""

import time
from collections import defaultdict
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from fccl_mpi.data.images import to_device
from fccl_mpi.federation.participant import Participant


class Pass(NamedTuple):
    """``images`` images went through a network."""

    network: str
    images: int
    train: bool
    grad: bool


class Step(NamedTuple):
    """An optimiser made a step for a network."""

    network: str


Acts = dict[str, list[Pass | Step]]


class Recorder:
    """Notes the passes and steps of a participant, by phase.

    Attributes: ``acts`` (since they were last cleared) and ``first``, when the first of all was
    (`time.monotonic`, None before it).

    A pass is noted where it enters the network or, since methods that want features go around that, its first
    child. A user's own network should see each pass there once, too.
    """

    def __init__(self, me: Participant) -> None:
        self.acts: Acts = defaultdict(list)
        self.first: float | None = None
        self._hooks: list[RemovableHandle] = []
        networks = networks_of(me)
        owners = {id(p): name for name, network in networks.items() for p in network.parameters()}

        def watch(name: str, network: nn.Module) -> None:
            inside = False

            def enter(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
                nonlocal inside
                note(len(inputs[0]))
                inside = True

            def leave(*_: object) -> None:
                nonlocal inside
                inside = False

            def enter_child(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
                if not inside:
                    note(len(inputs[0]))

            def note(images: int) -> None:
                if me.phase:
                    self.first = time.monotonic() if self.first is None else self.first
                    act = Pass(name, images, network.training, torch.is_grad_enabled())
                    self.acts[me.phase].append(act)

            child = next(network.children(), network)
            self._hooks += [network.register_forward_pre_hook(enter), network.register_forward_hook(leave)]
            self._hooks.append(child.register_forward_pre_hook(enter_child))

        def step(optimizer: torch.optim.Optimizer, *_: object) -> None:
            parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
            name = next((owners[id(one)] for one in parameters if id(one) in owners), None)
            if me.phase and name is not None:
                self.acts[me.phase].append(Step(name))

        for name, network in networks.items():
            watch(name, network)
        self._hooks.append(register_optimizer_step_pre_hook(step))

    def close(self) -> None:
        """Note nothing more."""
        for hook in self._hooks:
            hook.remove()


def networks_of(me: Participant) -> dict[str, nn.Module]:
    """The model, named "", and the companions."""
    return {"": me.model, **me.companions}


def replay(me: Participant, acts: Acts) -> tuple[dict[str, float], dict[str, float]]:
    """Do the passes and steps again; returns wall and CPU seconds by phase.

    Afterwards networks and random state are as they were before.
    """
    networks = networks_of(me)
    state = {name: array.copy() for name, array in me.whole_state().items()}
    modes = {name: network.training for name, network in networks.items()}
    most = max((act.images for some in acts.values() for act in some if isinstance(act, Pass)), default=0)
    images = ready_images(most, me.device)
    wall, cpu = {}, {}
    with torch.random.fork_rng([me.device] if me.device.type == "cuda" else []):
        for phase, some in acts.items():
            begun, used = now(me.device), time.process_time()
            do(some, networks, images, me)
            wall[phase], cpu[phase] = now(me.device) - begun, time.process_time() - used
    me.load_whole(state)
    for name, network in networks.items():
        network.train(modes[name])
        network.zero_grad()
    return wall, cpu


def do(acts: list[Pass | Step], networks: dict[str, nn.Module], images: Tensor, me: Participant) -> None:
    """The acts of a phase: a step follows the backward pass of all that went through its network before."""
    losses: dict[str, list[Tensor]] = defaultdict(list)
    optimizers: dict[str, torch.optim.Optimizer] = {}
    for act in acts:
        network = networks[act.network]
        if isinstance(act, Pass):
            network.train(act.train)
            with torch.set_grad_enabled(act.grad):
                outputs = network(images[: act.images])
                if act.grad:
                    losses[act.network].append(outputs.square().mean())
        elif losses[act.network]:
            optimizer = optimizers.setdefault(act.network, me.optimizer(network))
            optimizer.zero_grad()
            torch.stack(losses.pop(act.network)).sum().backward()
            optimizer.step()


def ready_images(count: int, device: torch.device) -> Tensor:
    """Normalised images, float32 (count, 3, 32, 32), channels last as those of a round."""
    drawn = torch.randn(count, 32, 32, 3, generator=torch.Generator().manual_seed(0))
    return to_device(drawn.numpy(), device)


def trained_images(acts: Acts) -> int:
    """Images of all passes with gradient."""
    return sum(act.images for some in acts.values() for act in some if isinstance(act, Pass) and act.grad)


def now(device: torch.device) -> float:
    """Seconds, once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
