"""Cores, threads and GPUs of a rank: what the launcher gave, and what is made of it.

Binding ranks to cores is the launcher's; it is respected here, and shown. As in `world`, torch is imported
where it is needed.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fccl_mpi.core.cores import own_cores
from fccl_mpi.core.errors import UserError

if TYPE_CHECKING:
    import torch


def choose_threads(
    asked: int, own: set[int], participants: Iterable[set[int]], environment: Mapping[str, str]
) -> int:
    """CPU threads of a rank: as asked, else OMP_NUM_THREADS, else its cores / the participants on these.

    ``own`` are this rank's cores, ``participants`` those of each participant on its node, itself included.
    """
    if asked:
        return asked
    given = environment.get("OMP_NUM_THREADS", "").split(",")[0]
    if given.isdigit() and int(given) > 0:
        return int(given)
    sharing = sum(not own.isdisjoint(theirs) for theirs in participants)
    return max(1, len(own) // max(1, sharing))


def choose_device(asked: str, local_index: int) -> "torch.device":
    """The device of the ``local_index``-th participant of a node; several share a GPU if there are too few.

    Raises UserError where ``asked`` is "cuda" and no GPU is visible.
    """
    import torch

    gpus = torch.cuda.device_count() if asked != "cpu" else 0
    if gpus:
        return torch.device("cuda", local_index % gpus)
    if asked == "cuda":
        raise UserError("device=cuda, but torch sees no GPU on this node: use device=auto, or ask for GPUs")
    return torch.device("cpu")


def cores_shown(root: Path = Path("/sys/devices/system/node")) -> str:
    """The cores this process may use and their NUMA nodes, such as "cores 0-3 (NUMA node 0)".

    Without the nodes where the system does not tell them (Linux does).
    """
    own = own_cores()
    nodes = {
        int(file.parent.name[4:]) for file in root.glob("node*/cpulist") if own & members(file.read_text())
    }
    cores = f"core{'s' * (len(own) > 1)} {ranges(own)}"
    return f"{cores} (NUMA node{'s' * (len(nodes) > 1)} {ranges(nodes)})" if nodes else cores


def gpu_shown(device: "torch.device", root: Path = Path("/sys/bus/pci/devices")) -> str:
    """Name and NUMA node of a GPU, as "NVIDIA H200, NUMA node 1", as far as they are told; "" of a CPU."""
    if device.type != "cuda":
        return ""
    import torch

    about: Any = torch.cuda.get_device_properties(device)  # its stub knows no place
    with suppress(AttributeError, OSError, ValueError):  # older torch has no place, a laptop no NUMA node
        address = f"{about.pci_domain_id:04x}:{about.pci_bus_id:02x}:{about.pci_device_id:02x}.0"
        node = int((root / address / "numa_node").read_text())
        if node >= 0:
            return f"{about.name}, NUMA node {node}"
    return about.name


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as Linux lists cores: "0-3,8"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def members(listed: str) -> set[int]:
    """The numbers that `ranges` lists."""
    spans = (span.split("-") for span in listed.strip().split(",") if span)
    return {number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)}
