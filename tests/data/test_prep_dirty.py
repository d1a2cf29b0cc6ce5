"""What lies around in real folders and archives: passed over, named, or refused."""

import io
import os
import struct
import tarfile
import zipfile
import zlib

import pytest
import rawsets
from PIL import Image

from data_prep.archives import climbs_out, open_tree
from fccl_mpi.core.errors import UserError
from fccl_mpi.data.schema import read_public, read_public_header

ROOT = os.geteuid() == 0


@pytest.fixture
def raw(tmp_path):
    """Two classes of five good images."""
    rawsets.write_classes(tmp_path / "raw", ("cat", "dog"), 5)
    return tmp_path / "raw"


def convert(prep, raw, *arguments):
    return prep("image_folder", "--raw", raw, "--public", "pets", *arguments)


def test_junk_is_passed_over_and_counted(prep, data, raw):
    for name in (".DS_Store", "._0001.png", "Thumbs.db", "desktop.ini", ".hidden/x.png"):
        (raw / "cat" / name).parent.mkdir(exist_ok=True)
        (raw / "cat" / name).write_bytes(b"junk")
    for name in (".ipynb_checkpoints/0001-checkpoint.png", "__MACOSX/cat/._0001.png"):
        (raw / name).parent.mkdir(parents=True)
        (raw / name).write_bytes(b"junk")
    (raw / "cat/loop").symlink_to("..")
    (raw / "dog/self").symlink_to("self")
    (raw / "README.txt").write_text("hello")
    os.mkfifo(raw / "dog/pipe")
    code, out, err = convert(prep, raw)
    assert code == 0, err
    assert read_public_header(data / "public/pets.h5").size == 10
    _, out, _ = prep("inspect", data / "public/pets.h5")
    assert "7 hidden files and folders" in out
    assert "2 links that lead in a circle" in out
    assert "1 sockets, pipes and devices" in out
    assert "1 files outside of class folders" in out


