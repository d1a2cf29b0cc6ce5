"""Fashion-MNIST (Xiao, Rasul & Vollgraf 2017) as a public set: 60,000 + 10,000 grey images of 28×28, idx."""

from functools import partial
from pathlib import Path

from data_prep.classes import words
from data_prep.idx import part_paths, read_part
from data_prep.public import public_arrays
from data_prep.raw import fetch, open_raw
from data_prep.source import Options, Recipe, Source, public_path

CLASSES = words("T-shirt/top Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag Ankle_boot")
KNOWN = {  # md5 of the unpacked content
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}


def plan(options: Options) -> list[Recipe]:
    """One public set, ``public/fashion_mnist.h5``, of the training part unless ``--part`` says otherwise."""
    tree = open_raw(options, download)
    parts = ["train", "test"] if options.part == "all" else [options.part or "train"]
    paths = [path for part in parts for path in part_paths(tree, part)]
    make = partial(
        public_arrays,
        "fashion_mnist",
        [partial(read_part, tree, part, KNOWN, options) for part in parts],
        CLASSES,
        f"Fashion-MNIST (Xiao et al. 2017), {' and '.join(parts)} part, idx files in {tree.shown}",
        options,
    )
    path = public_path(options, "fashion_mnist")
    return [Recipe(path=path, fingerprint=options.fingerprint(tree.stamp(paths)), make=make)]


def download(folder: Path) -> None:
    """Fetch the four files that are not there yet."""
    from torchvision.datasets import FashionMNIST

    for name, md5 in FashionMNIST.resources:
        fetch(folder, name, [mirror + name for mirror in FashionMNIST.mirrors], md5)


SOURCE = Source(
    name="fashion_mnist",
    title="Fashion-MNIST articles of clothing",
    makes="public/fashion_mnist.h5",
    wants="train-images-idx3-ubyte, train-labels-idx1-ubyte (.gz or plain); t10k-… with --part test or all",
    published="https://github.com/zalandoresearch/fashion-mnist",
    options=frozenset({"filter", "checksum", "public", "seed"}),
    plan=plan,
    download=download,
)
