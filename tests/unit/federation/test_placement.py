"""Cores, threads and GPUs of a rank."""

from types import SimpleNamespace

import pytest
import torch

from fccl_mpi.core.errors import UserError
from fccl_mpi.federation.placement import (
    choose_device,
    choose_threads,
    cores_shown,
    gpu_shown,
    members,
    ranges,
)

ALL = set(range(16))


def test_threads():
    assert choose_threads(0, ALL, 4 * [ALL], {}) == 4
    assert choose_threads(0, ALL, 32 * [ALL], {}) == 1
    assert choose_threads(3, ALL, 4 * [ALL], {"OMP_NUM_THREADS": "7"}) == 3
    assert choose_threads(0, ALL, 4 * [ALL], {"OMP_NUM_THREADS": "7"}) == 7
    assert choose_threads(0, ALL, 4 * [ALL], {"OMP_NUM_THREADS": "7,2"}) == 7
    assert choose_threads(0, ALL, [], {}) == 16  # the server's, alone on a node


def test_threads_of_ranks_that_the_launcher_bound():
    quarters = [set(range(first, first + 4)) for first in (0, 4, 8, 12)]
    halves = [set(range(first, first + 8)) for first in (0, 0, 8, 8)]
    assert [choose_threads(0, own, quarters, {}) for own in quarters] == [4, 4, 4, 4]
    assert [choose_threads(0, own, halves, {}) for own in halves] == [4, 4, 4, 4]


def test_devices_by_place_on_the_node(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert [choose_device("auto", i).index for i in range(5)] == [0, 1, 2, 0, 1]
    assert choose_device("cpu", 1) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert choose_device("auto", 1) == torch.device("cpu")
    with pytest.raises(UserError, match="device=cuda, but torch sees no GPU"):
        choose_device("cuda", 0)


@pytest.mark.parametrize(
    ("numbers", "listed"), [({0}, "0"), ({0, 1, 2, 3, 8}, "0-3,8"), ({5, 7, 8}, "5,7-8"), (set(), "")]
)
def test_cores_are_listed_as_linux_lists_them(numbers, listed):
    assert ranges(numbers) == listed and members(f"{listed}\n") == numbers


def test_cores_are_shown_with_their_numa_nodes(tmp_path, monkeypatch):
    for node, cores in enumerate(["0-1,8-9", "2-3,10-11", "4-7"]):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{cores}\n")
    for own, shown in [
        ({3}, "core 3 (NUMA node 1)"),
        ({0, 1, 8, 9}, "cores 0-1,8-9 (NUMA node 0)"),
        ({1, 2, 4}, "cores 1-2,4 (NUMA nodes 0-2)"),
    ]:
        monkeypatch.setattr("fccl_mpi.federation.placement.own_cores", lambda own=own: own)
        assert cores_shown(tmp_path) == shown
        assert cores_shown(tmp_path / "none") == shown.split(" (")[0]


def test_a_gpu_is_shown_with_its_numa_node(tmp_path, monkeypatch):
    gpu = SimpleNamespace(name="A GPU", pci_domain_id=0, pci_bus_id=0x4B, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    place = tmp_path / "0000:4b:00.0"
    place.mkdir()
    for told, shown in [("1\n", "A GPU, NUMA node 1"), ("-1\n", "A GPU")]:
        (place / "numa_node").write_text(told)
        assert gpu_shown(torch.device("cuda", 0), tmp_path) == shown
    assert gpu_shown(torch.device("cuda", 0), tmp_path / "none") == "A GPU"
    del gpu.pci_bus_id
    assert gpu_shown(torch.device("cuda", 0), tmp_path) == "A GPU"
    assert gpu_shown(torch.device("cpu")) == ""
