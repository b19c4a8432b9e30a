"""How data is named, patterns of files, and splits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.runtime.data.formats.tokens import Tokens, tokens
from dslc.runtime.data.names import FORMATS, HELP, format_of, help_for, split
from dslc.runtime.data.source import Source


@pytest.mark.parametrize(
    ("text", "path", "key"),
    [
        ("d/x.npz:a", "d/x.npz", "a"),
        ("x.npy", "x.npy", None),
        ("a:b.npy", "a:b.npy", None),
        ("shard-*.npz:x", "shard-*.npz", "x"),
        ("t.csv:a,b..c", "t.csv", "a,b..c"),
        ("c.bin:u16/64+1", "c.bin", "u16/64+1"),
        ("train-images-idx3-ubyte.gz", "train-images-idx3-ubyte.gz", None),
        ("t10k-labels.idx1-ubyte", "t10k-labels.idx1-ubyte", None),
        ("x.idx", "x.idx", None),
        ("pets/train/:image", "pets/train/", "image"),
        ("pets/:label", "pets/", "label"),
    ],
)
def test_forms_of_a_source(text: str, path: str, key: str | None) -> None:
    assert split(text) == (path, key)


@pytest.mark.parametrize(
    "text",
    ["x.npz", "x.npz:", "x.csv", "x.bin", "x.bin:u8", "x.bin:u16+", "x.bin:u16/0", "x.bin:u16-1", "x.npy:a", "x.idx:a",
     "x.txt", "x.txt:a", "pets/", "pets/:images", ":a", ".npy", "", "x", "http://x/y"],
)  # fmt: skip
def test_what_names_no_data(text: str) -> None:
    with pytest.raises(ValueError):
        split(text)


def test_every_format_is_listed_in_help_and_docs_and_matches_its_own_names_alone() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/data.md").read_text("utf-8")
    for format in FORMATS:
        assert format.usage in HELP
        examples = re.findall(r"``(.+?)``", format.__doc__ or "")
        assert examples, f"{type(format).__name__} gives no example of a name"
        for example in examples:
            assert f"`{example}`" in page, f"docs/data.md does not show `{example}`"
            path, key = split(example.strip('"'))
            assert [each for each in FORMATS if each.matches(path)] == [format]
            assert format_of(Source(Path(path), key, example)) is format and (key is None) != format.keyed


def test_keys_of_tokens() -> None:
    assert tokens("u16") == Tokens("u16", None, 0) and tokens("u32/8+2") == Tokens("u32", 8, 2)


def test_several_files_are_one_after_the_other_by_name(tmp_path: Path, opened: Any, refused: Any) -> None:
    for name, start in (("b", 10), ("a", 0), ("c", 20)):
        np.savez(tmp_path / f"s-{name}.npz", x=np.arange(start, start + 4, dtype="f4"), y=np.zeros((2, 2)))
    np.save(tmp_path / "other.npy", np.zeros(4))
    notes: list[str] = []
    data = opened(x=(f"{tmp_path}/s-*.npz:x", "f32", ("B",)), notes=notes)
    assert data.rows == 12 and data.take(np.array([0, 5, 11, 3]))["x"].tolist() == [0, 11, 23, 3]
    assert "3 files" in notes[0] and "s-a.npz" in notes[0] and "s-c.npz" in notes[0]
    error = refused(lambda: opened(x=(f"{tmp_path}/t-*.npz:x", "f32", ("B",))))
    assert error.code == "R101" and "no file matches" in error.message
    np.savez(tmp_path / "s-d.npz", x=np.zeros((4, 2), "f4"))
    error = refused(lambda: opened(x=(f"{tmp_path}/s-*.npz:x", "f32", ("B",))))
    assert error.code == "R102" and "s-d.npz" in str(error.place) and "its shape is [4, 2]" in error.message
    np.savez(tmp_path / "s-d.npz", x=np.zeros(4, "f8"))
    error = refused(lambda: opened(x=(f"{tmp_path}/s-*.npz:x", "f32", ("B",))))
    assert error.code == "R102" and "s-d.npz" in str(error.place) and "float64 rows of []" in error.message


def test_a_name_with_a_bracket_is_a_file_when_there_is_one(tmp_path: Path, opened: Any) -> None:
    np.save(tmp_path / "x[1].npy", np.arange(4, dtype="f4"))
    np.save(tmp_path / "x1.npy", np.arange(9, dtype="f4"))
    assert opened(x=(f"{tmp_path}/x[1].npy", "f32", ("B",))).rows == 4


def test_a_large_array_is_neither_read_nor_converted_at_once(
    tmp_path: Path, opened: Any, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.arange(64.0).reshape(16, 4)
    values[9, 1] = np.nan
    np.save(tmp_path / "x.npy", values)
    monkeypatch.setattr("dslc.runtime.data.rows.AT_ONCE", 8)
    data = opened(x=(f"{tmp_path}/x.npy", "f32", ("B", 4)))
    assert data.columns["x"].fit is not None
    batch = data.take(np.array([3, 1]))["x"]
    assert batch.dtype == np.float32 and np.array_equal(batch, values[[3, 1]].astype("f4"))
    error = refused(lambda: data.take(np.array([3, 9])))
    assert error.code == "R103" and "record 9: the value nan" in error.message


def test_a_split_depends_on_the_seed_alone_and_covers_all(tmp_path: Path, opened: Any, refused: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(50, dtype="f4"))

    def parts(seed: int, fraction: float = 0.2) -> tuple[Any, Any]:
        return opened(x=(f"{tmp_path}/x.npy", "f32", ("B",)), seed=seed).parted(fraction)

    train, held = parts(1)
    assert (train.rows, held.rows) == (40, 10) and not held.training
    assert sorted([*train.index.tolist(), *held.index.tolist()]) == list(range(50))
    assert np.array_equal(parts(1)[1].index, held.index) and not np.array_equal(parts(2)[1].index, held.index)
    order = train.order(1, 0, shuffle=True)
    assert sorted(order.tolist()) == train.index.tolist() != order.tolist()
    for fraction in (0.001, 0.999):
        assert refused(lambda fraction=fraction: parts(1, fraction)).code == "R106"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("table.xlsx:a,b", "as a .csv or .parquet file"),
        ("table.csv.zst:a", "unpack it"),
        ("x.txt.gz:tokens", "unpack it"),
        ("Rows.JSON:text", "one object per line"),
        ("data.h5:x", "numpy.savez"),
        ("model.pkl", "numpy.savez"),
        ("t.pq:x", "call it .parquet"),
        ("a.wav", "[rows, samples]"),
        ("film.mp4", "images in folders"),
        ("rows.tfrecord:x", "tar shards"),
        ("pets/train:label", "`pets/train/:label`"),
        ("photo.jpg", "name the folder"),
        ("table.csv", "write `file.csv:columns`"),
        ("notes.doc", "file.npy"),
        ("iris.data:0..3", "call it .csv or .tsv"),
        ("README.md:bytes", "call it .txt"),
    ],
)
def test_the_help_for_a_file_that_is_not_read(text: str, says: str) -> None:
    with pytest.raises(ValueError):
        split(text)
    assert says in help_for(text)


def test_what_else_a_text_or_a_file_of_tokens_may_hold() -> None:
    with pytest.raises(ValueError, match=r"a table is called \.csv"):
        split("table.txt:a,b")
    with pytest.raises(ValueError, match=r"save other numbers by numpy\.save"):
        split("data_batch_1.bin:u8")


OTHERS = {
    "squeeze": (np.zeros((6, 1), "i4"), "numpy.squeeze(x, -1)"),
    "classes": (np.zeros((6, 3), "u1"), "numpy.argmax(x, -1)"),
    "text": (np.array(["a", "b"]), "numpy.unique"),
    "bytes": (np.array([b"a", b"b"]), "numpy.unique"),
    "days": (np.array(["2020-01-01"], "M8[D]"), "days"),
    "complex": (np.zeros(6, "c8"), "x.real"),
    "volumes": (np.zeros((6, 3, 2, 2), "i4"), "declare the input"),
}


@pytest.mark.parametrize(("values", "says"), OTHERS.values(), ids=OTHERS)
def test_the_help_for_an_array_of_another_form(
    values: np.ndarray, says: str, tmp_path: Path, opened: Any, refused: Any
) -> None:
    np.save(tmp_path / "x.npy", values)
    error = refused(lambda: opened(x=(f"{tmp_path}/x.npy", "i32", ("B",))))
    assert error.code == "R102" and says in error.help


@pytest.mark.parametrize(("shape", "says"), [((6, 3, 2), "transpose"), ((6, 6), "reshape it"), ((6, 5), "declare")])
def test_the_help_for_rows_of_another_shape(
    shape: tuple[int, ...], says: str, tmp_path: Path, opened: Any, refused: Any
) -> None:
    np.save(tmp_path / "x.npy", np.zeros(shape, "f4"))
    assert says in refused(lambda: opened(x=(f"{tmp_path}/x.npy", "f32", ("B", 2, 3)))).help


def test_a_folder_is_no_file_and_its_files_are_named(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "x.npy").mkdir()
    error = refused(lambda: opened(x=(f"{tmp_path}/x.npy", "f32", ("B",))))
    assert error.code == "R101" and "a folder" in error.message and "`x.npy/*.npy`" in error.help


@pytest.mark.parametrize("key", ["a", "b"])
def test_a_line_with_another_separator_is_told_which_there_are(
    key: str, tmp_path: Path, opened: Any, refused: Any
) -> None:
    (tmp_path / "x.csv").write_text("a|b\n1|2\n")
    error = refused(lambda: opened(x=(f"{tmp_path}/x.csv:{key}", "f32", ("B",))))
    assert error.code == "R102" and "`a|b`" in error.help and "commas, semicolons or tabs" in error.help


def test_nul_bytes_are_told(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n1,2\n\0\0\0\n")
    assert "NUL bytes" in refused(lambda: opened(x=(f"{tmp_path}/x.csv:a", "f32", ("B",)))).message
