"""Folders of images: what is decoded, in a process of its own, and what a hostile file can do."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.base.errors import DataError
from dslc.runtime.data import picture_headers
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.formats.images import ImageRows
from dslc.runtime.data.picture_headers import faults
from dslc.runtime.data.rows import BadSample
from dslc.runtime.data.source import Source
from dslc.runtime.train.tolerance import Tolerance

Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")


def picture(path: Path, size: tuple[int, int] = (5, 6), mode: str = "RGB", seed: int = 0) -> np.ndarray:
    """A random image of width x height; its pixels [H, W, C] or [H, W]."""
    shape = (size[1], size[0], len(mode)) if mode != "L" else (size[1], size[0])
    pixels = np.random.default_rng(seed).integers(0, 256, shape).astype("u1")
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels, mode=None).save(path)
    return pixels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, six pictures of 5 x 6."""
    for number in range(6):
        picture(tmp_path / "pets" / ("cat", "dog")[number % 2] / f"{number}.png", seed=number)
    (tmp_path / "pets" / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "pets" / "README").write_text("no class")
    return tmp_path / "pets"


def pixels_of(folder: Path) -> np.ndarray:
    files = sorted(folder.glob("*/*.png"))
    return np.stack([np.asarray(Image.open(path)) for path in files])


def both(folder: Path, classes: int = 2) -> dict[str, Any]:
    return {
        "image": (f"{folder}/:image", "u8", ("B", 6, 5, 3)),
        "label": (f"{folder}/:label", "i32", ("B",), (0, classes)),
    }


def test_images_and_labels_in_the_order_of_their_paths(folder: Path, opened: Any) -> None:
    data = opened(**both(folder))
    assert data.rows == 6
    [batch] = data.feed([(np.array([5, 0, 2]), 0)], workers=0)
    assert np.array_equal(batch["image"], pixels_of(folder)[[5, 0, 2]]) and batch["label"].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("shape", "dtype"), [(("B", 3, 6, 5), "f32"), (("B", 1, 6, 5), "u8"), (("B", 6, 5), "f32"), (("B", 6, 5, 4), "u8")]
)
def test_the_layout_is_the_inputs(folder: Path, shape: Any, dtype: str, opened: Any) -> None:
    data = opened(image=(f"{folder}/:image", dtype, shape))
    found = data.take(np.arange(2))["image"]
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[next((s for s in (*shape[1:2], *shape[3:]) if s in (1, 3, 4)), 1)]
    wanted = [np.asarray(Image.open(path).convert(mode)) for path in sorted(folder.glob("*/*.png"))[:2]]
    if shape == ("B", 3, 6, 5):
        wanted = [np.moveaxis(pixels, -1, 0) for pixels in wanted]
    assert np.array_equal(found, np.stack(wanted).reshape(found.shape))
    assert found.dtype == {"f32": np.float32, "u8": np.uint8}[dtype]


def test_another_size_is_scaled_to_cover_and_cut_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "f" / "a.png"
    path.parent.mkdir()
    pixels = np.zeros((8, 24, 3), "u1")
    pixels[:, 8:16] = 200
    Image.fromarray(pixels).save(path)
    rows = ImageRows(Source(tmp_path / "f", "image", "f/:image"), (8, 8, 3))
    assert (rows.image(0) == 200).all()


def test_what_is_no_folder_of_images(tmp_path: Path, folder: Path, opened: Any, refused: Any) -> None:
    image = lambda path, shape=("B", 6, 5, 3): lambda: opened(image=(f"{path}/:image", "u8", shape))  # noqa: E731
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    picture(tmp_path / "flat" / "a.png")
    assert refused(image(tmp_path / "missing")).code == "R101"
    assert refused(image(tmp_path / "file")).code == "R101"
    assert refused(image(tmp_path / "empty")).code == "R106"
    assert "not an image" in refused(image(folder, ("B", 7, 5, 5))).message
    assert opened(image=(f"{tmp_path}/flat/:image", "u8", ("B", 6, 5, 3))).rows == 1
    error = refused(lambda: opened(label=(f"{tmp_path}/flat/:label", "i32", ("B",))))
    assert error.code == "R102" and "no class folders" in error.message
    error = refused(lambda: opened(**both(folder, classes=1)))
    assert error.code == "R103" and "more than the 1 of the model" in error.message


