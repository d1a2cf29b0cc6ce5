"""HDF5 image sets: written whole, refused with a reason."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.hdf5 import describe
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
            describe(file, {name: value})

    return change


def replace(name: str, value: np.ndarray):
    def change(path: Path) -> None:
        with h5py.File(path, "a") as file:
            del file[name]
            file[name] = value

    return change


def change(make: Callable[[h5py.File, np.ndarray], None]):
    """Take the training images out and put something else into their place."""

    def spoil(path: Path) -> None:
        write(path.with_name("other.h5"))
        with h5py.File(path, "a") as file:
            images = file["train/images"][()]
            del file["train/images"]
            make(file, images)

    return spoil


def link_to_another_file(file: h5py.File, images: np.ndarray) -> None:
    file["train/images"] = h5py.ExternalLink("other.h5", "/train/images")


def links_in_a_circle(file: h5py.File, images: np.ndarray) -> None:
    file["loop"] = h5py.SoftLink("/train/images")
    file["train/images"] = h5py.SoftLink("/loop")


def link_to_the_test_images(file: h5py.File, images: np.ndarray) -> None:
    file["train/images"] = h5py.SoftLink("/test/images")


def a_view_of_another_file(file: h5py.File, images: np.ndarray) -> None:
    layout = h5py.VirtualLayout(images.shape, images.dtype)
    layout[...] = h5py.VirtualSource("other.h5", "train/images", images.shape)
    file.create_virtual_dataset("train/images", layout)


def bytes_of_another_file(file: h5py.File, images: np.ndarray) -> None:
    raw = Path(file.filename).with_name("raw")
    raw.write_bytes(images.tobytes())
    file.create_dataset("train/images", images.shape, "u1", external=[(str(raw), 0, images.nbytes)])


def compressed(file: h5py.File, images: np.ndarray) -> None:
    file.create_dataset("train/images", data=images, compression="gzip")


def through_a_filter_that_is_not_there(file: h5py.File, images: np.ndarray) -> None:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(images.shape)
    properties.set_filter(32_099, h5py.h5z.FLAG_OPTIONAL)
    file.create_dataset("train/images", data=images, dcpl=properties)


def terabytes_that_are_not_there(file: h5py.File, images: np.ndarray) -> None:
    file.create_dataset("train/images", (1 << 40, 32, 32, 3), "u1", chunks=(1, 32, 32, 3))


def a_group(file: h5py.File, images: np.ndarray) -> None:
    file.create_group("train/images")


def a_text_of_variable_length(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file.attrs["kind"] = "domain"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (change(link_to_another_file), "/train/images is a link to elsewhere"),
        (change(links_in_a_circle), "train/images"),
        (change(link_to_the_test_images), "/train/images is a link to elsewhere"),
        (change(a_view_of_another_file), "/train/images takes its values from other files"),
        (change(bytes_of_another_file), "/train/images takes its values from other files"),
        (change(compressed), "/train/images is compressed"),
        (change(through_a_filter_that_is_not_there), "/train/images is compressed or otherwise filtered"),
        (
            change(terabytes_that_are_not_there),
            "/train/images claims 3,377,699,720,527,872 bytes, which the file",
        ),
        (change(a_group), "dataset /train/images is missing"),
        (a_text_of_variable_length, "attribute 'kind' is missing or not of type str"),
    ],
)
def test_nothing_but_the_file_is_read_and_no_more_than_it_holds(tmp_path: Path, spoil, reason: str):
    path = tmp_path / "d.h5"
    write(path)
    spoil(path)
    for read in (read_domain_header, lambda path: read_split(path, "train")):
        with pytest.raises(UserError) as error:
            read(path)
        assert reason in str(error.value) and str(path) in str(error.value)


def test_what_is_not_asked_for_is_not_read(tmp_path: Path):
    write(tmp_path / "d.h5")
    change(link_to_another_file)(tmp_path / "d.h5")
    assert len(read_split(tmp_path / "d.h5", "test").images) == 4


@pytest.mark.parametrize("asked", [None, "TRUE", "BEST_EFFORT"])
def test_files_are_opened_without_locks_whatever_the_site_asks_for(tmp_path: Path, asked):
    write(tmp_path / "d.h5")
    code = "import pathlib, sys; from fccl_mpi.data import schema; schema.verify(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path / "d.h5")]
    environment = {**os.environ, **({"HDF5_USE_FILE_LOCKING": asked} if asked else {})}
    with (tmp_path / "d.h5").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
