"""The help for an input without data: a line that can be written as it is, in the files that other inputs have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAD = "id,text,stars\n"


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reviews.csv").write_text(HEAD + "a,fine,1\nb,dull,0\n" * 4)


LABEL = ("reviews.csv:stars", "i32", ("B",), (0, 2))


@pytest.mark.parametrize(
    ("tensor", "text", "add"),
    [
        (("f32", ("B", 9)), "tokens", "add `mask: reviews.csv:tokens.mask(text)` to `data.train`: 1 for each part"),
        (("b1", ("B", 9)), "bytes", "add `mask: reviews.csv:bytes.mask(text)` to `data.train`: 1 for each part"),
        (("i32", ("B", 9), (0, 2)), "tokens", "add `mask: reviews.csv:COLUMN` to `data.train`"),  # ids, not a mask
        (("f32", ("B", 8)), "tokens", "add `mask: reviews.csv:COLUMN` to `data.train`"),
    ],
)
@pytest.mark.usefixtures("reviews")
def test_a_missing_mask_is_written_out(
    tensor: tuple[Any, ...], text: str, add: str, opened: Callable[..., Any], refused: Callable[..., Any]
) -> None:
    ids = (f"reviews.csv:{text}(text)", "i32", ("B", 9), (0, 400))
    error = refused(lambda: opened(ids=ids, label=LABEL, mask=(None, *tensor)))
    assert error.code == "R102" and error.help.startswith(add) and ("filling" in error.help) == ("mask(" in add)


@pytest.mark.usefixtures("reviews")
def test_an_input_without_a_table_is_an_array_of_the_file(opened: Callable[..., Any], refused: Callable) -> None:
    given = {"x": ("a.npz:x", "f32", ("B",)), "z": (None, "f32", ("B",))}
    assert refused(lambda: opened(**given)).help == "add `z: a.npz:z` to `data.train`"
    assert refused(lambda: opened(z=(None, "f32", ("B",)))).help == "add `z: FILE.npz:KEY` to `data.train`"


@pytest.mark.parametrize(
    ("key", "says", "help"),
    [
        ("text", "it gives 1 column, a row of the input has 9 values: [9]", "`tokens.mask(text)` is its mask"),
        ("id,text", "it gives 2 columns, a row of the input has 9 values: [9]", "name that many columns"),
        ("mask(text)", "there is no column `mask(text)`", "texts are read by tokens.mask(text), or bytes.mask(text)"),
        ("token(text)", "there is no column `token(text)`", "texts are read by tokens(text), or bytes(text)"),
        ("Tokens(text)", "there is no column `Tokens(text)`", "texts are read by tokens(text), or bytes(text)"),
    ],
)
@pytest.mark.parametrize("columns", ["", "stars: {categories: index}"])
@pytest.mark.usefixtures("reviews")
def test_a_wrong_key_of_a_text_is_told_the_right_one(
    key: str, says: str, help: str, columns: str, opened: Callable[..., Any], refused: Callable[..., Any]
) -> None:
    given = (f"reviews.csv:{key}", "i32", ("B", 9), (0, 400))
    error = refused(lambda: opened(columns=columns, ids=given, label=LABEL))
    assert error.code == "R102" and error.message == says and help in error.help