def png(width: int, height: int) -> bytes:
    """A PNG that declares this size and has no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def hostile(case: str, good: bytes) -> bytes:
    return {
        "empty": b"",
        "truncated": good[: len(good) // 2],
        "no image": b"GIF89a" + bytes(100),
        "a script": b"#!/bin/sh\ntouch pwned\n",
        "another format": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 5\n",
        "a bomb": png(2**31 - 1, 2**31 - 1),
        "a large bomb": png(9000, 9000),
        "no pixels": png(5, 6),
        "zero wide": png(0, 6),
    }[case]


CASES = [
    "empty",
    "truncated",
    "no image",
    "a script",
    "another format",
    "a bomb",
    "a large bomb",
    "no pixels",
    "zero wide",
]


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_image_is_a_bad_sample(folder: Path, case: str) -> None:
    path = folder / "cat" / "2.png"
    path.write_bytes(hostile(case, path.read_bytes()))
    rows = ImageRows(Source(folder, "image", "x/:image"), (6, 5, 3))
    with pytest.raises(BadSample) as caught:
        rows.read(np.array([0, 1]))
    assert caught.value.row == 1 and caught.value.place == str(path) and 0 < len(caught.value.why) < 300
    assert " at 0x" not in caught.value.why, "an object of ours"
    assert rows.read(np.array([0, 2, 3])).shape == (3, 6, 5, 3)


def test_a_flipped_byte_is_an_image_or_a_bad_sample(folder: Path, fuzz_count: Any, fuzz_seed: int) -> None:
    rng = np.random.default_rng(fuzz_seed)
    path = folder / "cat" / "2.png"
    good = path.read_bytes()
    rows = ImageRows(Source(folder, "image", "x/:image"), (6, 5, 3))
    outcomes = set()
    for _ in range(fuzz_count(3000)):
        data = bytearray(good)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        path.write_bytes(bytes(data))
        try:
            outcomes.add(rows.image(1).shape)
        except BadSample as bad:
            outcomes.add(type(bad))
            assert " at 0x" not in bad.why
    assert BadSample in outcomes


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_bad_images_are_an_error_or_skipped_up_to_a_number(folder: Path, workers: int, opened: Any) -> None:
    for name in ("cat/2.png", "dog/5.png"):
        (folder / name).write_bytes(b"spam")
    tasks = [(np.array([0, 1, 2]), 0), (np.array([3, 4, 5]), 0), (np.array([1, 5, 0]), 1)]
    with pytest.raises(DataError) as caught:
        list(opened(**both(folder)).feed(iter(tasks), workers))
    assert caught.value.code == "R101" and caught.value.place == str(folder / "cat" / "2.png")
    assert "on_bad: skip" in (caught.value.help or "")
    notes: list[str] = []
    data = opened(**both(folder), skip=2, notes=notes)
    found = [{name: array.copy() for name, array in batch.items()} for batch in data.feed(iter(tasks), workers)]
    pixels = pixels_of_good(folder)
    for batch, rows in zip(found, ([0, 0, 2], [3, 4, 3], [0, 0, 0])):
        assert np.array_equal(batch["image"], np.stack([pixels[row] for row in rows]))
        assert batch["label"].tolist() == [row // 3 for row in rows]
    assert sum("is skipped" in note for note in notes) == 2, "each bad image is told once"


def pixels_of_good(folder: Path) -> dict[int, np.ndarray]:
    return {
        number: np.asarray(Image.open(path))
        for number, path in enumerate(sorted(folder.glob("*/*.png")))
        if path.read_bytes() != b"spam"
    }


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_batch_of_bad_images_becomes_the_good_row_that_follows(folder: Path, workers: int, opened: Any) -> None:
    for name in ("cat/2.png", "cat/4.png", "dog/5.png"):
        (folder / name).write_bytes(b"spam")
    tasks = [(np.array([1, 2]), 0), (np.array([5]), 0), (np.array([2]), 1)]
    pixels = pixels_of_good(folder)
    data = opened(**both(folder), skip=3)
    for batch, rows in zip(data.feed(iter(tasks), workers), ([3, 3], [0], [3]), strict=True):
        assert np.array_equal(batch["image"], np.stack([pixels[row] for row in rows]))
        assert batch["label"].tolist() == [row // 3 for row in rows]
    held = replace(opened(**both(folder), skip=3), index=np.array([0, 2, 4]))
    assert np.array_equal(held.take(np.array([2]))["image"], pixels[4][None]), "a row of the dataset"


def test_a_dataset_without_a_good_image(folder: Path, opened: Any, refused: Any) -> None:
    for path in folder.glob("*/*.png"):
        path.write_bytes(b"spam")
    data = opened(**both(folder), skip=100)
    assert refused(lambda: list(data.feed([(np.array([0, 1]), 0)], 0))).code == "R106"


@pytest.mark.parametrize(("section", "skips"), [("data.train", True), ("predict", False)])
def test_the_help_for_a_bad_sample(section: str, skips: bool, refused: Any) -> None:
    error = refused(lambda: Tolerance(0, print).note(BadSample(3, "x.png", "it is damaged"), section))
    assert ("data.on_bad: skip" in str(error.help)) is skips, "predictions have no stand-in"


def test_without_pillow_the_error_says_what_to_install(
    folder: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from dslc.base.errors import EnvironmentFault

    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(EnvironmentFault) as caught:
        opened(**both(folder))
    assert caught.value.code == "R205" and "dslc[images]" in (caught.value.help or "")


def test_evaluation_numbers_its_classes_as_the_training_did(tmp_path: Path, opened: Any, refused: Any) -> None:
    """Folders with other classes would give other indices, which is silent nonsense."""
    for path in ("train/cat", "train/dog", "train/eel", "eval/dog", "eval/eel", "more/emu"):
        picture(tmp_path / path / "a.png")
    label = {"label": (f"{tmp_path}/train/:label", "i32", ("B",), (0, 3))}
    trained = opened(**label)
    assert trained.fitted.class_names("label") == ("cat", "dog", "eel")
    given = {"label": (f"{tmp_path}/eval/:label", "i32", ("B",), (0, 3))}
    notes: list[str] = []
    assert opened(fitted=trained.fitted, notes=notes, **given).take(np.arange(2))["label"].tolist() == [1, 2]
    assert not notes
    opened(fitted=Fitted(), notes=notes, **given)
    assert any("the weights name no classes" in note for note in notes)
    other = {"label": (f"{tmp_path}/more/:label", "i32", ("B",), (0, 3))}
    error = refused(lambda: opened(fitted=trained.fitted, **other))
    assert error.code == "R103" and "`emu` is none of the 3 classes of the training" in error.message
    # Several folders have the classes of all of them.
    both = opened(label=(f"{tmp_path}/[em]*/:label", "i32", ("B",), (0, 3)))
    assert both.fitted.class_names("label") == ("dog", "eel", "emu")
    assert both.take(np.arange(3))["label"].tolist() == [0, 1, 2]


def test_a_line_about_files_that_are_not_read(folder: Path, opened: Any) -> None:
    (folder / "ape").mkdir()
    (folder / "dog" / ".DS_Store").write_text("hidden")
    notes: list[str] = []
    opened(**both(folder, classes=3), notes=notes)
    assert [note.partition(": ")[2] for note in notes] == [
        f"{folder}/:image: 2 files are not read, such as dog/notes.txt; "
        "read are .png, .jpg, .jpeg, .bmp, .webp in a class folder",
        f"{folder}/:image: the class folder `ape` has no image",
    ]
    for name in ("dog/notes.txt", "README"):
        (folder / name).unlink()
    (folder / "ape").rmdir()
    notes.clear()
    opened(**both(folder), notes=notes)
    assert notes == []


def test_hidden_files_and_folders_of_macos_are_no_pictures_and_no_classes(folder: Path, opened: Any) -> None:
    pixels = pixels_of(folder)
    (folder / "__MACOSX").mkdir()
    for hidden in ("__MACOSX/._1.png", "cat/._1.png", ".cache.png"):
        (folder / hidden).write_bytes(b"\0\5\x16\7Mac OS X")
    data = opened(**both(folder))
    [batch] = data.feed([(np.arange(data.rows), 0)], workers=0)
    assert np.array_equal(batch["image"], pixels) and batch["label"].tolist() == [0, 0, 0, 1, 1, 1]


def test_a_picture_that_is_another_kind_of_file_is_told_which() -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\n"
    for begin in (pointer, pointer[: picture_headers.HEAD]):  # of the file, and as far as the first look reads
        assert picture_headers.fault(begin, 130) == "it is a pointer of Git LFS, not the data; fetch it: git lfs pull"
    known = {"a PDF": b"%PDF-1.7", "a GIF": b"GIF89a", "a TIFF": b"II*\0", "HEIC": b"\0\0\0\x18ftypheic"}
    for what, begin in known.items():
        why = str(picture_headers.fault(begin + bytes(20), 30))
        assert why.startswith(f"it is {what}") and "; images are in the formats PNG, JPEG" in why, why


BROKEN = {
    "empty": b"", "a web page": b"<!DOCTYPE html>", "text": b"no picture", "a GIF": b"GIF89a" + bytes(40),
    "another RIFF": b"RIFF\x24\0\0\0WAVEfmt ", "zeros": bytes(100), "half a mark": b"\x89PNG\r\n",
    "too many pixels": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 10_000, 10_000) + bytes(20),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_picture_is_met_before_the_first_step(folder: Path, case: str, opened: Any, refused: Any) -> None:
    (folder / "cat" / "2.png").write_bytes(BROKEN[case])
    error = refused(lambda: opened(**both(folder)))
    assert error.code == "R101" and error.place == str(folder / "cat" / "2.png")
    data = opened(**both(folder), skip=1)
    assert data.rows == 6 and data.tolerance.rows == {1}, "it counts, and stays a row"
    with pytest.raises(BadSample) as met:  # the decoder refuses it in the same words
        ImageRows(Source(folder, "x", "image"), (6, 5, 3)).image(1)
    if case != "too many pixels":
        assert f"cannot be read: {met.value.why}" in error.message
    else:
        assert "10000 x 10000 pixels" in error.message


@pytest.mark.parametrize("end", ["png", "jpg", "bmp", "webp"])
def test_a_picture_that_is_cut_off_is_met_before_the_first_step(
    tmp_path: Path, end: str, opened: Any, refused: Any
) -> None:
    for number, kind in enumerate(("cat", "dog")):
        picture(tmp_path / "pets" / kind / f"{number}.{end}", (40, 40), seed=number)
    cut = tmp_path / "pets" / "dog" / f"1.{end}"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    error = refused(lambda: opened(**both(tmp_path / "pets")))
    assert error.code == "R101" and error.place == str(cut)
    assert opened(**both(tmp_path / "pets"), skip=1).tolerance.rows == {1}


@pytest.mark.parametrize(("end", "more"), [("jpg", b"of a camera"), ("png", b"more"), ("png", None)])
def test_a_doubtful_picture_that_decodes_is_a_picture(
    tmp_path: Path, end: str, more: bytes | None, opened: Any
) -> None:
    """Bytes after the end, or no mark of the end (None), as the decoder takes them."""
    for number, kind in enumerate(("cat", "dog")):
        picture(tmp_path / "pets" / kind / f"{number}.{end}", seed=number)
    odd = tmp_path / "pets" / "dog" / f"1.{end}"
    whole = odd.read_bytes()
    odd.write_bytes(whole + more if more else whole[:-12])
    assert faults([odd], print, "x") == {0: None}
    assert opened(**both(tmp_path / "pets")).tolerance.rows == set()


def test_first_bytes_refuse_nothing_that_decodes(tmp_path: Path) -> None:
    for name in ("a.png", "a.jpg", "a.bmp", "a.webp"):
        picture(tmp_path / name)
    files = sorted(tmp_path.glob("a.*"))
    assert len(files) == 4 and faults(files, print, "x") == {}


def test_many_pictures_are_looked_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(picture_headers, "_FEW", 3)
    monkeypatch.setattr(picture_headers, "_AT_ONCE", 2)
    monkeypatch.setattr(picture_headers, "_EVERY", 0.0)
    looked: list[Path] = []
    look_at = picture_headers._look_at
    monkeypatch.setattr(picture_headers, "_look_at", lambda path: looked.append(path) or look_at(path))
    files = sorted(folder.glob("*/*.png"))
    lines: list[str] = []
    assert faults(files, lines.append, "data.train.image") == {} and sorted(looked) == files
    assert any("looked at 2 of 6 pictures" in line for line in lines)
    assert faults(files, lines.append, "x") == {} and len(looked) == 6, "its sizes and times are known"
    files[3].write_bytes(b"")
    for count in (12, 18):  # a fault is not stored
        assert list(faults(files, lines.append, "x")) == [3] and len(looked) == count


def test_a_folder_of_one_class_is_refused(tmp_path: Path, opened: Any, refused: Any) -> None:
    picture(tmp_path / "pets" / "train" / "0.png")
    error = refused(lambda: opened(**both(tmp_path / "pets")))
    assert error.code == "R102" and "1 of the 2 classes of the model: `train`" in error.message
    assert str(tmp_path / "pets") in str(error.place) and "pets/train/" in str(error.help)
    assert opened(**both(tmp_path / "pets", classes=1)).rows == 1
    assert opened(**both(tmp_path / "pets"), training=False).rows == 1


def test_a_folder_of_too_few_classes_is_told(folder: Path, opened: Any) -> None:
    notes: list[str] = []
    opened(**both(folder, classes=3), notes=notes)
    assert any("2 of the 3 classes of the model: `cat`, `dog`" in line for line in notes)
