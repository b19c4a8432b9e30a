"""Folders of images and masks: pairs have the same names; what has no partner is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.base.errors import DataError
from dslc.runtime.data.formats.images import listed
from dslc.runtime.data.source import Source

Image = pytest.importorskip("PIL.Image")


def write(folder: Path, values: dict[str, int]) -> None:
    """Pictures of one grey."""
    for name, value in values.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), value, np.uint8)).save(folder / name)


def inputs(folder: Path, masks: str = "masks/") -> dict[str, Any]:
    return {
        "image": (f"{folder}/images/:image", "u8", ("B", 4, 4)),
        "mask": (f"{folder}/{masks}:image", "i32", ("B", 4, 4)),
    }


def rows_of(data: Any, workers: int = 0) -> list[tuple[int, int]]:
    [batch] = [
        {name: array.copy() for name, array in each.items()}
        for each in data.feed(iter([(np.arange(data.rows), 0)]), workers)
    ]
    return [(int(image[0, 0]), int(mask[0, 0])) for image, mask in zip(batch["image"], batch["mask"])]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("images", "masks"),
    [
        # The suffix sorts after `a.k`, and before it in the other folder: by order, the pairs would be wrong.
        (["a.bmp", "a.k.bmp", "b.bmp"], ["a.png", "a.k.png", "b.png"]),
        (["a.k.png", "a.bmp"], ["a.k.bmp", "a.png"]),
        (["one/a.png", "two/a.png", "two/b.bmp"], ["one/a.bmp", "two/a.bmp", "two/b.png"]),
    ],
)
def test_pairs_have_the_same_names(
    images: list[str], masks: list[str], workers: int, tmp_path: Path, opened: Any
) -> None:
    write(tmp_path / "images", {name: 10 + number for number, name in enumerate(images)})
    write(tmp_path / "masks", {name: 10 + number for number, name in enumerate(masks)})
    found = rows_of(opened(**inputs(tmp_path)), workers)
    assert len(found) == len(images) and all(image == mask for image, mask in found)


def test_the_order_of_names_would_not_do(tmp_path: Path) -> None:
    """The case above is one: the two folders sort differently."""
    write(tmp_path / "images", {"a.bmp": 1, "a.k.bmp": 2})
    write(tmp_path / "masks", {"a.png": 1, "a.k.png": 2})
    orders = [[path.stem for path in listed(Source(tmp_path / name, "image", name))[0]] for name in ("images", "masks")]
    assert orders == [["a", "a.k"], ["a.k", "a"]]


def test_folders_without_a_common_name_keep_their_order(tmp_path: Path, opened: Any) -> None:
    write(tmp_path / "images", {"1.png": 1, "2.png": 2})
    write(tmp_path / "masks", {"1_mask.png": 1, "2_mask.png": 2})
    assert rows_of(opened(**inputs(tmp_path))) == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("images", "masks", "said"),
    [
        (["a", "b", "c"], ["a", "c"], "`b` of images/:image has no partner in masks/:image"),
        (["a", "c"], ["a", "b", "c", "d"], "`b` of masks/:image has no partner in images/:image, nor have 1 others"),
        (["a", "b"], ["a", "x"], "`b` of images/:image has no partner"),
    ],
)
def test_a_file_without_a_partner(images: list[str], masks: list[str], said: str, tmp_path: Path, opened: Any) -> None:
    write(tmp_path / "images", {f"{name}.png": 1 for name in images})
    write(tmp_path / "masks", {f"{name}.png": 1 for name in masks})
    with pytest.raises(DataError) as caught:
        opened(**inputs(tmp_path))
    message = caught.value.message.replace(f"{tmp_path}/", "")
    assert caught.value.code == "R102" and said in message


def test_two_files_of_one_name_have_no_order(tmp_path: Path, opened: Any) -> None:
    write(tmp_path / "images", {"a.png": 1, "a.bmp": 2, "b.png": 3})
    write(tmp_path / "masks", {"a.png": 1, "b.bmp": 2, "b.png": 3})
    with pytest.raises(DataError, match="has no partner"):
        opened(**inputs(tmp_path))
    write(tmp_path / "masks", {"a.webp": 1})
    (tmp_path / "masks/b.bmp").unlink()
    assert len(rows_of(opened(**inputs(tmp_path)))) == 3, "equal lists of names need no order"


def test_several_folders(tmp_path: Path, opened: Any) -> None:
    for name in ("1", "2"):
        write(tmp_path / "images" / name, {"a.bmp": 1, "a.k.bmp": 2})
        write(tmp_path / f"masks{name}", {f"{name}/a.png": 1, f"{name}/a.k.png": 2})
    with pytest.raises(DataError, match="several folders come in different orders"):
        opened(**inputs(tmp_path, "masks*/"))


def test_a_folder_that_changes_is_told(tmp_path: Path) -> None:
    write(tmp_path / "images", {"a.png": 1, "b.png": 2})
    write(tmp_path / "masks", {"a.png": 1, "c.png": 2})
    with pytest.raises(DataError, match="no pairs any more"):
        listed(Source(tmp_path / "masks", "image", "masks", tmp_path / "images"))
