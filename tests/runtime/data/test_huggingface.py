"""Datasets of Hugging Face, saved to disk or in local files, if ``datasets`` is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables.texts import row_of, write_tokenizer

from dslc.base.errors import DslcError
from dslc.runtime.data.entries import loader

ROWS = 30


@pytest.fixture(autouse=True)
def fresh() -> None:
    loader._function.cache_clear()
    loader.loaded.cache_clear()


def test_without_the_library(opened: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DslcError) as caught:
        opened(x=("entry:huggingface(path=./x, split=train):a", "f32", ("B",)))
    assert caught.value.code == "R205" and "[huggingface]" in str(caught.value.help)


@pytest.fixture
def saved(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[dict[str, Any]]]:
    """A folder of ``save_to_disk`` with two splits, and the rows of ``train``."""
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    rng = np.random.default_rng(3)
    rows = [
        {
            "x": rng.standard_normal(4).astype("f4"),
            "label": int(rng.integers(2)),
            "text": "The rain fell. " * int(rng.integers(4)),
            "image": image.fromarray(rng.integers(0, 256, (8, 6, 3), np.uint8)),
            "wide": float(rng.standard_normal()),
        }
        for _ in range(ROWS)
    ]
    features = datasets.Features(
        {
            "x": datasets.Sequence(datasets.Value("float32"), 4),
            "label": datasets.ClassLabel(names=["bad", "good"]),
            "text": datasets.Value("string"),
            "image": datasets.Image(),
            "wide": datasets.Value("float64"),
        }
    )
    columns = {name: [row[name] for row in rows] for name in features}
    train = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict({"train": train, "test": train.select(range(5))}).save_to_disk(str(tmp_path / "saved"))
    return tmp_path / "saved", rows


@pytest.mark.parametrize("spool", ["", ", spool=true"])
def test_a_saved_dataset(spool: str, saved: Any, tmp_path: Path, opened: Any) -> None:
    path, rows = saved
    entry = f"entry:huggingface(path={path}, split=train{spool})"
    tokenizer = write_tokenizer(tmp_path / "t.json")
    data = opened(
        tokenizer=tokenizer,
        x=(f"{entry}:x", "f32", ("B", 4)),
        y=(f"{entry}:label", "i32", ("B",), (0, 2)),
        t=(f"{entry}:tokens(text)", "i32", ("B", 9)),
        i=(f"{entry}:image", "u8", ("B", 8, 6, 3)),
        w=(f"{entry}:wide", "f64", ("B",)),
    )
    batch = data.take(np.arange(data.rows))
    assert data.rows == ROWS and data.fitted.classes == {"y": ("bad", "good")}
    assert batch["x"].tobytes() == np.stack([row["x"] for row in rows]).tobytes()
    assert batch["y"].tolist() == [row["label"] for row in rows]
    assert batch["t"].tolist() == [row_of(tokenizer, row["text"], 9) for row in rows]
    assert batch["i"].tobytes() == np.stack([np.asarray(row["image"]) for row in rows]).tobytes()
    assert batch["w"].tolist() == [row["wide"] for row in rows]
    fed = [
        [
            {n: a.tobytes() for n, a in found.items()}
            for found in data.feed([(np.arange(9), 0), (np.arange(9, 18), 0)], n)
        ]
        for n in (0, 2)
    ]
    assert fed[0] == fed[1]


def test_local_files_are_iterated(saved: Any, tmp_path: Path, cache: Path, opened: Any) -> None:
    rows = [{"a": number, "b": [number / 2, 1.0]} for number in range(20)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = f"entry:huggingface(path=json, data_files={tmp_path}/d.jsonl, split=train, streaming=true)"
    data = opened(a=(f"{entry}:a", "i32", ("B",)), b=(f"{entry}:b", "f64", ("B", 2)))
    batch = data.take(np.arange(20))
    assert batch["a"].tolist() == list(range(20)) and batch["b"].tolist() == [row["b"] for row in rows]
    assert len(list(cache.glob("*.rows"))) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "name one of its splits: split=train, split=test"),
        (", split=valid", "name one of its splits"),
        (", split=train, streaming=true", "takes `path` and `split` alone"),
        (", split=train, revision=x", "takes `path` and `split` alone"),
    ],
)
def test_a_wrong_call(arguments: str, says: str, saved: Any, opened: Any, refused: Any) -> None:
    path, _ = saved
    error = refused(lambda: opened(x=(f"entry:huggingface(path={path}{arguments}):x", "f32", ("B", 4))))
    assert error.code == "R101" and says in error.message


def test_a_damaged_folder_is_refused(saved: Any, opened: Any, refused: Any) -> None:
    path, _ = saved
    [arrow] = (path / "train").glob("*.arrow")
    whole = arrow.read_bytes()
    for cut in (0, 10, len(whole) // 2):
        arrow.write_bytes(whole[:cut])
        loader.loaded.cache_clear()
        entry = f"entry:huggingface(path={path}, split=train):x"
        assert refused(lambda entry=entry: opened(x=(entry, "f32", ("B", 4)))).code in ("R101", "R102", "R106")
