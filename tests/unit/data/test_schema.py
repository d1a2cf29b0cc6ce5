"""HDF5 image sets: written whole, refused with a reason."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from fccl_mpi.core.errors import UserError
from fccl_mpi.data.schema import (
    Split,
    read_domain_header,
    read_public,
    read_public_header,
    read_split,
    write_domain,
    write_public,
)


def some(count: int, seed: int = 0) -> Split:
    images = np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return Split(images=images, labels=np.arange(count, dtype=np.int64) % 2)


def write(path: Path, train: Split | None = None, classes=("cat", "dög")) -> str:
    return write_domain(
        path, task="t", domain="d", classes=classes, train=train or some(6), test=some(4, 1), source="here"
    )


def test_a_domain_comes_back_as_it_was(tmp_path: Path):
    digest = write(tmp_path / "d.h5")
    header = read_domain_header(tmp_path / "d.h5")
    assert (header.domain, header.classes, header.train_size, header.test_size) == ("d", ("cat", "dög"), 6, 4)
    assert header.digest == digest
    found = read_split(tmp_path / "d.h5", "train")
    assert (found.images == some(6).images).all() and (found.labels == some(6).labels).all()


def test_digest_is_of_the_content(tmp_path: Path):
    assert write(tmp_path / "a.h5") == write(tmp_path / "b.h5")
    assert write(tmp_path / "a.h5") != write(tmp_path / "c.h5", some(6, 5))


@pytest.mark.parametrize("labelled", [True, False])
def test_a_public_set_comes_back_as_it_was(tmp_path: Path, labelled: bool):
    images, labels = some(5).images, some(5).labels if labelled else None
    write_public(tmp_path / "p.h5", name="p", images=images, labels=labels, classes=("a", "b"), source="s")
    header = read_public_header(tmp_path / "p.h5")
    assert (header.size, header.labelled, header.name) == (5, labelled, "p")
    found_images, found_labels = read_public(tmp_path / "p.h5")
    assert (found_images == images).all()
    assert (found_labels is not None) == labelled


def test_nothing_is_written_where_labels_do_not_fit(tmp_path: Path):
    with pytest.raises(UserError, match="labels run from 0 to 1 with 1 classes"):
        write(tmp_path / "d.h5", classes=("one",))
    assert not list(tmp_path.iterdir())


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    start = content.find(some(6).images[2].tobytes())
    content[start + 5] ^= 1
    path.write_bytes(content)


def set_attribute(name: str, value: object):
    def change(path: Path) -> None:
        with h5py.File(path, "a") as file:
            file.attrs[name] = value

    return change


def replace(name: str, value: np.ndarray):
    def change(path: Path) -> None:
        with h5py.File(path, "a") as file:
            del file[name]
            file[name] = value

    return change


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (flip_a_byte, "does not match its digest"),
        (lambda path: path.write_bytes(path.read_bytes()[:3000]), "cannot be read as HDF5"),
        (lambda path: path.write_text("<html>"), "cannot be read as HDF5"),
        (lambda path: path.unlink(), "does not exist"),
        (set_attribute("complete", False), "its making was interrupted"),
        (set_attribute("schema", 99), "its schema is 99"),
        (set_attribute("kind", "public"), "is a public file where a domain file is needed"),
        (replace("train/images", np.zeros((6, 28, 28), np.uint8)), "train images are uint8"),
        (replace("train/images", np.zeros((6, 32, 32, 3), np.float32)), "train images are float32"),
        (replace("train/labels", np.zeros(5, np.int64)), "train labels are int64"),
        (replace("train/labels", np.full(6, 7)), "labels run from 7 to 7 with 2 classes"),
    ],
)
def test_an_unfit_file_is_refused_with_its_name_and_the_reason(tmp_path: Path, spoil, reason: str):
    path = tmp_path / "d.h5"
    write(path)
    spoil(path)
    with pytest.raises(UserError) as error:
        read_domain_header(path)
        read_split(path, "train")
    assert reason in str(error.value) and str(path) in str(error.value)
