"""MNIST-M (Ganin et al. 2016) as a private domain: 59,001 + 9,001 RGB digits of 32×32.

MNIST's digits blended with photographs, as png files beside a list of ``name label`` lines for each part:
``mnist_m_train/``, ``mnist_m_train_labels.txt``, ``mnist_m_test/``, ``mnist_m_test_labels.txt``.

Image i of a part is digit i of the same part of MNIST. Whoever trains on one part of MNIST must therefore
not be tested on the same part of MNIST-M, which the files note and data_prep warns of.
"""

from functools import partial

import numpy as np

from data_prep.archives import Tree
from data_prep.decoding import decode_all
from data_prep.digits import Labelled, digits_domain, wanted_parts
from data_prep.mnist import ORIGINS
from data_prep.progress import printable
from data_prep.raw import open_raw, require, unpacked
from data_prep.source import Options, Recipe, Source, domain_path
from fccl_mpi.core.errors import UserError

MOST_BYTES = 1 << 26


def plan(options: Options) -> list[Recipe]:
    """One domain, ``digits/mnist_m.h5``."""
    tree = open_raw(options)
    hint = "see --list for where it is published, or say --part if you have but one part"
    lists = {part: require(tree, f"mnist_m_{part}_labels.txt", hint=hint) for part in wanted_parts(options)}
    files = {part: _listed(tree, path) for part, path in lists.items()}
    paths = [*lists.values(), *(path for part in files.values() for path in part)]
    source = f"MNIST-M (Ganin et al. 2016), {' and '.join(lists)} part, in {tree.shown}"
    read = {part: partial(_read, tree, labels, options) for part, labels in files.items()}
    return [
        Recipe(
            path=domain_path(options, "digits", "mnist_m"),
            fingerprint=options.fingerprint(tree.stamp(paths)),
            make=partial(digits_domain, "mnist_m", read, source, options, ORIGINS),
        )
    ]


def _listed(tree: Tree, path: str) -> dict[str, int]:
    """The label of every image that the list names. Raises UserError at a line that names none."""
    folder = path.removesuffix("_labels.txt")
    there = set(tree.paths())
    labels: dict[str, int] = {}
    content, _ = unpacked(tree.read(path), path, MOST_BYTES)
    for number, line in enumerate(content.decode(errors="surrogateescape").splitlines(), 1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        if label not in "0123456789" or f"{folder}/{name.strip()}" not in there:
            raise UserError(
                f"{tree.shown}/{path}, line {number}: {printable(line)!r} does not name one of the images in "
                f"{folder} and its digit: fetch the set again"
            )
        labels[f"{folder}/{name.strip()}"] = int(label)
    if not labels:
        raise UserError(f"{tree.shown}/{path} lists no image: fetch the set again")
    return labels


def _read(tree: Tree, labels: dict[str, int], options: Options) -> Labelled:
    decoded = decode_all(tree, list(labels), options, "digits/mnist_m")
    return decoded.images[decoded.kept], np.array(list(labels.values()))[decoded.kept]


SOURCE = Source(
    name="mnist_m",
    title="MNIST-M, MNIST's digits on photographs",
    makes="digits/mnist_m.h5",
    wants="mnist_m_train/*.png with mnist_m_train_labels.txt, the same for test, or mnist_m.tar.gz",
    published="http://yaroslav.ganin.net",
    options=frozenset({"filter", "files", "part", "split", "seed"}),
    plan=plan,
)
