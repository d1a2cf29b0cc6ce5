"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) as public sets: 50,000 + 10,000 RGB images of 32×32.

In the form "python version", as folder or archive: pickled dictionaries with ``data`` (N, 3072) uint8, red
plane first, row by row, and ``labels`` or ``fine_labels``; or as class folders in train and test.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.archives import Tree
from data_prep.digits import Labelled
from data_prep.layout import find_any_classes
from data_prep.pickles import read_pickle
from data_prep.public import public_arrays, public_files
from data_prep.raw import binary, check_file, fetch, find, open_raw
from data_prep.source import Options, Recipe, Source, public_path
from fccl_mpi.core.errors import UserError

URL = "https://www.cs.toronto.edu/~kriz"


class Cifar(NamedTuple):
    """One of the two sets: its files with their md5."""

    name: str
    title: str
    archive: str
    archive_md5: str
    train: dict[str, str]
    test: dict[str, str]
    meta: dict[str, str]
    labels: str
    label_names: str


CIFAR10 = Cifar(
    name="cifar10",
    title="CIFAR-10 (Krizhevsky 2009)",
    archive="cifar-10-python.tar.gz",
    archive_md5="c58f30108f718f92721af3b95e74349a",
    train={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test={"test_batch": "40351d587109b95175f43aff81a1287e"},
    meta={"batches.meta": "5ff9c542aee3614f3951f8cda6e48888"},
    labels="labels",
    label_names="label_names",
)
CIFAR100 = Cifar(
    name="cifar100",
    title="CIFAR-100 (Krizhevsky 2009)",
    archive="cifar-100-python.tar.gz",
    archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    meta={"meta": "7973b15100ade9c7d40fb424638fde48"},
    labels="fine_labels",
    label_names="fine_label_names",
)


def plan(cifar: Cifar, options: Options) -> list[Recipe]:
    """One public set, of the training part unless ``--part`` says otherwise."""
    tree = open_raw(options, partial(_download, cifar))
    meta = find(tree, *cifar.meta)
    if meta is None:
        files, classes = find_any_classes(tree)
        if len(classes.names) < 2:
            raise UserError(
                f"{tree.shown} holds neither {', '.join(cifar.meta)} nor class folders: see --list for "
                "where the set is published, or add --download"
            )
        return [public_files(tree, cifar.name, cifar.title, files, classes.names, options)]
    names = {"train": cifar.train, "test": cifar.test, "all": cifar.train | cifar.test}[
        options.part or "train"
    ]
    paths = [_beside(tree, meta, name) for name in names]
    known = cifar.train | cifar.test | cifar.meta
    make = partial(
        public_arrays,
        cifar.name,
        [partial(_read, tree, path, cifar.labels, known, options) for path in paths],
        _class_names(tree, meta, cifar, known, options),
        f"{cifar.title}, {', '.join(names)} in {tree.shown}",
        options,
    )
    fingerprint = options.fingerprint(tree.stamp([meta, *paths]))
    return [Recipe(path=public_path(options, cifar.name), fingerprint=fingerprint, make=make)]


def _beside(tree: Tree, meta: str, name: str) -> str:
    path = meta.rpartition("/")[0] + "/" + name if "/" in meta else name
    if path not in tree.paths():
        raise UserError(f"{tree.shown} holds {meta} but no {path}: fetch the set again, or add --download")
    return path


def _class_names(tree: Tree, meta: str, cifar: Cifar, known: dict[str, str], options: Options) -> list[str]:
    shown = f"{tree.shown}/{meta}"
    with binary(check_file(tree, meta, known, options)) as file:
        names = read_pickle(file, shown).get(cifar.label_names)
    if not isinstance(names, list):
        raise UserError(f"{shown} holds no {cifar.label_names}: fetch it again")
    return [name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names]


def _read(tree: Tree, path: str, key: str, known: dict[str, str], options: Options) -> Labelled:
    shown = f"{tree.shown}/{path}"
    with binary(check_file(tree, path, known, options)) as file:
        batch = read_pickle(file, shown)
    data, labels = batch.get("data"), batch.get(key)
    if not isinstance(data, np.ndarray) or not isinstance(labels, list) or data.shape != (len(labels), 3072):
        raise UserError(f"{shown} holds no data (N, 3072) with {key} (N,): fetch it again")
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), np.array(labels, np.int64)


def _download(cifar: Cifar, folder: Path) -> None:
    fetch(folder, cifar.archive, [f"{URL}/{cifar.archive}"], cifar.archive_md5)


def _source(cifar: Cifar) -> Source:
    return Source(
        name=cifar.name,
        title=cifar.title,
        makes=f"public/{cifar.name}.h5",
        wants=f"{cifar.archive} or its files {', '.join(cifar.train | cifar.test | cifar.meta)}; "
        "or class folders in train and test",
        published=f"{URL}/cifar.html (python version)",
        options=frozenset({"filter", "checksum", "files", "public", "seed"}),
        plan=partial(plan, cifar),
        download=partial(_download, cifar),
    )


SOURCES = (_source(CIFAR10), _source(CIFAR100))
