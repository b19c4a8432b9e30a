"""Decoding: the same pixels with and without simplejpeg, windows, scaled decoding, orientation, masks, hostile JPEG."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.runtime.data import picture_headers, pictures
from dslc.runtime.data.augment.apply import apply
from dslc.runtime.data.augment.draws import Draws
from dslc.runtime.data.augment.steps.colour import Colour
from dslc.runtime.data.augment.steps.flip import Flip
from dslc.runtime.data.augment.steps.resized_crop import ResizedCrop
from dslc.runtime.data.augment.steps.rotate import Rotate
from dslc.runtime.data.pictures import PictureOptions, Pictures
from dslc.runtime.data.rows import BadSample

Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
simplejpeg = pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")

RGB = ("RGB", 3)


def smooth(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Any:
    """A picture with large and small structures, as photographs have."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (max(1, height // 8), max(1, width // 8), len(mode)), np.uint8)
    image = Image.fromarray(coarse.squeeze(-1) if mode == "L" else coarse).resize((width, height))
    noise = rng.integers(-9, 10, np.asarray(image).shape)
    return Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype("u1"))


def jpeg(image: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes ``Pictures`` without simplejpeg."""

    def make(*args: Any) -> Pictures:
        with monkeypatch.context() as patch:
            patch.setattr(pictures, "_simplejpeg", lambda: None)
            return Pictures(*args)

    return make


def files() -> dict[str, bytes]:
    """JPEG of every usual kind."""
    found = {}
    for width, height in ((37, 50), (64, 48), (33, 31), (200, 120)):
        for mode in ("RGB", "L"):
            image = smooth(width, height, mode)
            for way in (0, 1, 2) if mode == "RGB" else (None,):
                for progressive in (False, True):
                    options = {} if way is None else {"subsampling": way}
                    name = f"{mode} {width}x{height} {way} {progressive}"
                    found[name] = jpeg(image, quality=85, progressive=progressive, **options)
    cmyk = smooth(64, 48).convert("CMYK")
    return {**found, "cmyk": jpeg(cmyk), "restarts": jpeg(smooth(64, 48), restart_marker_blocks=2)}


@pytest.mark.parametrize("scaled", [False, True])
def test_the_pixels_are_those_of_pillow(slow: Any, scaled: bool) -> None:
    decoded = 0
    for name, data in files().items():
        for shape in ((3, 9, 8), (48, 64, 3), (8, 8), (7, 5, 4)):
            fast = Pictures(shape, PictureOptions(scaled=scaled))
            used = fast._jpeg
            fast._jpeg = lambda *args, used=used: count(used(*args))  # type: ignore[method-assign]

            def count(found: Any) -> Any:
                nonlocal decoded
                decoded += found is not None
                return found

            expected = slow(shape, PictureOptions(scaled=scaled)).read(data, 0, "")
            assert np.array_equal(fast.read(data, 0, ""), expected), name
    assert decoded > 50, "simplejpeg is used"


@pytest.mark.parametrize("scaled", [False, True])
def test_a_damaged_jpeg_has_one_verdict(slow: Any, scaled: bool, fuzz_count: Any, fuzz_seed: int) -> None:
    """Whoever decodes: the same pixels, or a bad sample."""
    rng = np.random.default_rng(fuzz_seed)
    good = list(files().values())
    shape, options = (8, 9, 3), PictureOptions(scaled=scaled, upright=True)
    fast, plain = Pictures(shape, options), slow(shape, options)
    outcomes = set()
    for _ in range(fuzz_count(3000)):
        data = bytearray(good[rng.integers(len(good))])
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        if rng.random() < 0.2:
            del data[rng.integers(len(data)) :]
        found = []
        for decoder in (fast, plain):
            try:
                found.append(decoder.read(bytes(data), 0, "").tobytes())
            except BadSample:
                found.append(None)
        assert found[0] == found[1]
        outcomes.add(found[0] is None)
    assert outcomes == {True, False}


def test_a_scaled_decoding_is_nearly_the_same_and_only_of_large_jpeg() -> None:
    large, small = jpeg(smooth(400, 320), quality=95), jpeg(smooth(60, 60), quality=95)
    exact, scaled = (Pictures((32, 32, 3), PictureOptions(scaled=flag)) for flag in (False, True))
    first, second = (each.read(large, 0, "").astype(int) for each in (exact, scaled))
    assert not np.array_equal(first, second) and np.abs(first - second).max() < 24 and np.abs(first - second).mean() < 2
    assert np.array_equal(exact.read(small, 0, ""), scaled.read(small, 0, ""))
    opened, sides = Image.open(io.BytesIO(large)), (63, 64, 127, 128, 255, 256, 512, 5000)
    parts = [scaled._part(opened, (side, side)) for side in sides]
    assert parts == [1, 1, 1, 2, 2, 4, 8, 8]


def test_a_window_is_the_scaled_part_of_the_picture() -> None:
    image = smooth(90, 70)
    file = io.BytesIO()
    image.save(file, "PNG")
    decoder = Pictures((16, 24, 3), PictureOptions())

    def choose(height: int, width: int) -> tuple[int, int, int, int]:
        assert (height, width) == (70, 90)
        return (10, 20, 33, 48)

    found = decoder.read(file.getvalue(), 0, "", choose).astype(int)
    expected = np.asarray(image.crop((20, 10, 68, 43)).resize((24, 16), Image.Resampling.BILINEAR))
    inside = (slice(1, -1), slice(1, -1))  # at its edges the window also sees the pixels around it
    assert np.abs(found - expected)[inside].max() <= 1 and np.abs(found - expected).mean() < 2
    same = decoder.read(file.getvalue(), 0, "", lambda height, width: (7, 9, 16, 24))
    assert np.array_equal(same, np.asarray(image)[7:23, 9:33])


@pytest.mark.parametrize("scaled", [False, True])
def test_windows_at_the_edges_of_every_size(slow: Any, scaled: bool) -> None:
    options = PictureOptions(scaled=scaled)
    for width, height in ((17, 9), (250, 131), (129, 257)):
        data = jpeg(smooth(width, height))
        corner, side = (height - 1, width - 1, 1, 1), (0, width - 1, height, 1)
        for window in ((0, 0, height, width), corner, side, (1, 0, height - 1, width)):
            fast, plain = Pictures((3, 4, 5), options), slow((3, 4, 5), options)
            found = fast.read(data, 0, "", lambda *size, window=window: window)
            assert np.array_equal(found, plain.read(data, 0, "", lambda *size, window=window: window))


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_pictures_are_turned_as_exif_says_if_asked(turn: int, form: str) -> None:
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = turn
    file = io.BytesIO()
    smooth(24, 16).save(file, form, exif=exif)
    stored = Image.open(io.BytesIO(file.getvalue()))
    upright = ImageOps.exif_transpose(stored)
    found = Pictures((upright.height, upright.width, 3), PictureOptions(upright=True)).read(file.getvalue(), 0, "")
    assert np.array_equal(found, np.asarray(upright))
    plain = Pictures((16, 24, 3), PictureOptions()).read(file.getvalue(), 0, "")
    assert np.array_equal(plain, np.asarray(stored))
    sizes: list[tuple[int, int]] = []
    options = PictureOptions(upright=True)
    Pictures((4, 4, 3), options).read(file.getvalue(), 0, "", lambda *size: sizes.append(size) or (0, 0, *size))  # type: ignore[func-returns-value]
    assert sizes == [(upright.height, upright.width)]


def test_a_mask_keeps_the_indices_of_its_palette() -> None:
    classes = np.repeat(np.repeat(np.random.default_rng(0).integers(0, 9, (5, 6)), 4, axis=0), 4, axis=1).astype("u1")
    image = Image.fromarray(classes, "P")
    image.putpalette([value for index in range(256) for value in (255 - index, index, 7)])
    file = io.BytesIO()
    image.save(file, "PNG")
    options = PictureOptions(mask=True)
    assert np.array_equal(Pictures((20, 24), options).read(file.getvalue(), 0, ""), classes)
    half = Pictures((10, 12), options).read(file.getvalue(), 0, "")
    assert set(np.unique(half)) <= set(range(9)) and np.array_equal(half, classes[1::2, 1::2])


def png(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


WIDE = np.array([[0, 255, 256, 511], [512, 32768, 65280, 65535]], "u2")


@pytest.mark.parametrize("shape", [(2, 4), (3, 2, 4)])
def test_of_16_bits_the_upper_ones_stay(shape: tuple[int, ...]) -> None:
    found = Pictures(shape, PictureOptions()).read(png(Image.fromarray(WIDE)), 0, "")
    assert np.array_equal(found, np.broadcast_to(WIDE >> 8, shape))
    assert np.array_equal(Pictures(shape, PictureOptions()).of_image(Image.fromarray(WIDE)), found)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_of_32_bits_are_refused(mode: str) -> None:
    with pytest.raises(ValueError, match=f"mode {mode}"):
        Pictures((2, 4), PictureOptions()).of_image(Image.fromarray(WIDE.astype({"I": "i4", "F": "f4"}[mode])))


MASK = PictureOptions(mask=True)


def test_a_mask_keeps_its_values_whatever_its_mode() -> None:
    classes = np.arange(8).reshape(2, 4).astype("u1")
    for image in (classes, classes.astype("u2"), np.dstack([classes] * 3), np.dstack([classes] * 3 + [255 - classes])):
        assert np.array_equal(Pictures((2, 4), MASK).read(png(Image.fromarray(image)), 0, ""), classes)
    truths = Pictures((2, 4), MASK).read(png(Image.fromarray(classes > 3)), 0, "")
    assert np.array_equal(truths, classes > 3)


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_a_mask_of_colours_is_a_bad_sample(kind: str) -> None:
    image = Image.new("RGB", (4, 2), (128, 0, 0))
    with pytest.raises(BadSample) as caught:
        Pictures((2, 4), MASK).read(png(image) if kind == "png" else jpeg(image), 3, "masks/3")
    assert "its pixels are colours, such as (12" in caught.value.why
    with pytest.raises(BadSample) as caught:
        Pictures((2, 4), MASK).read(png(Image.fromarray(WIDE)), 3, "masks/3")
    assert "65535 of a mask is above 255" in caught.value.why


# Folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photographs of several sizes, and their masks."""
    for number in range(8):
        size = (60 + 7 * number, 50 + 3 * number)
        for name, image in (("photos", smooth(*size, seed=number)), ("masks", smooth(*size, "L", seed=number))):
            path = tmp_path / name / "all" / f"{number}.{'jpg' if name == 'photos' else 'png'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
    return tmp_path


LIST = (ResizedCrop((0.2, 1.0)), Flip(0.5), Colour(brightness=0.4))


def test_a_window_comes_from_the_whole_picture(folder: Path, opened: Any) -> None:
    image = (f"{folder}/photos/:image", "u8", ("B", 12, 16, 3))
    data = opened(image=image, augment={"image": LIST}, seed=5)
    rows = np.array([3, 1, 6])
    draws = Draws(5, 2, rows, 1).of(0)
    expected = np.empty((3, 12, 16, 3), np.uint8)
    for at, row in enumerate(rows.tolist()):
        window = LIST[0].window(50 + 3 * row, 60 + 7 * row, draws.row(at))
        data_of = (folder / "photos" / "all" / f"{row}.jpg").read_bytes()
        decoder = Pictures((12, 16, 3), PictureOptions())
        expected[at] = decoder.read(data_of, 0, "", lambda *size, window=window: window)
    expected = apply(LIST[1:], expected, rows, 5, 2, training=True, first=1)
    assert np.array_equal(data.take(rows, 2)["image"], expected)
    plain = opened(image=image, augment={"image": LIST}, training=False).take(rows)["image"]
    assert np.array_equal(plain, opened(image=image).take(rows)["image"]), "evaluation scales the whole picture"


def test_workers_and_a_second_folder_change_no_bit(folder: Path, opened: Any) -> None:
    tasks = [(np.random.default_rng(number).permutation(16)[:4], number) for number in range(4)]
    (folder / "photos2").symlink_to(folder / "photos")
    (folder / "masks2").symlink_to(folder / "masks")
    found = []
    for workers in (0, 1, 3):
        data = opened(
            image=(f"{folder}/photos*/:image", "f32", ("B", 3, 12, 16)),
            mask=(f"{folder}/masks*/:image", "i32", ("B", 12, 16)),
            augment={"image": LIST, "mask": "image"},
        )
        found.append([(each["image"].tobytes(), each["mask"].tobytes()) for each in data.feed(iter(tasks), workers)])
    assert data.rows == 16 and found[0] == found[1] == found[2]


def test_the_mask_shows_the_window_of_the_image(folder: Path, opened: Any) -> None:
    """The mask is the image's own first channel: what it shows must correlate with the image."""
    for path in (folder / "photos" / "all").iterdir():
        grey = Image.open(path).convert("L").point(lambda value: 255 * (value > 127))
        grey.save(folder / "masks" / "all" / f"{path.stem}.png")
    data = opened(
        image=(f"{folder}/photos/:image", "f32", ("B", 24, 24)),
        mask=(f"{folder}/masks/:image", "i32", ("B", 24, 24)),
        augment={"image": LIST[:2], "mask": "image"},
    )
    for epoch in range(5):
        batch = data.take(np.arange(8), epoch)
        sure = np.abs(batch["image"] - 127) > 60
        assert sure.mean() > 0.1 and ((batch["image"] > 127) == (batch["mask"] > 127))[sure].mean() > 0.95


def test_classes_of_a_target_are_never_mixed(folder: Path, opened: Any) -> None:
    """Also without `mask: image`: a picture of classes for an input of `train` has no values between them."""
    for path in (folder / "masks" / "all").iterdir():
        Image.open(path).convert("L").point(lambda value: 8 * (value > 127)).save(path)
    for steps in ((), (Rotate(10),), "image"):
        data = opened(
            image=(f"{folder}/photos/:image", "f32", ("B", 24, 24)),
            mask=(f"{folder}/masks/:image", "i32", ("B", 24, 24), (0, 9)),
            augment={"image": LIST, "mask": steps},
            targets=["mask"],
        )
        assert set(np.unique(data.take(np.arange(8), 0)["mask"])) == {0, 8}


def test_the_help_for_a_mask_of_black_and_white(folder: Path, opened: Any, refused: Any) -> None:
    for path in (folder / "masks" / "all").iterdir():
        Image.open(path).convert("L").point(lambda value: 255 * (value > 127)).save(path)
    mask = (f"{folder}/masks/:image", "i32", ("B", 24, 24), (0, 2))
    error = refused(lambda: opened(mask=mask, targets=["mask"]).take(np.arange(8), 0))
    assert error.code == "R103" and 'cast(mask > 127, "i32")' in error.help


# Hostile files


def header(width: int, height: int, parts: int = 3) -> bytes:
    """A JPEG that declares a size and has no data."""
    body = struct.pack(">BHHB", 8, height, width, parts) + b"".join(bytes((at + 1, 0x22, 0)) for at in range(parts))
    frame = b"\xff\xc0" + struct.pack(">H", 2 + len(body)) + body
    tables = b"\xff\xdb" + struct.pack(">HB", 67, 0) + bytes(range(1, 65))
    scan = b"\xff\xda" + struct.pack(">HB", 6 + 2 * parts, parts) + b"".join(bytes((at + 1, 0)) for at in range(parts))
    return b"\xff\xd8" + tables + frame + scan + b"\x00\x3f\x00" + b"\x00" * 20 + b"\xff\xd9"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff\xd8", b"\xff\xd8\xff\xd9", header(65535, 65535), header(0, 5), header(5, 0),
        header(9000, 8000), jpeg(smooth(40, 40))[:-200], jpeg(smooth(40, 40))[:300],
        b"\xff\xd8\xff\xfe\xff\xff" + bytes(10),
    ],
    ids=range(10),
)  # fmt: skip
@pytest.mark.parametrize("options", [PictureOptions(), PictureOptions(scaled=True, upright=True)])
def test_a_hostile_jpeg_is_a_bad_sample(data: bytes, options: PictureOptions) -> None:
    with pytest.raises(BadSample) as caught:
        Pictures((8, 8, 3), options).read(data, 4, "f.jpg")
    assert caught.value.row == 4 and caught.value.place == "f.jpg" and 0 < len(caught.value.why) < 300
    assert "BytesIO" not in caught.value.why


