"""Tensors on their way between a device and MPI."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


class Staging:
    """Hands what a device holds to MPI, and takes what MPI has received.

    MPI reads and writes the host's memory: a CPU's tensors as they lie, a GPU's by way of page-locked
    memory, to and from which copies are direct. An MPI that is aware of GPUs gets the tensors themselves.
    """

    def __init__(self, device: torch.device, gpu_aware_mpi: bool = False) -> None:
        self.device, self.gpu_aware_mpi = device, gpu_aware_mpi
        self.pinned = device.type == "cuda" and not gpu_aware_mpi

    def send(self, tensor: Tensor) -> Any:
        """``tensor`` as float32 for MPI to read, complete; whatever was taken before has arrived too."""
        own = tensor.detach().to(torch.float32).contiguous()
        if self.pinned:
            own = torch.empty(own.shape, pin_memory=True).copy_(own, non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()  # MPI knows nothing of streams
        return own if self.gpu_aware_mpi else own.numpy()

    def empty(self, shape: tuple[int, ...]) -> Any:
        """Float32 of a shape for MPI to write into."""
        if self.gpu_aware_mpi:
            return torch.empty(shape, device=self.device)
        return torch.empty(shape, pin_memory=self.pinned).numpy()

    def take(self, received: np.ndarray | Tensor) -> Tensor:
        """What MPI has written, on the device."""
        return torch.as_tensor(received).to(self.device, non_blocking=True)
