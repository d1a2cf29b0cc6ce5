"""SVHN (Netzer et al. 2011) as a private domain: 73,257 + 26,032 house-number digits, 32×32 RGB.

The cropped digits in MATLAB form: ``X`` (32, 32, 3, N), ``y`` (N, 1) with 10 for the digit 0. The file of
extra images is no part of the paper's domain.
"""

from functools import partial
from pathlib import Path

from data_prep.archives import Tree
from data_prep.digits import Labelled, digits_domain, wanted_parts
from data_prep.matlab import read_mat
from data_prep.raw import check_file, fetch, open_raw, require
from data_prep.source import Options, Recipe, Source, domain_path

URL = "http://ufldl.stanford.edu/housenumbers"
FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}
KNOWN = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}


def plan(options: Options) -> list[Recipe]:
    """One domain, ``digits/svhn.h5``."""
    tree = open_raw(options, download)
    hint = "see --list for where it is published, add --download, or say --part if you have but one part"
    paths = {part: require(tree, FILES[part], hint=hint) for part in wanted_parts(options)}
    source = (
        f"SVHN (Netzer et al. 2011), {' and '.join(paths)} part, {', '.join(paths.values())} in {tree.shown}"
    )
    read = {part: partial(_read, tree, path, options) for part, path in paths.items()}
    return [
        Recipe(
            path=domain_path(options, "digits", "svhn"),
            fingerprint=options.fingerprint(tree.stamp(paths.values())),
            make=partial(digits_domain, "svhn", read, source, options),
        )
    ]


def download(folder: Path) -> None:
    """Fetch the two files that are not there yet."""
    for name, md5 in KNOWN.items():
        fetch(folder, name, [f"{URL}/{name}"], md5)


def _read(tree: Tree, path: str, options: Options) -> Labelled:
    return read_mat(check_file(tree, path, KNOWN, options), f"{tree.shown}/{path}")


SOURCE = Source(
    name="svhn",
    title="SVHN street view house numbers, cropped digits",
    makes="digits/svhn.h5",
    wants="train_32x32.mat, test_32x32.mat",
    published=URL,
    options=frozenset({"checksum", "part", "split", "seed"}),
    plan=plan,
    download=download,
)
