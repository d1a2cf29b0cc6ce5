"""From any image file to 32×32 RGB: the colours and the orientation that a viewer shows.

The steps, in this order: turn upright by the EXIF tag; 16 bits to 8; an embedded colour profile to sRGB;
palette, grey, 1 bit and CMYK to RGB; transparency over a stated background; resize to 32×32 without
regard to proportions, as the FCCL authors do.

Pillow's filters widen when they shrink an image, so every choice is antialiased: ``bicubic`` is our
default; ``bilinear`` is what the authors' program gets from torchvision's ``Resize`` of a Pillow image.
"""

import warnings
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fccl_mpi.core.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

SIDE = 32
FILTERS = ("bicubic", "bilinear", "lanczos", "box")
MOST_PIXELS = 100_000_000
"""Three times the largest image of Office-Home; a file that declares more is a decompression bomb."""


class Look(NamedTuple):
    """How pixels are made: the name of a resizing filter and of the colour behind transparent images."""

    filter: str = "bicubic"
    background: str = "white"


def decode(source: Path | bytes, look: Look) -> np.ndarray:
    """Decode one image file wholly and return uint8 (32, 32, 3). Raises whatever is wrong with the file."""
    Image = _pillow()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd metadata, which does not matter, and of size, checked below
        with Image.open(source if isinstance(source, Path) else BytesIO(source)) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"it declares {image.width}×{image.height} pixels, a decompression bomb")
            image.load()
            upright = _rgb(_upright(image), look.background)
    return np.asarray(_resized(upright, look.filter))


def resize(images: np.ndarray, look: Look) -> np.ndarray:
    """Resize grey (N, h, w) or RGB (N, h, w, 3) uint8 images to uint8 (N, 32, 32, 3)."""
    if images.shape[1:] == (SIDE, SIDE, 3):
        return images
    Image = _pillow()
    resized = np.empty((len(images), SIDE, SIDE, 3), np.uint8)
    for place, image in zip(resized, images, strict=True):
        small = np.asarray(_resized(Image.fromarray(image), look.filter))
        place[:] = small if small.ndim == 3 else small[..., None]
    return resized


def check_look(look: Look) -> None:
    """Raise UserError unless the background is a colour that Pillow knows."""
    _pillow()
    from PIL import ImageColor

    try:
        ImageColor.getrgb(look.background)
    except ValueError as error:
        raise UserError(f"--background {look.background} is no colour: say white or #808080") from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise UserError('images need Pillow: pip install "fccl_mpi[data_prep]"') from error
    return Image


def _resized(image: "Image.Image", filter: str) -> "Image.Image":
    if image.size == (SIDE, SIDE):
        return image
    return image.resize((SIDE, SIDE), getattr(_pillow().Resampling, filter.upper()))


def _upright(image: "Image.Image") -> "Image.Image":
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # malformed metadata raises all manner of things; a viewer shows the image unturned
        return image


def _rgb(image: "Image.Image", background: str) -> "Image.Image":
    profile = image.info.get("icc_profile")
    image = _eight_bits(image)
    if not image.has_transparency_data:
        return _managed(image, profile).convert("RGB")
    rgba = image.convert("RGBA")
    paper = _pillow().new("RGB", rgba.size, background)
    paper.paste(_managed(rgba.convert("RGB"), profile), mask=rgba.getchannel("A"))
    return paper


def _eight_bits(image: "Image.Image") -> "Image.Image":
    """16-bit grey scaled to 8 bits, which Pillow would clip; other modes as they are."""
    if image.mode == "F":
        raise ValueError("its floating-point pixels have no agreed brightness")
    if not image.mode.startswith("I"):
        return image
    grey = np.asarray(image).astype(np.int64)
    if grey.min() < 0 or grey.max() > 0xFFFF:
        raise ValueError("its 32-bit pixels have no agreed brightness")
    return _pillow().fromarray(((grey + 128) // 257).astype(np.uint8))


def _managed(image: "Image.Image", profile: bytes | None) -> "Image.Image":
    """The image in sRGB if it bears the profile of another colour space, as viewers show it."""
    transform = _to_srgb(profile, image.mode) if profile else None
    return transform.apply(image) if transform else image


@lru_cache(maxsize=64)
def _to_srgb(profile: bytes, mode: str) -> Any:
    """The transform from a profile, or None where it is sRGB already, unfit for the mode or malformed."""
    try:
        from PIL import ImageCms

        source = ImageCms.ImageCmsProfile(BytesIO(profile))
        space = {"RGB ": "RGB", "GRAY": "L", "CMYK": "CMYK"}.get(source.profile.xcolor_space)
        if space != mode or "sRGB" in ImageCms.getProfileDescription(source):
            return None
        return ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except Exception:  # a viewer ignores a profile that it cannot read, whatever is wrong with it
        return None
