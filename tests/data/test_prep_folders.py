"""Private domains from folders: names, missing classes, splits, archives."""

import shutil

import numpy as np
import pytest
import rawsets

from data_prep.archives import open_tree
from data_prep.classes import OFFICE31, OFFICE_CALTECH, OFFICE_HOME, PACS, Names, normalised
from data_prep.layout import find_any_task
from fccl_mpi.core.errors import UserError
from fccl_mpi.data.schema import read_domain_header, read_split

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


@pytest.fixture
def pacs(tmp_path):
    """Four domains × seven classes × ten images."""
    for number, domain in enumerate(("art_painting", "Cartoon", "photo", "sketch")):
        rawsets.write_classes(tmp_path / "raw/PACS" / domain, CLASSES, 10, size=8 + number)
    return tmp_path / "raw"


def digests(data, task="pacs"):
    return {path.stem: read_domain_header(path).digest for path in sorted((data / task).glob("*.h5"))}


def test_the_class_lists_have_their_lengths():
    lengths = [len(task.classes.names) for task in (OFFICE_HOME, OFFICE31, OFFICE_CALTECH, PACS)]
    assert lengths == [65, 31, 10, 7]
    assert len(OFFICE_HOME.domains.names) == 4


@pytest.mark.parametrize("spelled", ["Real World", "RealWorld", "real_world", "REAL-WORLD", "real  world"])
def test_one_domain_however_it_is_spelled(spelled):
    assert OFFICE_HOME.domains.find(spelled) == 3
    assert normalised("Café_au-lait") == normalised("cafe\u0301 AU lait")


def test_names_that_mean_the_same_are_refused():
    with pytest.raises(UserError, match="postitnotes"):
        Names(["Postit_Notes", "postit notes"])


def test_office_home(prep, data, tmp_path):
    spelled = {
        "Art": [name.replace("_", " ") for name in OFFICE_HOME.classes.names],
        "Clipart": list(OFFICE_HOME.classes.names),
        "Product": [name.lower() for name in OFFICE_HOME.classes.names],
        "Real World": [name.replace("_", "-").upper() for name in OFFICE_HOME.classes.names],
    }
    for domain, names in spelled.items():
        rawsets.write_classes(tmp_path / "raw/OfficeHomeDataset_10072016" / domain, names, 3, ".jpg", 16)
    (tmp_path / "raw/OfficeHomeDataset_10072016/ImageInfo.csv").write_text("a,b")
    code, out, err = prep("office_home", "--raw", "raw")
    assert code == 0, err
    assert "passed over 1 files outside of the domains' folders" in out
    assert sorted(digests(data, "office_home")) == ["art", "clipart", "product", "real_world"]
    for path in (data / "office_home").glob("*.h5"):
        header = read_domain_header(path)
        assert header.classes == OFFICE_HOME.classes.names
        assert (header.train_size, header.test_size) == (130, 65)
    # Class 3's images are those of the folder of class 3, however it is spelled.
    art = read_split(data / "office_home/art.h5", "train")
    grey = art.images[art.labels == 3][:, 20, 20, 0].astype(int)
    assert np.abs(grey - (3 * 37 + 11) % 251).max() < 12


def test_office31_with_its_folder_images_and_office_caltech_with_its_other_names(prep, data, tmp_path):
    for domain in ("amazon", "dslr", "webcam"):
        rawsets.write_classes(tmp_path / f"raw31/{domain}/images", OFFICE31.classes.names, 2)
    assert prep("office31", "--raw", "raw31")[0] == 0
    assert read_domain_header(data / "office31/dslr.h5").classes == OFFICE31.classes.names
    aliases = ["touring-bike", "computer-keyboard", "laptop-101", "coffee-mug", "video-projector"]
    names = ["backpack", "calculator", "head-phones", "computer-monitor", "computer-mouse", *aliases]
    for domain in ("amazon", "caltech10", "dslr", "webcam"):
        rawsets.write_classes(tmp_path / "raw10" / domain, names, 2)
    assert prep("office_caltech", "--raw", "raw10")[0] == 0
    assert np.bincount(read_split(data / "office_caltech/caltech.h5", "train").labels).tolist() == [1] * 10


def test_a_missing_class_is_refused_unless_allowed(prep, data, pacs):
    shutil.rmtree(pacs / "PACS/photo/horse")
    code, _, err = prep("pacs", "--raw", pacs)
    assert code == 2
    assert "pacs/photo" in err
    assert "horse" in err
    assert not data.exists()
    code, out, _ = prep("pacs", "--raw", pacs, "--allow-missing-classes")
    assert code == 0
    assert "pacs/photo has no image of horse" in out
    assert read_domain_header(data / "pacs/photo.h5").classes == CLASSES
    assert np.bincount(read_split(data / "pacs/photo.h5", "train").labels).tolist() == [7, 7, 7, 7, 0, 7, 7]
    _, out, _ = prep("inspect", data / "pacs/photo.h5")
    assert "missing_classes: horse" in out


