"""Every kind of image file gives the colours and the orientation that a viewer shows."""

import io

import numpy as np
import pytest
import rawsets
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms
from rawsets import GREEN, RED, encoded, grey_marker, is_grey_upright, is_upright, marker

from data_prep.pixels import FILTERS, Look, decode, resize

LOOK = Look()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("BMP", {}),
        ("TIFF", {}),
        ("JPEG", {"quality": 95, "subsampling": 0}),
        ("WEBP", {"lossless": True}),
        ("PPM", {}),
    ],
)
@pytest.mark.parametrize("side", [16, 32, 50, 200])
def test_formats_and_sizes(kind, options, side):
    image = decode(encoded(marker(side), kind, **options), LOOK)
    assert image.shape == (32, 32, 3)
    assert image.dtype == np.uint8
    assert is_upright(image)


def test_a_file_and_its_bytes_are_the_same(tmp_path):
    rawsets.write_image(tmp_path / "a.jpg")
    assert (decode(tmp_path / "a.jpg", LOOK) == decode((tmp_path / "a.jpg").read_bytes(), LOOK)).all()


@pytest.mark.parametrize("turn", range(1, 9))
def test_exif_rotation(turn):
    """The pixels are stored as a camera held that way would, so that the tag brings them upright."""
    undo = {
        1: [],
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }[turn]
    stored = Image.fromarray(marker(64))
    for step in undo:
        stored = stored.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = turn
    assert is_upright(decode(encoded(stored, "JPEG", quality=95, subsampling=0, exif=exif), LOOK))


def test_broken_exif_is_ignored():
    content = encoded(marker(64), "JPEG", quality=95, subsampling=0, exif=b"Exif\0\0nonsense")
    assert is_upright(decode(content, LOOK))


def test_grey_and_one_bit_and_sixteen_bits():
    grey = grey_marker(64)
    assert is_grey_upright(decode(encoded(grey), LOOK))
    sixteen = Image.fromarray(grey.astype(np.uint16) * 257)
    assert sixteen.mode == "I;16"
    for kind in ("PNG", "TIFF"):
        assert (decode(encoded(sixteen, kind), LOOK) == decode(encoded(grey), LOOK)).all()
    bits = Image.fromarray(grey > 200).convert("1")
    one = decode(encoded(bits), LOOK)
    assert one[8, 8].tolist() == [255, 255, 255]
    assert one[24, 24].tolist() == [0, 0, 0]


def test_sixteen_bits_are_scaled_not_clipped():
    dark = Image.fromarray(np.full((32, 32), 12850, np.uint16))
    assert np.unique(decode(encoded(dark), LOOK)).tolist() == [50]


def test_palette():
    image = Image.fromarray(marker(64)).quantize(8)
    assert image.mode == "P"
    assert is_upright(decode(encoded(image), LOOK))
    assert is_upright(decode(encoded(image, "GIF"), LOOK))


@pytest.mark.parametrize("background", ["white", "black", "#ff8000"])
def test_transparency_shows_the_background(background):
    """A half-transparent left half over a transparent black: neither may darken the background."""
    image = Image.fromarray(marker(32)).convert("RGBA")
    alpha = np.zeros((32, 32), np.uint8)
    alpha[:, :16] = 255
    image.putalpha(Image.fromarray(alpha))
    paper = np.array(Image.new("RGB", (1, 1), background))[0, 0]
    for content in (
        encoded(image),
        encoded(image, "WEBP", lossless=True, exact=True),
        encoded(image, "TIFF"),
    ):
        found = decode(content, Look(background=background))
        assert np.abs(found[6, 6].astype(int) - RED).max() < 8
        assert (found[6, 25] == paper).all()


