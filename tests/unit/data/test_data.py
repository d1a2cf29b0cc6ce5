"""Partition, augmentation, normalising."""

import numpy as np
import pytest
import torch

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.seeds import generator
from fccl_mpi.data.augment import augment
from fccl_mpi.data.images import ImageSet, Normaliser
from fccl_mpi.data.partition import batches, draw, split_domain

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("size", "batch", "sizes"),
    [(5, 2, [2, 3]), (4, 2, [2, 2]), (1, 2, [1]), (65, 64, [65]), (129, 64, [64, 65]), (7, 3, [3, 4])],
)
def test_a_last_batch_of_one_joins_the_one_before(size, batch, sizes):
    found = batches(size, batch)
    assert [len(part) for part in found] == sizes
    assert np.concatenate(found).tolist() == list(range(size))


def test_draw_is_without_replacement_and_by_name():
    chosen = draw(100, 30, 0, "mnist", "private")
    assert len(set(chosen.tolist())) == 30
    assert (draw(100, 30, 0, "mnist", "private") == chosen).all()
    assert (draw(100, 30, 0, "usps", "private") != chosen).any()
    assert (draw(100, 30, 1, "mnist", "private") != chosen).any()
    assert draw(5, 0, 0, "mnist", "private").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(UserError, match="mnist: 6 private images are asked for, but its file has 5"):
        draw(5, 6, 0, "mnist", "private")


LABELS = np.arange(1000) % 10


def test_a_domain_is_split_by_shares_without_overlap():
    parts = split_domain(LABELS, {"a": 1, "b": 3}, 0.0, 0, "mnist")
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(1000))
    assert [len(parts[name]) for name in "ab"] == [250, 750]
    assert np.bincount(LABELS[parts["a"]]).tolist() == [25] * 10


def test_skew_makes_labels_uneven_the_more_the_smaller_it_is():
    def unevenness(skew: float) -> float:
        parts = split_domain(LABELS, {"a": 1, "b": 1, "c": 1}, skew, 0, "mnist")
        assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(1000))
        return float(np.std([np.bincount(LABELS[part], minlength=10) for part in parts.values()]))

    assert unevenness(0.0) < 1 < unevenness(100.0) < unevenness(1.0) < unevenness(0.1)
    with pytest.raises(UserError, match=r"label_skew=0\.0001: . gets . images of mnist"):
        split_domain(LABELS[:40], dict.fromkeys("abcdefgh", 1), 0.0001, 0, "mnist")


def test_augmented_images_are_shifted_flipped_and_turned_copies():
    images = (
        torch.arange(32 * 32, dtype=torch.int64)
        .remainder(251)
        .to(torch.uint8)
        .view(1, 1, 32, 32)
        .repeat(64, 3, 1, 1)
    )
    images[:, 1] = 7
    found = augment(images, generator(0, "test"))
    assert found.shape == images.shape and found.dtype == torch.uint8
    assert set(found[:, 1].unique().tolist()) == {0, 7}  # a pixel of the image, or black
    assert (found[:, 1] == 7).float().mean() > 0.75  # most of the image stays
    assert len({image.numpy().tobytes() for image in found}) == 64  # each in its own way
    assert torch.equal(found, augment(images, generator(0, "test")))


def test_augmentation_without_movement_is_the_identity(monkeypatch):
    monkeypatch.setattr("fccl_mpi.data.augment.PADDING", 0)
    monkeypatch.setattr("fccl_mpi.data.augment.DEGREES", 0.0)
    images = torch.randint(0, 256, (20, 3, 32, 32), dtype=torch.uint8)
    found = augment(images, generator(1, "test"))
    flipped = [torch.equal(a, b.flip(2)) for a, b in zip(found, images, strict=True)]
    same = [torch.equal(a, b) for a, b in zip(found, images, strict=True)]
    assert all(f or s for f, s in zip(flipped, same, strict=True)) and any(flipped) and any(same)


def test_rotation_agrees_with_torchvision(monkeypatch):
    from torchvision.transforms.v2.functional import rotate

    monkeypatch.setattr("fccl_mpi.data.augment.PADDING", 0)
    image = torch.randint(1, 256, (1, 3, 32, 32), dtype=torch.uint8)

    class Fixed:
        def integers(self, low, high, shape):
            return np.zeros(shape, np.int64)

        def random(self, shape):
            return np.ones(shape)  # no flip

        def uniform(self, low, high, shape):
            return np.full(shape, 10.0)

    ours = augment(image, Fixed())
    candidates = [rotate(image, angle) for angle in (10.0, -10.0)]
    assert max((ours == other).float().mean() for other in candidates) > 0.99


def test_images_lie_channels_last_without_a_copy():
    stored = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    images = ImageSet(stored, np.arange(3), CPU).images
    assert images.shape == (3, 3, 32, 32) and images.is_contiguous(memory_format=torch.channels_last)
    assert images.data_ptr() == stored.ctypes.data


def test_normaliser_is_torchvisions():
    from torchvision.transforms.v2.functional import normalize, to_dtype

    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    expected = normalize(to_dtype(images, torch.float32, scale=True), mean, std)
    torch.testing.assert_close(Normaliser(mean, std, CPU)(images), expected)