def test_a_hostile_size_allocates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The header alone decides: neither decoder is called."""
    decoder = Pictures((8, 8, 3), PictureOptions(scaled=True))
    monkeypatch.setattr(decoder, "_pixels", lambda *args: pytest.fail("decoded"))
    with pytest.raises(BadSample, match="pixels, more than"):
        decoder.read(header(20000, 20000), 0, "")


def test_hostile_exif_is_a_bad_sample_or_no_turn() -> None:
    exif = b"Exif\x00\x00" + struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, 0x0112, 3, 1, 6, 0, 0)
    good = jpeg(smooth(16, 16), exif=exif)
    at = good.index(b"MM\x00*")
    decoder = Pictures((16, 16, 3), PictureOptions(upright=True))
    rng = np.random.default_rng(0)
    for _ in range(300):
        data = bytearray(good)
        data[at + rng.integers(22)] = rng.integers(256)
        try:
            assert decoder.read(bytes(data), 0, "").shape == (16, 16, 3)
        except BadSample:
            continue


def test_the_options_in_the_file(tmp_path: Any, refused: Any) -> None:
    from dslc.runtime.config.load import load_config

    def load(text: str) -> Any:
        (tmp_path / "dslc.yaml").write_text(f"model: m.nn\ndata: {{images: {text}}}\n")
        return load_config(tmp_path / "dslc.yaml").data.images

    assert load("{scaled: true}") == PictureOptions(scaled=True)
    assert load("{upright: true, scaled: false}") == PictureOptions(upright=True)
    assert load("{}") == PictureOptions()
    wrong = (("{mask: true}", "unknown key `mask`"), ("{scaled: 1}", "is true or false"), ("fast", "is a mapping"))
    for text, says in wrong:
        assert says in refused(lambda text=text: load(text)).message


def test_the_decoder_is_named() -> None:
    assert "pillow" in pictures.decoder() and "simplejpeg" in pictures.decoder() and "jpeg" in pictures.decoder()


def test_only_data_with_pictures_has_the_note_of_a_decoder(folder: Path, opened: Any) -> None:
    image = (f"{folder}/photos/:image", "u8", ("B", 12, 16, 3))
    assert opened(image=image).decoder_note() == {pictures.NOTE: pictures.decoder()}
    np.save(folder / "x.npy", np.zeros((8, 3), "f4"))
    assert opened(x=(f"{folder}/x.npy", "f32", ("B", 3))).decoder_note() == {}


def test_an_empty_file_is_called_so() -> None:
    assert picture_headers.fault(b"", 0) == "the file is empty"
    assert picture_headers.fault(b"GIF89a", 6) == pictures.no_picture(b"GIF89a")
