"""The public sets, from tiny files in their native formats."""

import os
import pickle

import numpy as np
import pytest
import rawsets
from rawsets import is_grey_upright, is_upright

from fccl_mpi.data.schema import read_public, read_public_header


def test_cifar10_as_folder_and_archive(prep, data, tmp_path):
    rawsets.write_cifar10(tmp_path / "raw")
    code, _, err = prep("cifar10", "--raw", "raw")
    assert code == 2
    assert "c99cafc152244af753f735de768cd75f" in err or "5ff9c542aee3614f3951f8cda6e48888" in err
    assert prep("cifar10", "--raw", "raw", "--any-checksum")[0] == 0
    images, labels = read_public(data / "public/cifar10.h5")
    assert all(is_upright(image) for image in images)
    assert labels.tolist() == list(range(10)) * 5
    digest = read_public_header(data / "public/cifar10.h5").digest
    (tmp_path / "packed").mkdir()
    rawsets.pack_tar(tmp_path / "packed/cifar-10-python.tar.gz", tmp_path / "raw", "w:gz")
    assert prep("cifar10", "--raw", "packed", "--any-checksum")[0] == 0
    assert read_public_header(data / "public/cifar10.h5").digest == digest


@pytest.mark.parametrize(("part", "count"), [("train", 50), ("test", 10), ("all", 60)])
def test_parts_of_a_public_set(prep, data, tmp_path, part, count):
    rawsets.write_cifar10(tmp_path / "raw")
    assert prep("cifar10", "--raw", "raw", "--any-checksum", "--part", part)[0] == 0
    assert read_public_header(data / "public/cifar10.h5").size == count


def test_cifar100(prep, data, tmp_path):
    rawsets.write_cifar100(tmp_path / "raw")
    assert prep("cifar100", "--raw", "raw", "--any-checksum", "--images", "40")[0] == 0
    images, labels = read_public(data / "public/cifar100.h5")
    assert all(is_upright(image) for image in images)
    assert len(set(labels.tolist())) == 40
    assert labels.tolist() == sorted(labels.tolist())


class Evil:
    """Makes a file when unpickled by an ordinary unpickler."""

    def __reduce__(self):
        return os.mkdir, ("pwned",)


def test_pickles_are_not_executed(prep, data, tmp_path):
    rawsets.write_cifar10(tmp_path / "raw")
    bad = tmp_path / "raw/cifar-10-batches-py/data_batch_3"
    for content in (pickle.dumps({"data": Evil(), "labels": [1]}), pickle.dumps(Evil(), protocol=0)):
        bad.write_bytes(content)
        code, _, err = prep("cifar10", "--raw", "raw", "--any-checksum")
        assert code == 2
        assert "mkdir" in err
        assert "data_batch_3" in err
        assert not (tmp_path / "pwned").exists()
    assert not data.exists()


@pytest.mark.parametrize(
    "content", [b"", b"<html>", pickle.dumps([1, 2]), pickle.dumps({"data": 3}), b"\x80\x02}"]
)
def test_what_is_no_batch_is_named(prep, data, tmp_path, content):
    rawsets.write_cifar10(tmp_path / "raw")
    (tmp_path / "raw/cifar-10-batches-py/data_batch_2").write_bytes(content)
    code, _, err = prep("cifar10", "--raw", "raw", "--any-checksum")
    assert code == 2
    assert "data_batch_2" in err
    assert not data.exists()


def test_cifar_as_class_folders(prep, data, tmp_path):
    for part in ("train", "test"):
        for number, name in enumerate(("airplane", "bird", "cat")):
            rawsets.write_image(tmp_path / f"raw/{part}/{name}/0001.jpg", shift=number)
    assert prep("cifar10", "--raw", "raw")[0] == 0
    images, labels = read_public(data / "public/cifar10.h5")
    assert all(is_upright(image) for image in images)
    assert labels.tolist() == [0, 1, 2]


def test_fashion_mnist(prep, data, tmp_path):
    rawsets.write_idx(tmp_path / "raw", "train", [9, 8, 7])
    assert prep("fashion_mnist", "--raw", "raw", "--any-checksum")[0] == 0
    images, labels = read_public(data / "public/fashion_mnist.h5")
    assert labels.tolist() == [9, 8, 7]
    assert all(is_grey_upright(image) for image in images)


def tiny_imagenet(folder):
    for wnid in ("n02", "n01"):
        for index in range(3):
            rawsets.write_image(
                folder / f"train/{wnid}/images/{wnid}_{index}.JPEG", rawsets.marker(64, index)
            )
        (folder / f"train/{wnid}/{wnid}_boxes.txt").write_text("a box")
    for index, _ in enumerate(("n01", "n02")):
        rawsets.write_image(folder / f"val/images/val_{index}.JPEG", rawsets.marker(64, index))
    (folder / "val/val_annotations.txt").write_text(
        "val_0.JPEG\tn02\t0\t0\t62\t62\nval_1.JPEG\tn01\t0\t0\t1\t1\n"
    )
    rawsets.write_image(folder / "test/images/test_0.JPEG")
    (folder / "wnids.txt").write_text("n02\nn01\n")


