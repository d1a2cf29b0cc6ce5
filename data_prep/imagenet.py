"""ImageNet and Tiny-ImageNet as public sets: both number their classes by WordNet (``n01440764``).

* ``imagenet`` (Russakovsky et al. 2015): class folders, at will in train and val. 5,000 images are drawn
  from the list of files unless ``--images`` says otherwise; the others are never opened.
* ``tiny_imagenet`` (Stanford CS231n): ``train/<class>/images/*.JPEG``, ``val/images`` with a table of
  labels ``val_annotations.txt`` (``name<TAB>class<TAB>box``), 64×64; the test part has no labels.
"""

from functools import partial

from data_prep.archives import Tree
from data_prep.classes import Names
from data_prep.layout import File
from data_prep.progress import printable
from data_prep.public import plan_public_folder, public_files
from data_prep.raw import find, open_raw, unpacked
from data_prep.source import Options, Recipe, Source
from fccl_mpi.core.errors import UserError

IMAGENET_DRAWN = 5_000
MOST_BYTES = 1 << 26


def plan_tiny(options: Options) -> list[Recipe]:
    """One public set, of the training part unless ``--part`` says otherwise."""
    tree = open_raw(options)
    train: list[tuple[str, str]] = []
    for path in tree.paths():
        match path.split("/"):
            case [*_, "train", wnid, "images", _]:
                train.append((path, wnid))
            case [*_, "val", "images", _] | [*_, "test", "images", _]:
                pass
            case _:
                tree.passed_over["files that are no images of a part"] += 1
    val = _validation(tree)
    classes = Names(sorted({wnid for _, wnid in [*train, *val]}))
    labelled = [("train", *entry) for entry in train] + [("test", *entry) for entry in val]
    files = [File(path, part, classes.find(wnid) or 0) for part, path, wnid in labelled]
    if not files:
        raise UserError(
            f"{tree.shown} holds no train/<class>/images: name the folder or archive of tiny-imagenet-200 "
            "with --raw"
        )
    return [
        public_files(
            tree, "tiny_imagenet", "Tiny-ImageNet-200 (Stanford CS231n)", files, classes.names, options
        )
    ]


def _validation(tree: Tree) -> list[tuple[str, str]]:
    """(path, class) of every image that ``val_annotations.txt`` names and that is there."""
    table = find(tree, "val_annotations.txt")
    if table is None:
        return []
    folder = table.rpartition("/")[0] + "/images/"
    there = set(tree.paths())
    content, _ = unpacked(tree.read(table), table, MOST_BYTES)
    rows = [line.split("\t") for line in content.decode(errors="surrogateescape").splitlines() if line]
    if bad := next((row for row in rows if len(row) < 2), None):
        raise UserError(
            f"{tree.shown}/{table} has the line {printable(bad[0])!r}, without a class: fetch it again"
        )
    return [(folder + row[0], row[1]) for row in rows if folder + row[0] in there]


SOURCES = (
    Source(
        name="tiny_imagenet",
        title="Tiny-ImageNet, 200 classes",
        makes="public/tiny_imagenet.h5",
        wants="tiny-imagenet-200.zip or its folder (train/<class>/images, val/images, val_annotations.txt)",
        published="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        options=frozenset({"filter", "files", "public", "seed"}),
        plan=plan_tiny,
    ),
    Source(
        name="imagenet",
        title="ImageNet, images drawn from it",
        makes="public/imagenet.h5",
        wants="a folder of class folders (n01440764, …), at will in train and val; 5,000 images are drawn",
        published="https://image-net.org (ILSVRC 2012, after registration)",
        options=frozenset({"filter", "files", "public", "seed"}),
        plan=partial(
            plan_public_folder,
            name="imagenet",
            title="ImageNet (Russakovsky et al. 2015)",
            default_images=IMAGENET_DRAWN,
        ),
    ),
)
