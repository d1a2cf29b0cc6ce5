"""How networks compute: where, in which precision, compiled or not. None of it changes what they are.

Parameters stay float32, and so does all that a network returns: losses and exchanges never see anything
else. Names and values of its state are those of the network as it was built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fccl_mpi.core.errors import UserError

PARTS = ("forward", "features", "classify")  # what is called of a network


def tune(
    network: nn.Module,
    device: torch.device,
    *,
    precision: str = "float32",
    recompute: bool = False,
    compile: bool = False,
    batch_sizes: Collection[int] = (),
) -> nn.Module:
    """Bring a network to its device, channels last, and have it compute as asked; returns the same object.

    ``precision="bf16"`` runs its layers under autocast to bfloat16. ``recompute`` keeps for the backward pass
    what goes into the blocks alone: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016. The
    blocks are what an nn.Sequential holds that has parts of its own; a network without is left as it is.
    ``compile`` runs batches of exactly ``batch_sizes`` through torch.compile and all others, such as a last
    short one, as they are: shapes stay static, and nothing is compiled for one batch. Raises UserError where
    torch cannot compile.
    """
    if device.type == "cuda":
        _use_tensor_cores(precision)
    network = network.to(device).to(memory_format=torch.channels_last)
    if recompute:
        for block in _blocks(network):
            block.forward = _recomputed(block)
    for part in PARTS:
        call = getattr(network, part, None)
        if callable(call):
            if precision == "bf16":
                call = _in_bfloat16(call, device.type)
            if compile and part == "forward":
                call = _compiled(call, batch_sizes, device)
            setattr(network, part, call)
    return network


def _use_tensor_cores(precision: str) -> None:
    """Let a GPU choose its convolutions by trial and, unless ``precision="float32"``, compute in TF32."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    torch.backends.cuda.matmul.allow_tf32 = precision != "float32"


def _in_bfloat16(call: Callable[[Tensor], Tensor], device: str) -> Callable[[Tensor], Tensor]:
    @wraps(call)
    def in_bfloat16(batch: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            found = call(batch)
        return found.float()

    return in_bfloat16


def _blocks(network: nn.Module) -> Iterator[nn.Module]:
    for child in network.children():
        if isinstance(network, nn.Sequential) and any(child.children()):
            yield child
        else:
            yield from _blocks(child)


def _recomputed(block: nn.Module) -> Callable[[Tensor], Tensor]:
    call = block.forward

    @contextmanager
    def on_copies() -> Iterator[None]:
        """Running statistics have seen this batch."""
        buffers = [
            (part, name, own) for part in block.modules() for name, own in part.named_buffers(recurse=False)
        ]
        for part, name, own in buffers:
            setattr(part, name, own.clone())
        try:
            yield
        finally:
            for part, name, own in buffers:
                setattr(part, name, own)

    @wraps(call)
    def recomputed(batch: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return call(batch)
        return checkpoint(call, batch, use_reentrant=False, context_fn=lambda: (nullcontext(), on_copies()))

    return recomputed


def _compiled(
    call: Callable[[Tensor], Tensor], batch_sizes: Collection[int], device: torch.device
) -> Callable[[Tensor], Tensor]:
    try:
        torch.compile(torch.neg)(torch.ones(1, device=device))
    except Exception as error:  # whatever its many parts raise where a compiler or Triton is missing
        raise UserError(
            f"compile=true: torch.compile does not work here ({str(error).splitlines()[0]}): "
            "install what it names, or leave compile off"
        ) from error
    compiled = torch.compile(call, dynamic=False)

    @wraps(call)
    def compiled_where_full(images: Tensor) -> Tensor:
        return (compiled if len(images) in batch_sizes else call)(images)

    return compiled_where_full
