"""``python -m fccl_mpi.models``: the models' sizes at width 1, as a Markdown table."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from fccl_mpi.models.registry import MODELS, build


def size(name: str, *, classes: int) -> tuple[int, int]:
    """Parameters, and multiply-adds of one image (convolutions and classifier), of a model at width 1."""
    model = build(name, classes=classes).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 3, 32, 32))
    return sum(parameter.numel() for parameter in model.parameters()), counter.get_total_flops() // 2


def main() -> None:
    """Print a line a model: parameters and multiply-adds for 10 and for 65 classes."""
    print("| model | parameters, 10 classes | multiply-adds | parameters, 65 classes | multiply-adds |")
    print("|---|--:|--:|--:|--:|")
    for name in MODELS:
        numbers = (*size(name, classes=10), *size(name, classes=65))
        print(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")


if __name__ == "__main__":
    main()