def test_transparency_of_palettes_grey_and_single_colours():
    palette = Image.new("P", (32, 32), 0)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    assert (decode(encoded(palette, transparency=0), LOOK) == 255).all()
    assert (decode(encoded(palette, transparency=bytes([128, 255])), LOOK)[0, 0] == [255, 127, 127]).all()
    colour = Image.new("RGB", (32, 32), GREEN)
    assert (decode(encoded(colour, transparency=GREEN), LOOK) == 255).all()
    grey = Image.merge("LA", (Image.new("L", (32, 32), 0), Image.new("L", (32, 32), 0)))
    assert (decode(encoded(grey), LOOK) == 255).all()


def test_edges_of_transparent_images_do_not_bleed():
    """A white disc on transparent black, made small, stays white on white."""
    image = np.zeros((256, 256, 4), np.uint8)
    image[64:192, 64:192] = 255
    assert (decode(encoded(Image.fromarray(image)), LOOK) == 255).all()


def test_cmyk():
    content = encoded(Image.fromarray(marker(64)).convert("CMYK"), "JPEG", quality=95)
    assert is_upright(decode(content, LOOK), tolerance=40)
    assert is_upright(decode(encoded(Image.fromarray(marker(64)).convert("CMYK"), "TIFF"), LOOK))


def test_an_embedded_profile_is_followed_and_a_broken_one_ignored():
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    for profile in (srgb.tobytes(), lab.tobytes(), b"nonsense", b""):
        assert is_upright(decode(encoded(marker(64), icc_profile=profile), LOOK))


def test_a_profile_of_another_colour_space_is_followed():
    """sRGB with red and green exchanged: what the file calls red, a viewer shows as green."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for old, new in ((b"rXYZ", b"tmpX"), (b"gXYZ", b"rXYZ"), (b"tmpX", b"gXYZ")):
        profile = profile.replace(old, new, 1)
    swapped = profile.replace("sRGB".encode("utf-16-be"), "rsGB".encode("utf-16-be"))
    image = decode(encoded(marker(64), icc_profile=swapped), LOOK)
    assert np.abs(image[6, 6].astype(int) - GREEN).max() < 20
    assert np.abs(image[6, 25].astype(int) - RED).max() < 20
    assert is_upright(decode(encoded(marker(64), icc_profile=profile), LOOK))  # calls itself sRGB


def test_animations_give_their_first_frame():
    frames = [Image.fromarray(marker(32)), Image.new("RGB", (32, 32), "white")]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    assert is_upright(decode(buffer.getvalue(), LOOK))


def test_every_filter_is_antialiased():
    """Fine black and white stripes, made eight times smaller, are an even grey whatever the filter."""
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[:, ::2] = 255
    for name in FILTERS:
        image = decode(encoded(stripes), Look(filter=name))
        assert np.abs(image[:, 2:-2].astype(int) - 127).max() <= 3


def test_bilinear_is_what_the_released_program_gets_from_torchvision():
    transforms = pytest.importorskip("torchvision.transforms")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (227, 180, 3), np.uint8))
    expected = np.asarray(transforms.Resize((32, 32))(image))
    assert (decode(encoded(image), Look(filter="bilinear")) == expected).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from(FILTERS), st.integers(0, 255))
def test_an_even_image_stays_even(width, height, name, value):
    image = np.full((1, height, width, 3), value, np.uint8)
    assert (resize(image, Look(filter=name)) == value).all()
    assert (resize(image[..., 0], Look(filter=name)) == value).all()


@pytest.mark.parametrize("mode", ["F", "I"])
def test_pixels_without_an_agreed_brightness_are_refused(mode):
    image = Image.new(mode, (32, 32), 100_000)
    with pytest.raises(ValueError, match="agreed brightness"):
        decode(encoded(image, "TIFF"), LOOK)


def test_a_background_that_is_no_colour_is_refused(prep, tmp_path):
    rawsets.write_image(tmp_path / "raw/a.png")
    code, _, err = prep("image_folder", "--raw", "raw", "--public", "x", "--background", "greyish")
    assert code == 2
    assert "greyish" in err
