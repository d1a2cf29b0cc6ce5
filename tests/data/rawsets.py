"""Tiny raw image sets in exactly the formats in which the real ones are published."""

import bz2
import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

RED, GREEN, BLUE, GREY = (250, 10, 10), (10, 250, 10), (10, 10, 250), (120, 120, 120)


def marker(side=32, shift=0):
    """An image that no turn, flip or swap of channels maps to itself: red, green, blue and grey quarters.

    ``shift`` makes images differ a little, so that none is another's duplicate.
    """
    half = side // 2
    image = np.zeros((side, side, 3), np.uint8)
    image[:half, :half], image[:half, half:] = RED, GREEN
    image[half:, :half], image[half:, half:] = BLUE, GREY
    return image + np.uint8(shift % 6)


def is_upright(image, tolerance=30):
    """Whether a 32×32 image shows the marker."""
    corners = image[6, 6], image[6, 25], image[25, 6], image[25, 25]
    return all(
        np.abs(found.astype(int) - wanted).max() <= tolerance
        for found, wanted in zip(corners, (RED, GREEN, BLUE, GREY), strict=True)
    )


def grey_marker(side, shift=0):
    """Bright at the top left, middling at the top right, dark below."""
    half = side // 2
    image = np.zeros((side, side), np.uint8)
    image[:half, :half], image[:half, half:] = 250, 130
    return image + np.uint8(shift % 6)


def is_grey_upright(image):
    """Whether a 32×32 RGB image shows the grey marker, equal in all channels."""
    values = [int(image[row, column, 0]) for row, column in ((8, 8), (8, 24), (24, 8), (24, 24))]
    expected = (250, 130, 0, 0)
    return (image == image[..., :1]).all() and np.abs(np.subtract(values, expected)).max() <= 12


# --- idx ------------------------------------------------------------------------------------------


def idx_bytes(array):
    return (
        struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    )


def write_idx(folder, part="train", labels=range(10), gz=True):
    folder.mkdir(parents=True, exist_ok=True)
    name = {"train": "train", "test": "t10k"}[part]
    images = np.stack([grey_marker(28, shift) for shift, _ in enumerate(labels)])
    for kind, array in (("images-idx3", images), ("labels-idx1", np.array(list(labels)))):
        content = idx_bytes(array)
        path = folder / f"{name}-{kind}-ubyte{'.gz' if gz else ''}"
        path.write_bytes(gzip.compress(content) if gz else content)


# --- USPS -----------------------------------------------------------------------------------------


def usps_pixels(labels):
    """Values −1..1, (N, 256)."""
    greys = np.stack([grey_marker(16, shift) for shift, _ in enumerate(labels)]).reshape(-1, 256)
    return greys / 255 * 2 - 1


def write_usps(folder, name, labels=range(10)):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{label + 1} " + " ".join(f"{place}:{value:.6f}" for place, value in enumerate(row, 1)) + " "
        for label, row in zip(labels, usps_pixels(labels), strict=True)
    ]
    (folder / name).write_bytes(bz2.compress(("\n".join(lines) + "\n").encode()))


# --- MATLAB ---------------------------------------------------------------------------------------


def write_mat(path, labels):
    """SVHN's form: X (32, 32, 3, N), y (N, 1)."""
    from scipy.io import savemat

    path.parent.mkdir(parents=True, exist_ok=True)
    images = np.stack([marker(32, shift) for shift, _ in enumerate(labels)])
    savemat(
        path, {"X": images.transpose(1, 2, 3, 0), "y": np.array([labels], np.uint8).T}, do_compression=True
    )


# --- image files ----------------------------------------------------------------------------------


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def write_image(path, image=None, shift=0, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {".jpg": "JPEG", ".jpeg": "JPEG", ".JPEG": "JPEG"}.get(path.suffix, "PNG")
    quality = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {}
    path.write_bytes(encoded(marker(32, shift) if image is None else image, kind, **quality, **options))


def write_classes(folder, classes, count=4, suffix=".png", size=8):
    """Class folders of small images, all different."""
    for number, name in enumerate(classes):
        for index in range(count):
            image = np.full((size, size, 3), (number * 37 + 11) % 251, np.uint8)
            image[0, 0] = index * 7 % 256, number % 256, index % 256
            write_image(folder / name / f"{index:04d}{suffix}", image)


def pack_tar(archive, folder, mode="w"):
    with tarfile.open(archive, mode) as tar:
        for path in sorted(folder.rglob("*"), reverse=True):
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False)


def pack_zip(archive, folder):
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_file():
                packed.write(path, path.relative_to(folder).as_posix())


# --- CIFAR ----------------------------------------------------------------------------------------


def python2_batch(images, labels, key="labels"):
    """A batch as Python 2 pickled those of CIFAR: protocol 2, byte strings, the array's bytes as a string."""

    def text(value):
        return b"U" + bytes([len(value)]) + value.encode()

    def number(value):
        return b"J" + struct.pack("<i", value)

    raw = images.transpose(0, 3, 1, 2).tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R"
        b"(K\x01" + number(len(images)) + number(3072) + b"\x86"
        b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + text("|") + b"NNN" + number(-1) + number(-1) + b"K\x00tb"
        b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )
    numbers = b"](" + b"".join(number(label) for label in labels) + b"e"
    names = b"](" + b"".join(text(f"{place}.png") for place in range(len(labels))) + b"e"
    pairs = text("data") + array + text(key) + numbers + text("filenames") + names
    return b"\x80\x02}(" + pairs + text("batch_label") + text("training batch 1 of 5") + b"u."


def write_cifar10(folder, per_batch=10):
    inside = folder / "cifar-10-batches-py"
    inside.mkdir(parents=True)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for offset, name in enumerate(names):
        images = np.stack([marker(32, offset + shift) for shift in range(per_batch)])
        (inside / name).write_bytes(python2_batch(images, [label % 10 for label in range(per_batch)]))
    meta = {"label_names": [f"class{number}" for number in range(10)], "num_vis": 3072}
    (inside / "batches.meta").write_bytes(pickle.dumps(meta, protocol=2))


def write_cifar100(folder):
    inside = folder / "cifar-100-python"
    inside.mkdir(parents=True)
    for name in ("train", "test"):
        images = np.stack([marker(32, shift) for shift in range(100)])
        (inside / name).write_bytes(python2_batch(images, list(range(100)), "fine_labels"))
    meta = {b"fine_label_names": [f"fine{number:02d}".encode() for number in range(100)]}
    (inside / "meta").write_bytes(pickle.dumps(meta, protocol=3))


def tree_of(folder: Path) -> set[str]:
    """All files below, temporary ones too."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
