"""How networks compute changes neither what they are nor, beyond rounding, what they say."""

import pytest
import torch
from torch import nn

from fccl_mpi.core.errors import UserError
from fccl_mpi.models.registry import MODELS, build
from fccl_mpi.models.tuning import tune

CPU = torch.device("cpu")


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_bfloat16_stays_inside(images):
    network = build("resnet10", classes=4, width=0.25)
    names = list(network.state_dict())
    plain, features = network(images), network.features(images)
    tuned = tune(network, CPU, precision="bf16")
    assert tuned is network and list(network.state_dict()) == names
    lower = network(images)
    lower.square().mean().backward()
    for found, exact in ((lower, plain), (network.features(images), features)):
        assert found.dtype == torch.float32
        assert not torch.equal(found, exact) and torch.allclose(found, exact, atol=0.1)
    for parameter in network.parameters():
        assert parameter.dtype == parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_recomputing_changes_no_bit_and_keeps_less(name, images):
    def after_two_steps(**how: bool) -> tuple[dict[str, torch.Tensor], int]:
        torch.manual_seed(1)
        network = tune(build(name, classes=4, width=0.25), CPU, **how)
        optimizer = torch.optim.Adam(network.parameters())
        kept: dict[int, int] = {}
        for _ in range(2):
            with torch.autograd.graph.saved_tensors_hooks(lambda one: note(one, kept), lambda one: one):
                loss = network(images).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return network.state_dict(), sum(kept.values())

    def note(tensor: torch.Tensor, kept: dict[int, int]) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    (plain, all_kept), (again, less) = after_two_steps(), after_two_steps(recompute=True)
    assert plain.keys() == again.keys() and all(torch.equal(plain[key], again[key]) for key in plain)
    assert less < all_kept / 2


def test_only_full_batches_are_compiled(images):
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(5))
    plain = network(images)
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    with pytest.MonkeyPatch.context() as patch:
        compiler = torch.compile
        patch.setattr(torch, "compile", lambda call, **options: compiler(call, backend=backend, **options))
        tune(network, CPU, compile=True, batch_sizes=[4, 6])
    graphs.clear()
    for size in (6, 4, 5, 3, 6):
        assert torch.allclose(network(images[:size]), plain[:size], atol=1e-5)
    assert len(graphs) == 2


def test_no_compiler_is_one_sentence(monkeypatch):
    def fails(call, **options):
        raise RuntimeError("no C++ compiler\nmany lines")

    monkeypatch.setattr(torch, "compile", fails)
    with pytest.raises(UserError, match=r"compile=true: .*\(no C\+\+ compiler\): install .* or leave"):
        tune(nn.Linear(2, 2), CPU, compile=True)