def test_tiny_imagenet(prep, data, tmp_path):
    tiny_imagenet(tmp_path / "raw/tiny-imagenet-200")
    rawsets.pack_zip(tmp_path / "tiny-imagenet-200.zip", tmp_path / "raw")
    for raw in ("raw", "tiny-imagenet-200.zip"):
        assert prep("tiny_imagenet", "--raw", raw)[0] == 0
        images, labels = read_public(data / "public/tiny_imagenet.h5")
        assert labels.tolist() == [0, 0, 0, 1, 1, 1]
        assert all(is_upright(image) for image in images)
    assert prep("tiny_imagenet", "--raw", "raw", "--part", "test")[0] == 0
    assert read_public(data / "public/tiny_imagenet.h5")[1].tolist() == [1, 0]


def test_imagenet_draws_without_reading_the_rest(prep, data, tmp_path):
    for number in range(3):
        for index in range(20):
            rawsets.write_image(tmp_path / f"raw/train/n0{number}/n0{number}_{index:02d}.JPEG", shift=index)
    assert prep("imagenet", "--raw", "raw", "--images", "12")[0] == 0
    first = read_public(data / "public/imagenet.h5")
    drawn = {image.tobytes() for image in first[0]}
    assert len(first[0]) == 12
    assert all(is_upright(image) for image in first[0])
    # Whatever was not drawn is not even opened: here it becomes unreadable.
    from data_prep.splits import draw

    paths = sorted((tmp_path / "raw/train").rglob("*.JPEG"))
    chosen = {paths[row] for row in draw(60, 12, seed=0, purpose="imagenet")}
    for path in set(paths) - chosen:
        path.write_bytes(b"no image")
    assert prep("imagenet", "--raw", "raw", "--images", "12", "--force")[0] == 0
    assert {image.tobytes() for image in read_public(data / "public/imagenet.h5")[0]} == drawn
    code, _, err = prep("imagenet", "--raw", "raw", "--images", "61")
    assert code == 2
    assert "60" in err


def test_any_folder_as_a_public_set(prep, data, tmp_path):
    for name in ("a", "b"):
        rawsets.write_image(tmp_path / f"classes/{name}/x.png")
        rawsets.write_image(tmp_path / f"files/{name}.png")
    assert prep("image_folder", "--raw", "classes", "--public", "mine")[0] == 0
    assert read_public_header(data / "public/mine.h5").labelled
    assert prep("image_folder", "--raw", "files", "--public", "flat")[0] == 0
    images, labels = read_public(data / "public/flat.h5")
    assert labels is None
    assert len(images) == 2
    code, _, err = prep("image_folder", "--raw", "files")
    assert code == 2
    assert "--task" in err


def test_downloads_happen_only_when_asked_for_and_by_torchvision(prep, data, tmp_path, monkeypatch):
    utils = pytest.importorskip("torchvision.datasets.utils")
    fetched = []

    def download_url(url, root, filename, md5):
        fetched.append((url, md5))
        rawsets.write_mat(root / filename, [1, 2])

    monkeypatch.setattr(utils, "download_url", download_url)
    assert prep("svhn", "--raw", "raw")[0] == 2
    assert fetched == []
    code, _, err = prep("svhn", "--raw", "raw", "--download", "--any-checksum")
    assert code == 0, err
    assert fetched[0] == (
        "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
        "e26dedcc434d2e4c54c9b2d4a06d8373",
    )
    code, _, err = prep("office_home", "--raw", "raw", "--download")
    assert code == 2
    assert "by hand" in err


def test_a_download_that_fails_is_one_sentence(prep, data, monkeypatch):
    utils = pytest.importorskip("torchvision.datasets.utils")

    def download_url(*_):
        raise OSError("no route to host")

    monkeypatch.setattr(utils, "download_url", download_url)
    for name in ("mnist", "usps", "svhn", "cifar10", "cifar100", "fashion_mnist"):
        code, _, err = prep(name, "--raw", "raw", "--download")
        assert code == 2
        assert "no route to host" in err
    assert not data.exists()


def test_the_order_of_channels_and_rows_of_a_batch_is_that_of_cifar():
    """Red plane first, row by row, in the bytes themselves."""
    batch = rawsets.python2_batch(np.arange(3072, dtype=np.uint8).reshape(1, 32, 32, 3), [0])
    raw = batch[batch.index(b"\x89T") + 6 :][:3072]
    assert raw[:3] == bytes([0, 3, 6])


def test_parts_that_a_set_has_not(prep, data, tmp_path):
    rawsets.write_classes(tmp_path / "raw", ("a", "b"))
    code, _, err = prep("image_folder", "--raw", "raw", "--public", "x", "--part", "train")
    assert code == 2
    assert "its parts: none" in err
    for part in ("train", "val"):
        rawsets.write_classes(tmp_path / "split" / part, ("a", "b"), 3 if part == "train" else 1)
    for part, count in (("test", 2), ("all", 8), ("train", 6)):
        assert prep("image_folder", "--raw", "split", "--public", "x", "--part", part)[0] == 0
        assert read_public_header(data / "public/x.h5").size == count
