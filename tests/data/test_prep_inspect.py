"""What inspect prints and draws, and that verify finds every change."""

import h5py
import numpy as np
import pytest
import rawsets
from PIL import Image

from data_prep.classes import DIGITS
from data_prep.registry import SOURCES
from data_prep.source import Options
from fccl_mpi.data.schema import read_split


@pytest.fixture
def domain(prep, data, tmp_path):
    rawsets.write_idx(tmp_path / "raw", "train", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9])
    rawsets.write_idx(tmp_path / "raw", "test", [5])
    assert prep("mnist", "--raw", "raw", "--any-checksum")[0] == 0
    return data / "digits/mnist.h5"


def test_counts_moments_and_provenance(prep, domain):
    code, out, _ = prep("inspect", domain)
    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[:11]}
    assert rows["class"] == ["train", "test"]
    assert rows["9"] == ["2", "0"]
    assert rows["5"] == ["1", "1"]
    images = read_split(domain, "train").images / 255
    assert f"mean {' '.join([f'{images.mean():.4f}'] * 3)}" in out
    assert f"std {' '.join([f'{images.std():.4f}'] * 3)}" in out
    assert "LeCun" in out
    assert "split = as published" in out


def test_the_sheet_has_a_row_for_each_class(prep, domain, tmp_path):
    assert prep("inspect", domain)[0] == 0
    sheet = np.asarray(Image.open(domain.with_suffix(".png")))
    images = read_split(domain, "train").images
    for digit in range(10):
        top = (digit + 1) * 36
        assert (sheet[top : top + 32, 120:152] == images[digit]).all()
    assert prep("inspect", domain, "--sheet", tmp_path / "elsewhere/s.png")[0] == 0
    assert (tmp_path / "elsewhere/s.png").is_file()


def test_a_sheet_without_classes(prep, data, tmp_path):
    for name in "abc":
        rawsets.write_image(tmp_path / f"raw/{name}.png")
    assert prep("image_folder", "--raw", "raw", "--public", "flat")[0] == 0
    code, out, _ = prep("inspect", data / "public/flat.h5")
    assert code == 0
    assert "3 images" in out
    sheet = np.asarray(Image.open(data / "public/flat.png"))
    assert rawsets.is_upright(sheet[36:68, 120:152])


@pytest.mark.parametrize("where", ["train/images", "test/labels", "classes"])
def test_verify_finds_every_change(prep, domain, where):
    assert prep("verify", domain)[0] == 0
    with h5py.File(domain, "r+") as file:
        dataset = file[where]
        dataset[0] = b"nought" if where == "classes" else dataset[0] ^ 1
    code, _, err = prep("verify", domain)
    assert code == 2
    assert str(domain) in err


def test_verify_of_several_and_of_what_is_none(prep, domain, tmp_path):
    (tmp_path / "no.h5").write_text("no")
    assert prep("verify", domain, domain)[0] == 0
    for path in (tmp_path / "no.h5", tmp_path / "absent.h5"):
        code, _, err = prep("verify", domain, path)
        assert code == 2
        assert path.name in err


def test_every_source_is_listed_with_what_it_wants(prep):
    code, out, _ = prep("--list")
    assert code == 0
    for name, source in SOURCES.items():
        assert name == source.name
        assert f"{name}: {source.title}" in out
        assert source.wants
        assert source.published
    paper = {"mnist", "usps", "svhn", "syn", "office_home", "cifar100", "imagenet", "fashion_mnist"}
    assert paper <= set(SOURCES)


def test_every_option_of_a_source_is_one_that_the_command_line_has(prep, capsys):
    from data_prep.__main__ import _GROUPS

    for name, source in SOURCES.items():
        assert source.options <= set(_GROUPS)
        with pytest.raises(SystemExit) as stop:
            prep(name, "--help")
        assert stop.value.code == 0
    assert set(DIGITS.names) == set("0123456789")
    assert Options(raw=None).train_share == 0.7


def test_quickstart_is_made_where_data_says(prep, data, monkeypatch):
    made = []
    monkeypatch.setattr("data_prep.quickstart.make", made.append)
    assert prep("quickstart")[0] == 0
    assert made == [data]