def test_an_unknown_class_and_a_missing_domain_are_refused(prep, data, pacs):
    (pacs / "PACS/photo/horse").rename(pacs / "PACS/photo/hoarse")
    code, _, err = prep("pacs", "--raw", pacs)
    assert code == 2
    assert "photo/hoarse (10 files)" in err
    (pacs / "PACS/photo/hoarse").rename(pacs / "PACS/photo/horse")
    shutil.rmtree(pacs / "PACS/sketch")
    code, _, err = prep("pacs", "--raw", pacs)
    assert code == 2
    assert "sketch" in err
    assert not data.exists()
    assert prep("pacs", "--raw", pacs, "--domain", "photo,CARTOON")[0] == 0
    assert sorted(digests(data)) == ["cartoon", "photo"]
    code, _, err = prep("pacs", "--raw", pacs, "--domain", "foto")
    assert code == 2
    assert "art_painting" in err


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip", "folder of tars"])
def test_archives_give_the_same_as_the_folder(prep, data, tmp_path, pacs, kind):
    assert prep("pacs", "--raw", pacs)[0] == 0
    expected = digests(data)
    archive = tmp_path / f"p.{kind}"
    if kind == "zip":
        rawsets.pack_zip(archive, pacs)
    elif kind == "folder of tars":
        archive.mkdir()
        for domain in (pacs / "PACS").iterdir():
            shutil.copytree(domain, tmp_path / "one" / domain.name)
            rawsets.pack_tar(archive / f"{domain.name}.tar", tmp_path / "one")
            shutil.rmtree(tmp_path / "one")
    else:
        rawsets.pack_tar(archive, pacs, "w:gz" if kind == "tar.gz" else "w")
    code, _, err = prep("pacs", "--raw", archive, "--force")
    assert code == 0, err
    assert digests(data) == expected


def test_splits_are_disjoint_stratified_and_fixed(prep, data, pacs):
    assert prep("pacs", "--raw", pacs)[0] == 0
    train, test = (read_split(data / "pacs/photo.h5", split) for split in ("train", "test"))
    assert np.bincount(train.labels).tolist() == [7] * 7
    assert np.bincount(test.labels).tolist() == [3] * 7
    assert not {image.tobytes() for image in train.images} & {image.tobytes() for image in test.images}
    first = digests(data)
    prep("pacs", "--raw", pacs, "--force")
    assert digests(data) == first
    prep("pacs", "--raw", pacs, "--seed", "1")
    assert digests(data) != first
    prep("pacs", "--raw", pacs, "--train-share", "0.5")
    assert read_domain_header(data / "pacs/photo.h5").train_size == 35


def test_the_released_split_overlaps_and_says_so(prep, data, pacs):
    assert prep("pacs", "--raw", pacs)[0] == 0
    disjoint = {image.tobytes() for image in read_split(data / "pacs/photo.h5", "train").images}
    code, out, _ = prep("pacs", "--raw", pacs, "--released-split")
    assert code == 0
    assert "49 test images are byte for byte also training images" in out
    train, test = (read_split(data / "pacs/photo.h5", split) for split in ("train", "test"))
    assert {image.tobytes() for image in train.images} == disjoint
    assert len(test.images) == 70
    assert disjoint < {image.tobytes() for image in test.images}
    _, out, _ = prep("inspect", data / "pacs/photo.h5")
    assert "training images included" in out


def test_duplicates_across_the_splits_are_counted(prep, data, pacs):
    for index in range(10):  # ten equal dogs: seven to train, three to test
        rawsets.write_image(pacs / f"PACS/photo/dog/{index:04d}.png")
    _, out, _ = prep("pacs", "--raw", pacs)
    assert "photo.h5: 3 test images are byte for byte also training images" in out


@pytest.mark.parametrize("above", [True, False])
def test_a_sets_own_split_is_kept(prep, data, tmp_path, above):
    for part, count in (("train", 3), ("val", 2), ("test", 1)):
        for domain in ("east", "west"):
            folder = f"{part}/{domain}" if above else f"{domain}/{part}"
            rawsets.write_classes(tmp_path / "raw/set" / folder, ("bus", "car", "train"), count)
    code, _, err = prep("image_folder", "--raw", "raw", "--task", "My Task")
    assert code == 0, err
    header = read_domain_header(data / "my_task/east.h5")
    assert header.classes == ("bus", "car", "train")
    assert (header.train_size, header.test_size) == (9, 3)
    code, _, err = prep("image_folder", "--raw", "raw", "--task", "My Task", "--released-split")
    assert code == 2
    assert "--released-split" in err


def test_a_tree_of_ones_own(prep, data, tmp_path):
    rawsets.write_classes(tmp_path / "raw/day", ("bus", "Car", "train"), 4)
    rawsets.write_classes(tmp_path / "raw/Night Time", ("BUS", "car", "Train"), 4)
    assert prep("image_folder", "--raw", "raw", "--task", "traffic")[0] == 0
    assert sorted(digests(data, "traffic")) == ["day", "night_time"]
    headers = [read_domain_header(path) for path in (data / "traffic").glob("*.h5")]
    assert len({header.classes for header in headers}) == 1
    assert len(headers[0].classes) == 3
    # A third domain with another class does not fit these two.
    rawsets.write_classes(tmp_path / "fog", ("bus", "car", "train", "tram"), 4)
    code, _, err = prep("image_folder", "--raw", "fog", "--task", "traffic", "--domain", "fog")
    assert code == 2
    assert "other classes" in err
    shutil.rmtree(tmp_path / "fog/tram")
    assert prep("image_folder", "--raw", "fog", "--task", "traffic", "--domain", "fog")[0] == 0
    assert read_domain_header(data / "traffic/fog.h5").classes == headers[0].classes


def test_a_tree_of_uneven_depth_is_refused(tmp_path):
    rawsets.write_classes(tmp_path / "raw/day", ("bus", "car"), 2)
    rawsets.write_classes(tmp_path / "raw/day/more/deep", ("bus",), 1)
    with pytest.raises(UserError, match="day/more/deep/bus"):
        find_any_task(open_tree(tmp_path / "raw"))