def broken_files(raw):
    whole = rawsets.encoded(rawsets.marker(64), "JPEG", quality=95)
    (raw / "cat/truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (raw / "cat/empty.png").write_bytes(b"")
    (raw / "dog/text.png").write_text("no image")
    (raw / "dog/page.jpg").write_text("<html>not found</html>")
    (raw / "dog/nowhere.png").symlink_to("missing.png")
    return ["cat/empty.png", "cat/truncated.jpg", "dog/nowhere.png", "dog/page.jpg", "dog/text.png"]


def test_broken_images_stop_and_are_listed(prep, data, raw):
    names = broken_files(raw)
    code, _, err = convert(prep, raw)
    assert code == 2
    assert all(name in err for name in names)
    assert "5 of 15 files" in err
    assert "link to nothing" in err
    assert err.count("\n") == 1
    assert not data.exists()


def test_broken_images_can_be_left_out_and_are_then_listed_in_the_file(prep, data, raw):
    clean = convert(prep, raw)[0], read_public(data / "public/pets.h5")[0]
    names = broken_files(raw)
    code, _, err = convert(prep, raw, "--skip-broken")
    assert code == 0, err
    images, labels = read_public(data / "public/pets.h5")
    assert (images == clean[1]).all()
    assert labels.tolist() == [0] * 5 + [1] * 5
    _, out, _ = prep("inspect", data / "public/pets.h5")
    assert "broken = 5" in out
    assert all(name in out for name in names)


def test_many_broken_images_are_listed_in_full_in_the_file(prep, data, raw):
    for index in range(3000):
        (raw / f"cat/{'long' * 20}{index}.png").write_bytes(b"")
    code, _, err = convert(prep, raw, "--processes", "1")
    assert code == 2
    assert "2980 more" in err
    assert convert(prep, raw, "--skip-broken", "--processes", "1")[0] == 0
    _, out, _ = prep("inspect", data / "public/pets.h5")
    assert "broken = 3000" in out


def test_images_that_unpack_to_too_much_are_refused(prep, data, raw):
    """A PNG that declares 60,000 × 60,000 pixels and compresses to next to nothing."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 1, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * 1_000_000)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    (raw / "cat/bomb.png").write_bytes(bomb)
    (raw / "cat/big.png").write_bytes(
        bomb.replace(struct.pack(">II", 60_000, 60_000), struct.pack(">II", 12_000, 9_000))
    )
    code, _, err = convert(prep, raw)
    assert code == 2
    assert "cat/bomb.png" in err
    assert "decompression bomb" in err
    assert not data.exists()


def test_archives_whose_members_unpack_to_too_much_are_refused(prep, data, tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.decoding.LARGEST_IMAGE", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("cat/a.png", rawsets.encoded(rawsets.marker()))
        packed.writestr("cat/b.png", bytes(2 << 20))
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz") as packed:
        info = tarfile.TarInfo("cat/b.png")
        info.size = 2 << 20
        packed.addfile(info, io.BytesIO(bytes(2 << 20)))
    for name in ("bomb.zip", "bomb.tar.gz"):
        code, _, err = convert(prep, tmp_path / name)
        assert code == 2
        assert "2,097,152 bytes" in err
    assert not data.exists()


@pytest.mark.parametrize(
    "name", ["../evil.png", "/etc/evil.png", "cat/../../evil.png", "C:/evil.png", "..\\evil.png"]
)
def test_archives_that_climb_out_are_refused(prep, data, tmp_path, name):
    assert climbs_out(name)
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as packed:
        packed.writestr("cat/a.png", rawsets.encoded(rawsets.marker()))
        packed.writestr(name, b"x")
    with tarfile.open(tmp_path / "evil.tar", "w") as packed:
        packed.addfile(tarfile.TarInfo(name))
    for archive in ("evil.zip", "evil.tar"):
        code, _, err = convert(prep, tmp_path / archive)
        assert code == 2
        assert "evil.png" in err
        assert "leave the folder" in err
    assert not data.exists()


def test_names_with_dots_do_not_climb_out():
    assert not any(map(climbs_out, ["a/..b/c.png", "./a/b.png", "a/./b", "a/b/../c", "a.b/c..png"]))


def test_links_within_archives_are_never_followed(prep, data, tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        content = rawsets.encoded(rawsets.marker())
        info = tarfile.TarInfo("cat/a.png")
        info.size = len(content)
        packed.addfile(info, io.BytesIO(content))
        for name, kind, target in (
            ("cat/b.png", tarfile.SYMTYPE, "/etc/passwd"),
            ("cat/c.png", tarfile.LNKTYPE, "cat/a.png"),
            ("cat/d.png", tarfile.CHRTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            packed.addfile(info)
    tree = open_tree(tmp_path / "a.tar")
    assert tree.paths() == ["cat/a.png", "cat/c.png"]
    assert tree.read("cat/c.png") == content
    assert sum(tree.passed_over.values()) == 2


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "zip"])
@pytest.mark.parametrize("damage", ["half", "page", "empty", "noise"])
def test_damaged_archives_are_named(prep, data, tmp_path, raw, ending, damage):
    archive = tmp_path / f"pets.{ending}"
    if ending == "zip":
        rawsets.pack_zip(archive, raw)
    else:
        rawsets.pack_tar(archive, raw, "w:gz" if ending == "tar.gz" else "w")
    whole = archive.read_bytes()
    damaged = {
        "half": whole[: len(whole) // 2],
        "page": b"<!DOCTYPE html><html>Sign in</html>",
        "empty": b"",
        "noise": bytes(range(256)) * 100,
    }[damage]
    archive.write_bytes(damaged)
    code, _, err = convert(prep, archive)
    assert code == 2
    assert archive.name in err
    if damage == "page":
        assert "web page" in err
    assert not data.exists()


def test_a_tar_cut_anywhere_is_refused(tmp_path, raw):
    rawsets.pack_tar(tmp_path / "pets.tar", raw)
    whole = (tmp_path / "pets.tar").read_bytes()
    end = len(whole.rstrip(b"\0"))
    for cut in range(512, end, 512):
        (tmp_path / "cut.tar").write_bytes(whole[:cut])
        with pytest.raises(UserError, match=r"cut\.tar"):
            tree = open_tree(tmp_path / "cut.tar")
            list(tree.fetch(tree.paths()))


def test_a_damaged_member_of_a_zip_is_listed(prep, data, tmp_path, raw):
    rawsets.pack_zip(tmp_path / "pets.zip", raw)
    content = bytearray((tmp_path / "pets.zip").read_bytes())
    start = content.index(b"dog/0002.png") + 40
    content[start : start + 8] = b"\xff" * 8
    (tmp_path / "pets.zip").write_bytes(content)
    code, _, err = convert(prep, tmp_path / "pets.zip")
    assert code == 2
    assert "dog/0002.png" in err
    assert "1 of 10 files" in err


def test_an_encrypted_zip_is_refused(tmp_path, raw):
    rawsets.pack_zip(tmp_path / "pets.zip", raw)
    content = (tmp_path / "pets.zip").read_bytes()
    flagged = content.replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00")
    assert flagged != content
    (tmp_path / "pets.zip").write_bytes(flagged)
    with pytest.raises(UserError, match="encrypted"):
        open_tree(tmp_path / "pets.zip").paths()


def test_a_web_page_saved_as_an_image_folder_is_no_folder(prep, tmp_path):
    (tmp_path / "pacs.zip").write_bytes(b"<html>quota exceeded</html>")
    code, _, err = prep("pacs", "--raw", "pacs.zip")
    assert code == 2
    assert "web page" in err


def test_an_empty_folder_says_so(prep, tmp_path):
    (tmp_path / "raw").mkdir()
    for name in ("pacs", "office_home", "tiny_imagenet", "cifar10", "imagenet", "syn"):
        code, _, err = prep(name, "--raw", "raw")
        assert code == 2, name
        assert "raw" in err
        assert err.startswith("error: ")


@pytest.mark.skipif(ROOT, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named(prep, raw):
    (raw / "cat").chmod(0)
    code, _, err = convert(prep, raw)
    (raw / "cat").chmod(0o755)
    assert code == 2
    assert "cat" in err


def test_an_image_of_every_odd_kind_in_one_folder(prep, data, tmp_path):
    folder = tmp_path / "raw"
    rawsets.write_image(folder / "a/rgb.png")
    for mode in ("1", "L", "LA", "P", "RGBA", "I;16", "CMYK"):
        kind = "TIFF" if mode == "CMYK" else "PNG"
        image = (
            Image.new(mode, (20, 10)) if mode == "I;16" else Image.fromarray(rawsets.marker(20)).convert(mode)
        )
        (folder / f"a/{mode.replace(';', '')}.{kind.lower()}").write_bytes(rawsets.encoded(image, kind))
    assert convert(prep, folder)[0] == 0
    assert read_public_header(data / "public/pets.h5").size == 8
