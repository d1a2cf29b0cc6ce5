"""The embedded image sets: what is in them, that their making is repeatable, and that they can be learnt."""

import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from data_prep import quickstart
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.hdf5 import attributes
from fccl_mpi.data.schema import read_domain_header, read_public, read_public_header, read_split
from fccl_mpi.models.resnet import resnet10

SIZES = {"mnist": (2000, 500), "optdigits": (1397, 400), "mnist_m": (2000, 500), "syn": (2000, 500)}
ROOT = Path(__file__).parents[2]

# A process that makes the sets, and in which whatever touches the network fails.
MAKER = """
import sys
from pathlib import Path

def refuse(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(f"network used: {event} {arguments}")

sys.addaudithook(refuse)
from data_prep.quickstart import make
make(Path(sys.argv[1]))
assert "torch" not in sys.modules and "mpi4py" not in sys.modules
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    quickstart.make(folder)
    return folder


def file_of(data, name):
    return data / "quickstart" / f"{name}.h5"


def digests(data):
    found = {name: read_domain_header(file_of(data, name)).digest for name in quickstart.DOMAINS}
    return found | {name: read_public_header(file_of(data, name)).digest for name in quickstart.PUBLIC}


@pytest.mark.parametrize("domain", SIZES)
def test_domains_have_their_sizes_and_every_digit_equally_often(data, domain):
    header = read_domain_header(file_of(data, domain))
    assert (header.task, header.domain, header.classes) == ("quickstart", domain, tuple("0123456789"))
    assert (header.train_size, header.test_size) == SIZES[domain]
    for name in ("train", "test"):
        split = read_split(file_of(data, domain), name)
        counts = np.bincount(split.labels, minlength=10)
        if (domain, name) == ("optdigits", "train"):  # what the test set leaves of 174 to 183 a digit
            assert counts.min() >= 114
        else:
            assert len(set(counts)) == 1
        assert len(set(split.labels[:50])) > 5, "the images of a file lie in mixed order"
        assert np.ptp(split.images, axis=(1, 2, 3)).min() > 30, "an image is empty"


def test_grey_domains_are_grey_and_the_others_in_colour(data):
    for domain in SIZES:
        images = read_split(file_of(data, domain), "test").images.astype(int)
        coloured = np.ptp(images, axis=3).max(axis=(1, 2)) > 8
        assert coloured.any() == (domain in ("mnist_m", "syn"))
        assert domain != "syn" or coloured.all()


def test_photos_are_distinct_unlabelled_and_not_flat(data):
    images, labels = read_public(file_of(data, "photos"))
    assert images.shape == (2000, 32, 32, 3) and labels is None
    assert len({image.tobytes() for image in images}) == 2000
    assert np.ptp(images, axis=(1, 2)).max(axis=1).min() >= 64


def test_a_file_says_what_it_was_made_of(data):
    with h5py.File(file_of(data, "photos")) as file:
        about = attributes(file)
    assert "astronaut" in str(about["source"]) and "scikit-image" in str(about["made_with"])
    assert "chelsea" in read_domain_header(file_of(data, "mnist_m")).source


def test_mnist_parts_are_disjoint_and_the_packages_digits_are_all_different():
    digits, labels = quickstart._mnist_digits()
    parts = quickstart.mnist_parts(labels)
    assert [len(part) for part in parts] == [2000, 500, 2000, 500]
    assert sorted(np.concatenate(parts)) == list(range(5000))
    assert len({digit.tobytes() for digit in digits}) == 5000


def test_no_digit_is_in_both_mnist_and_mnist_m(data, tmp_path, monkeypatch):
    """Before a black photograph the blended digits are bare, and known again."""
    black = [Image.new("RGB", (100, 100))]
    monkeypatch.setattr(quickstart, "_photographs", lambda files: black)
    quickstart._make_mnist_m(bare := tmp_path / "mnist_m.h5")

    digits, labels = quickstart._mnist_digits()
    resized = quickstart._resized(digits)
    grey = {image.tobytes(): index for index, image in enumerate(resized)}
    masks = {(255 * (image >= 64)).astype(np.uint8).tobytes(): index for index, image in enumerate(resized)}
    assert len(grey) == len(masks) == 5000
    seen = []
    for path, known in ((file_of(data, "mnist"), grey), (bare, masks)):
        for name in ("train", "test"):
            split = read_split(path, name)
            indices = [known[image[:, :, 0].tobytes()] for image in split.images]
            assert np.array_equal(labels[indices], split.labels)
            seen += indices
    assert len(set(seen)) == len(seen) == 5000

    for name in ("train", "test"):  # and the file that is used has the same digits in the same order
        assert np.array_equal(
            read_split(bare, name).labels, read_split(file_of(data, "mnist_m"), name).labels
        )
        on_photos, on_black = (
            read_split(path, name).images.astype(int) for path in (file_of(data, "mnist_m"), bare)
        )
        photos = np.abs(on_black - on_photos)  # |digit − photo| undone
        jump = np.abs(np.diff(photos, axis=2)).mean()
        assert jump < 0.5 * np.abs(np.diff(on_photos, axis=2)).mean(), "a digit is left on the photographs"


def test_no_image_is_in_two_files_or_in_both_training_and_test(data):
    images = [
        image.tobytes()
        for domain in SIZES
        for name in ("train", "test")
        for image in read_split(file_of(data, domain), name).images
    ]
    for name in quickstart.PUBLIC:
        images += [image.tobytes() for image in read_public(file_of(data, name))[0]]
    assert len(set(images)) == len(images)


def test_no_photograph_is_both_behind_digits_and_public():
    public = {*quickstart.PUBLIC_COLOUR_PHOTOS, *quickstart.PUBLIC_GREY_PHOTOS}
    assert not public & {*quickstart.BLENDED_PHOTOS}


def test_two_processes_at_once_make_the_same_without_network_or_torch(data, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    makers = [
        subprocess.Popen([sys.executable, "-c", MAKER, tmp_path], cwd=tmp_path, env=environment)
        for _ in range(2)
    ]
    assert [maker.wait(timeout=240) for maker in makers] == [0, 0]
    assert digests(tmp_path) == digests(data)
    names = {path.name for path in (tmp_path / "quickstart").iterdir()}
    assert names == {f"{name}.h5" for name in digests(data)}, "something temporary is left behind"


def test_what_was_interrupted_is_made_again_and_nothing_else(data, tmp_path):
    quickstart_folder = tmp_path / "quickstart"
    quickstart_folder.mkdir()
    for path in (data / "quickstart").iterdir():
        (quickstart_folder / path.name).write_bytes(path.read_bytes())
    assert quickstart.missing(tmp_path) == []
    truncated, unsealed, absent = (file_of(tmp_path, name) for name in ("mnist", "optdigits", "photos"))
    os.truncate(truncated, truncated.stat().st_size // 2)
    with h5py.File(unsealed, "r+") as file:
        del file.attrs["complete"]
    absent.unlink()
    untouched = {name: file_of(tmp_path, name).stat() for name in ("mnist_m", "syn", "letters")}

    assert set(quickstart.missing(tmp_path)) == {truncated, unsealed, absent}
    quickstart.make(tmp_path)
    assert quickstart.missing(tmp_path) == []
    assert digests(tmp_path) == digests(data)
    for name, before in untouched.items():
        after = file_of(tmp_path, name).stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_an_absent_package_is_named_with_what_to_install(data, tmp_path, monkeypatch):
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "skimage" else find(name))
    with pytest.raises(UserError, match=r'scikit-image: pip install "fccl_mpi\[demo\]"'):
        quickstart.make(tmp_path)
    assert list(tmp_path.iterdir()) == []
    quickstart.make(data)  # nothing is needed where all is there


def test_a_photograph_that_a_version_lacks_is_done_without_but_not_many():
    fewer = ["skimage/data/none.png", *quickstart.BLENDED_PHOTOS]
    assert quickstart._present(fewer, at_least=3) == [*quickstart.BLENDED_PHOTOS]
    with pytest.raises(UserError, match=r"lack skimage/data/none\.png"):
        quickstart._present(fewer, at_least=6)


def test_a_folder_that_cannot_be_written_is_a_user_error(tmp_path):
    (tmp_path / "quickstart").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"mnist\.h5 cannot be made"):
        quickstart.make(tmp_path)


def test_syn_can_be_learnt(data):
    """A slim ResNet, five passes over all training images: at least 85 % of the test images."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert accuracy_learnt(file_of(data, "syn"), epochs=5) >= 0.85
    finally:
        torch.set_num_threads(threads)


def accuracy_learnt(path, *, epochs):
    torch.manual_seed(0)
    (images, labels), (test_images, test_labels) = (tensors(path, name) for name in ("train", "test"))
    model = resnet10(classes=10, width=0.25)
    optimiser = torch.optim.Adam(model.parameters())
    steps = epochs * -(-len(images) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        return (model(test_images).argmax(1) == test_labels).float().mean().item()


def tensors(path, name):
    split = read_split(path, name)
    return torch.from_numpy(split.images).permute(0, 3, 1, 2) / 127.5 - 1, torch.from_numpy(split.labels)
