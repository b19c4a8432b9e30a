"""A column of texts as tokens, bytes and masks: the same in every format of tables, and in samples of tar shards."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables.texts import row_of
from tables.written import WRITERS, random_table

pytest.importorskip("tokenizers")
ROWS, T = 60, 12


@pytest.fixture
def table(tmp_path: Path) -> list[Any]:
    """The same random table in every format; gives the texts of its column ``city``."""
    found = random_table(3, ROWS)
    for name, write in WRITERS.items():
        if not name.endswith(("parquet", "arrow", "feather", "arrows")):
            write(tmp_path / name, found)
            continue
        pytest.importorskip("pyarrow")
        write(tmp_path / name, found)
    return ["" if text is None else text for text in found["city"]]


def inputs(file: Path) -> dict[str, Any]:
    return {
        "ids": (f"{file}:tokens(city)", "i32", ("B", T), (0, 400)),
        "mask": (f"{file}:tokens.mask(city)", "f32", ("B", T)),
        "raw": (f"{file}:bytes(city)", "i32", ("B", T), (0, 256)),
        "there": (f"{file}:bytes.mask(city)", "b1", ("B", T)),
        "price": (f"{file}:price", "f32", ("B",)),
    }


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("name", WRITERS)
def test_texts_are_equal_in_every_format(
    name: str, far: bool, table: list[str], tmp_path: Path, tokenizer: Path, opened: Any, monkeypatch: Any
) -> None:
    if far:
        for module in ("tables.text_rows", "tables.csv_table", "tables.json_table"):
            monkeypatch.setattr(f"dslc.runtime.data.{module}.AT_ONCE", 0)
    data = opened(tokenizer=tokenizer, **inputs(tmp_path / name))
    assert data.columns["ids"].rows.in_memory is not far
    batch = data.take(np.arange(ROWS))
    expected = [row_of(tokenizer, text, T) for text in table]
    assert batch["ids"].tolist() == expected
    assert batch["mask"].tolist() == [[float(id != 2) for id in row] for row in expected]
    padded = [text.encode()[:T].ljust(T, b"\0") for text in table]
    assert [bytes(row.astype("u1")) for row in batch["raw"]] == padded
    assert batch["there"].tolist() == [[at < len(text.encode()) for at in range(T)] for text in table]


def test_workers_read_the_same_texts(
    table: list[str], tmp_path: Path, tokenizer: Path, opened: Any, monkeypatch: Any
) -> None:
    def fed(workers: int) -> list[dict[str, bytes]]:
        data = opened(tokenizer=tokenizer, **inputs(tmp_path / "t.jsonl"))
        tasks = [(np.arange(at, at + 7), 0) for at in range(0, 49, 7)]
        return [{n: a.tobytes() for n, a in batch.items()} for batch in data.feed(tasks, workers)]

    near = fed(0)
    for module in ("text_rows", "json_table"):
        monkeypatch.setattr(f"dslc.runtime.data.tables.{module}.AT_ONCE", 0)
    assert fed(0) == fed(2) == near


BAD = {
    "a number": ('{"text": 3}', "'3' is not a text"),
    "a truth": ('{"text": true}', "'True' is not a text"),
    "a list": ('{"text": ["a"]}', "is a list or an object"),
    "no record": ("{", "it is not JSON"),
}


@pytest.mark.parametrize("why", BAD)
def test_a_bad_text_is_a_bad_sample(why: str, tmp_path: Path, tokenizer: Path, opened: Any, refused: Any) -> None:
    line, says = BAD[why]
    file = tmp_path / "t.jsonl"
    file.write_text(f'{{"text": "one"}}\n{{"text": null}}\n{line}\n{{"text": "four"}}\n')
    wanted = {"x": (f"{file}:tokens(text)", "i32", ("B", 5))}
    error = refused(lambda: opened(tokenizer=tokenizer, **wanted))
    assert error.code == "R101" and says in error.message and error.place.endswith("t.jsonl:3")
    notes: list[str] = []
    data = opened(tokenizer=tokenizer, skip=1, notes=notes, **wanted)
    assert data.rows == 3 and any(says in note for note in notes)


def test_a_text_has_a_limit(tmp_path: Path, opened: Any, refused: Any) -> None:
    pytest.importorskip("pyarrow")
    from tables.written import arrow_table

    file = tmp_path / "t.parquet"
    from pyarrow import parquet

    parquet.write_table(arrow_table({"area": [1.0, 2.0], "text": ["a", "ä" * (1 << 19) + "b"]}), file)
    error = refused(lambda: opened(x=(f"{file}:bytes(text)", "i32", ("B", 5))))
    assert error.code == "R101" and f"more than {1 << 20} bytes" in error.message


def test_inputs_that_hold_no_text(table: list[str], tmp_path: Path, tokenizer: Path, opened: Any, refused: Any) -> None:
    file = tmp_path / "t.csv"
    for shape in (("B",), ("B", 2, 3)):
        error = refused(lambda shape=shape: opened(tokenizer=tokenizer, x=(f"{file}:tokens(city)", "i32", shape)))
        assert error.code == "R102" and "a text fills a row of tokens" in error.message
    error = refused(lambda: opened(tokenizer=tokenizer, x=(f"{file}:tokens(cty)", "i32", ("B", T))))
    assert error.code == "R102" and error.help == "did you mean `city`?"
    error = refused(lambda: opened(x=(f"{file}:tokens(city)", "i32", ("B", T))))
    assert error.code == "R104" and "bytes(a)" in error.help
    error = refused(lambda: opened(tokenizer=tokenizer, x=(f"{file}:tokens(city)", "i32", ("B", T), (0, 100))))
    assert error.code == "R103" and "classes, 0 to 99" in error.message


def test_texts_of_tar_shards(tmp_path: Path, tokenizer: Path, opened: Any, refused: Any) -> None:
    texts = ["The rain", "", "a dark night. " * 9]
    with tarfile.open(tmp_path / "s.tar", "w") as file:
        for number, text in enumerate(texts):
            for suffix, data in ((".txt", text.encode()), (".json", json.dumps({"y": number}).encode())):
                info = tarfile.TarInfo(f"{number}{suffix}")
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
    shard = tmp_path / "s.tar"
    data = opened(
        tokenizer=tokenizer,
        a=(f"{shard}:txt", "i32", ("B", T)),
        b=(f"{shard}:tokens(txt)", "i32", ("B", T)),
        m=(f"{shard}:tokens.mask(txt)", "f32", ("B", T)),
        r=(f"{shard}:bytes(txt)", "i32", ("B", T)),
    )
    batch = data.take(np.arange(3))
    expected = [row_of(tokenizer, text, T) for text in texts]
    assert batch["a"].tolist() == batch["b"].tolist() == expected
    assert batch["m"].tolist() == [[float(id != 2) for id in row] for row in expected]
    assert [bytes(row.astype("u1")) for row in batch["r"]] == [t.encode()[:T].ljust(T, b"\0") for t in texts]
    with pytest.raises(ValueError, match=r"texts are members \.txt"):
        opened(tokenizer=tokenizer, a=(f"{shard}:tokens(npy)", "i32", ("B", T)))
    assert refused(lambda: opened(a=(f"{shard}:tokens(txt)", "i32", ("B", T)))).code == "R104"
