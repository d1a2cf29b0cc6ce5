"""Every method in a federation between threads: finite, moved, repeatable, resumable, on every backbone."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from fccl_mpi.data.schema import write_domain, write_public
from fccl_mpi.methods.base import LogitsMethod
from fccl_mpi.methods.registry import METHODS
from fccl_mpi.store.folder import RunFolder
from tests.conftest import COLOURS, draw_bars, make_tiny_images
from tests.unit.federation.test_federation import federate, numbers, weights

SIZES = {"red": 20, "green": 65, "blue": 129, "grey": 500}
BACKBONES = [  # for each size, one for half of the methods and one for the others; fast ones on many images
    ("googlenet", "resnet18"),
    ("resnet34", "efficientnet_b0"),
    ("resnet12", "mobilenet_v2"),
    ("shufflenet_v2", "resnet10"),
]
MORE = {
    "solo": ["method.keep_training=true"],
    "feddf": ["method.average_groups=true"],
    "fedmatch": ["method.confidence=0.4"],  # of three classes, so that some images count
}


def overrides_of(method: str) -> list[str]:
    return [f"method={method}", *MORE.get(method, [])]


def tensors(path: Path) -> dict[str, np.ndarray]:
    """A stored model's parameters and buffers."""
    with h5py.File(path) as file:
        return {name: dataset[()] for name, dataset in file["state"].items()}


@pytest.mark.parametrize("exchange", ["batch", "round"])
@pytest.mark.parametrize("method", METHODS)
def test_four_rounds_are_two_and_two_are_one_and_three(two, tmp_path, method, exchange):
    if exchange == "round" and not issubclass(METHODS[method], LogitsMethod):
        pytest.skip("no logits are exchanged")

    def run(folder: str, rounds: int) -> RunFolder:
        out = tmp_path / folder
        return federate(two(*overrides_of(method), f"exchange={exchange}", f"rounds={rounds}", f"out={out}"))

    whole = run("whole", 4)
    for first in (2, 1) if exchange == "batch" else (1,):
        run(str(first), first)
        resumed = run(str(first), 4)
        assert numbers(resumed) == numbers(whole) and weights(resumed) == weights(whole)


@pytest.fixture(scope="module", params=[10, 65])
def many_classes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, Path]:
    """A number of classes, and scenario `tiny` with so many."""
    return request.param, make_tiny_images(tmp_path_factory.mktemp("classes"), classes=request.param)


@pytest.mark.parametrize("method", METHODS)
def test_as_many_classes_as_there_are(two, many_classes, method):
    classes, data = many_classes
    folder = federate(two(*overrides_of(method), f"data={data}"))
    for line in folder.history.read():
        assert all(np.isfinite(list(losses.values())).all() for losses in line["loss"].values())
        assert np.array(line["top5"]).shape == (2, 2) and line["intra_top5"] >= line["intra_top1"]
    if issubclass(METHODS[method], LogitsMethod):
        assert line["bytes_by_kind"]["logits"] == 2 * 2 * 16 * classes * 4


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenario `tiny` with as many private images as leave a last batch of one, or none."""
    data = tmp_path_factory.mktemp("uneven")
    names = [f"bar{label}" for label in range(3)]
    for seed, (domain, size) in enumerate(SIZES.items()):
        train, test = (draw_bars(count, COLOURS[domain], 3, seed) for count in (size, 30))
        write_domain(
            data / "tiny" / f"{domain}.h5",
            task="tiny", domain=domain, classes=names, train=train, test=test, source="drawn",
        )  # fmt: skip
    noise = np.random.default_rng(9).integers(0, 256, (65, 32, 32, 3), dtype=np.uint8)
    write_public(data / "tiny" / "noise.h5", name="noise", images=noise, source="noise")
    return data


def test_without_public_batches_nothing_is_exchanged_there(two):
    folder = federate(two("method=fccl_plus", "exchange=round", "public_epochs=0", "rounds=1"))
    assert [line["bytes_exchanged"] for line in folder.history.read()] == [0, 0]


@pytest.mark.parametrize("method", METHODS)
def test_uneven_batches_on_all_backbones(tiny, uneven, tmp_path, method):
    own = [f"participants.{name}.local_epochs=1" for name in SIZES]
    for (name, size), models in zip(SIZES.items(), BACKBONES, strict=True):
        model = models[list(METHODS).index(method) % 2]
        own += [f"participants.{name}.private_size={size}", f"participants.{name}.model={model}"]
    config = tiny(
        *overrides_of(method), *own, f"data={uneven}", f"homogeneous={method == 'fedavg'}",
        "homogeneous_model=resnet10", "homogeneous_width=0.125", "rounds=1", "pretrain_epochs=0",
        "public_size=65", "public_batch_size=64", "local_batch_size=64",
    )  # fmt: skip
    folder = federate(config)
    for line in folder.history.read():
        for losses in line["loss"].values():
            assert np.isfinite(list(losses.values())).all()
    for name in SIZES:
        (pretrained,) = (Path(config.out) / "pretrained" / "tiny").glob(f"{name}-*.h5")
        before, after = tensors(pretrained), tensors(folder.checkpoints.model_path(1, name))
        assert all(np.isfinite(value).all() for value in after.values())
        moved = [not np.array_equal(before[tensor], after[tensor]) for tensor in before]
        assert np.mean(moved) > 0.9
