"""What all suites share: small image sets made on the spot, and their configuration."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fccl_mpi.config.compose import compose
from fccl_mpi.config.schema import Config
from fccl_mpi.data.schema import Split, write_domain, write_public
from fccl_mpi.methods.registry import METHODS

PRESETS = Path(__file__).parent / "presets"
REQUIRED = os.environ.get("FCCL_TEST_REQUIRE", "").split(",")  # suites that CI does not let skip

COLOURS = {"red": (255, 40, 40), "green": (40, 255, 40), "blue": (60, 60, 255), "grey": (200, 200, 200)}


def skip_suite(suite: str, reason: str) -> None:
    """Skip a suite whose prerequisite is missing, unless it is required: then fail."""
    if suite in REQUIRED:
        pytest.fail(f"the {suite} suite is required here, but {reason}", pytrace=False)
    pytest.skip(reason)


def draw_bars(count: int, colour: tuple[int, int, int], classes: int, seed: int) -> Split:
    """Images whose class is the place of a vertical bar; the domain is its colour."""
    randomness = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int64) % classes
    images = randomness.integers(0, 60, (count, 32, 32, 3), dtype=np.uint8)
    width = 32 // classes
    for image, label in zip(images, labels, strict=True):
        image[:, label * width : label * width + width] = colour
    return Split(images=images, labels=labels)


def make_tiny_images(data: Path, classes: int = 3) -> Path:
    """The files of scenario `tiny`; returns ``data``."""
    names = [f"bar{label}" for label in range(classes)]
    for seed, (domain, colour) in enumerate(COLOURS.items()):
        train, test = (draw_bars(count, colour, classes, seed + count) for count in (40, 30))
        write_domain(
            data / "tiny" / f"{domain}.h5",
            task="tiny",
            domain=domain,
            classes=names,
            train=train,
            test=test,
            source="drawn by the tests",
        )
    noise = np.random.default_rng(9).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    write_public(
        data / "tiny" / "noise.h5", name="noise", images=noise.repeat(4, 1).repeat(4, 2), source="noise"
    )
    return data


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Compute as the ranks of the MPI suite do: rounding depends on the number of threads."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of scenario `tiny`'s files, three classes; only to be read."""
    return make_tiny_images(tmp_path_factory.mktemp("data"))


@pytest.fixture
def tiny(tiny_data: Path, tmp_path: Path) -> Callable[..., Config]:
    """Compose scenario `tiny` with more overrides, its runs under the test's own folder."""

    def make(*overrides: str) -> Config:
        own = ["scenario=tiny", f"data={tiny_data}", f"out={tmp_path / 'runs'}"]
        return compose([*own, *overrides], methods=METHODS, config_dir=PRESETS)

    return make
