"""Datasets of installed packages by entry point: rows by number, rows stored once, and what is refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables.packages import MODULE, install, row
from tables.texts import row_of

from dslc.base.errors import DataError, DslcError
from dslc.runtime.data.entries import loader, spool
from dslc.runtime.data.names import split
from dslc.runtime.data.text.tokenize import Tokenizer


@pytest.fixture
def package(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an installed package ``spam-data``, also for worker processes."""
    folder = install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("SPAM_LOG", str(tmp_path / "log"))
    forget()
    yield folder
    forget()


def forget() -> None:
    """As in a new process."""
    loader._function.cache_clear()
    loader.loaded.cache_clear()
    sys.modules.pop("spam_data", None)


def expected(rows: int = 50) -> list[dict[str, Any]]:
    return [row(number) for number in range(rows)]


def inputs(entry: str, shape: int = 4) -> dict[str, Any]:
    return {"x": (f"{entry}:x", "f32", ("B", shape)), "label": (f"{entry}:label", "i32", ("B",), (0, 3))}


def batches(data: Any, workers: int) -> list[dict[str, bytes]]:
    tasks = [(data.order(3, epoch, shuffle=True)[at : at + 5], epoch) for epoch in (0, 1) for at in range(0, 40, 5)]
    return [{name: array.tobytes() for name, array in batch.items()} for batch in data.feed(iter(tasks), workers)]


ENTRIES = {
    "by number": "entry:spam-table(rows=50)",
    "stored": "entry:spam-table(spool=true)",
    "iterable": "entry:spam-stream(log=SPAM_LOG)",
    "iterator": 'entry:spam-once(log="SPAM_LOG", rows = 50)',
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_every_kind_of_dataset_gives_the_same_bits(
    kind: str, package: Path, tmp_path: Path, cache: Path, opened: Any, capfd: Any
) -> None:
    notes: list[str] = []
    data = opened(notes=notes, **inputs(ENTRIES[kind]))
    rows = expected()
    batch = data.take(np.arange(data.rows))
    assert batch["x"].tobytes() == np.stack([row["x"] for row in rows]).tobytes()
    assert batch["label"].tolist() == [row["label"] for row in rows]
    np.savez(tmp_path / "d.npz", x=batch["x"], y=batch["label"])
    other = opened(x=(f"{tmp_path}/d.npz:x", "f32", ("B", 4)), label=(f"{tmp_path}/d.npz:y", "i32", ("B",), (0, 3)))
    assert batches(data, 0) == batches(data, 2) == batches(other, 0)
    assert data.fitted.classes == ({"label": ("cat", "dog", "owl")} if kind != "iterator" else {})
    assert len(list(cache.glob("*.rows"))) == (kind != "by number")
    out, err = capfd.readouterr()
    assert "a row is read" in err and out == "", "a package's output would mix with the results of a command"


def test_an_iterable_is_read_once(package: Path, tmp_path: Path, cache: Path, opened: Any) -> None:
    log, notes = tmp_path / "log", list[str]()

    def passes(entry: str, **more: Any) -> int:
        forget()
        notes.clear()
        log.write_text("")
        data = opened(notes=notes, **(more or inputs(entry)))
        data.take(np.arange(4))
        assert any("50 rows are stored" in note for note in notes) == bool(log.read_text())
        return len(log.read_text().splitlines())

    entry = "entry:spam-stream(log=SPAM_LOG)"
    assert passes(entry) == 1, "one pass for all fields"
    assert passes(entry) == 0 and not notes
    assert passes("entry:spam-stream(log=SPAM_LOG, version=2)") == 1, "other arguments"
    assert passes(entry) == 0
    assert passes(entry, x=(f"{entry}:x", "f32", ("B", 4))) == 1, "other fields"
    install(package, version="1.1")
    assert passes(entry) == 1, "another version"
    install(package, version="1.1", module=MODULE + "\n# changed\n")
    assert passes(entry) == 1, "other code"
    assert len(list(cache.glob("*.rows"))) == 5


def test_named_files_and_a_fingerprint_make_rows_stale(
    package: Path, tmp_path: Path, opened: Any, monkeypatch: Any
) -> None:
    folder, log = tmp_path / "data", tmp_path / "log"
    folder.mkdir()
    (folder / "a.txt").write_text("one")

    def passes() -> int:
        forget()
        log.write_text("")
        opened(**inputs(f"entry:spam-read(path={folder}, log=SPAM_LOG)"))
        return len(log.read_text().splitlines())

    assert [passes(), passes()] == [1, 0]
    (folder / "b.txt").write_text("two")
    assert [passes(), passes()] == [1, 0]
    os.utime(folder / "a.txt", (1, 1))
    assert [passes(), passes()] == [1, 0]
    monkeypatch.setenv("SPAM_MARK", "2")
    assert [passes(), passes()] == [1, 0]


def test_texts_and_tuples(package: Path, tokenizer: Path, opened: Any) -> None:
    data = opened(
        tokenizer=tokenizer,
        a=("entry:spam-table:tokens(text)", "i32", ("B", 6)),
        m=("entry:spam-table:tokens.mask(text)", "f32", ("B", 6)),
        r=("entry:spam-table(spool=true):bytes(text)", "u8", ("B", 6)),
    )
    batch = data.take(np.arange(50))
    texts = [row["text"] for row in expected()]
    assert batch["a"].tolist() == [row_of(tokenizer, text, 6) for text in texts]
    assert batch["m"].tolist() == [[float(id != 2) for id in row_of(tokenizer, text, 6)] for text in texts]
    assert [bytes(row) for row in batch["r"]] == [text.encode()[:6].ljust(6, b"\0") for text in texts]
    data = opened(
        f=("entry:spam-tuples:0", "f32", ("B",)),
        i=("entry:spam-tuples:1", "i64", ("B",)),
        p=("entry:spam-tuples(rows=20):2", "i32", ("B", 2)),
        v=("entry:spam-values", "u8", ("B", 1)),
    )
    batch = data.take(np.arange(20))
    assert batch["f"].tolist() == batch["i"].tolist() == batch["v"][:, 0].tolist() == list(range(20))
    assert batch["p"].tolist() == [[number, 2 * number] for number in range(20)]


@pytest.mark.parametrize("spool", ["", "(spool=true)"])
def test_texts_are_encoded_together(
    spool: str, package: Path, tokenizer: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer is asked in another process: row by row only where a row is broken."""
    asked: list[int] = []
    encode = Tokenizer.encode

    def seen(self: Tokenizer, texts: list[str], length: int) -> Any:
        asked.append(len(texts))
        return encode(self, texts, length)

    monkeypatch.setattr(Tokenizer, "encode", seen)
    wanted = ("i32", ("B", 6))
    data = opened(tokenizer=tokenizer, x=(f"entry:spam-table{spool}:tokens(text)", *wanted))
    batch = data.take(np.arange(50))
    texts = [row["text"] for row in expected()]
    assert batch["x"].tolist() == [row_of(tokenizer, text, 6) for text in texts]
    assert max(asked) >= 49 and len(asked) < 9
    data = opened(tokenizer=tokenizer, skip=99, x=(f"entry:spam-holes{spool}:tokens(text)", *wanted))
    good = np.array([number for number in range(50) if number % 7 != 5])
    assert data.columns["x"].rows.read(good).tolist() == [row_of(tokenizer, texts[number], 6) for number in good]


def test_pictures_are_those_of_a_folder(package: Path, tmp_path: Path, opened: Any) -> None:
    pytest.importorskip("PIL")
    folder = tmp_path / "images"
    folder.mkdir()
    entry = f"entry:spam-pictures(folder={folder})"
    for shape in (("B", 3, 8, 9), ("B", 8, 9)):
        data = opened(a=(f"{entry}:decoded", "u8", shape), b=(f"{entry}:coded", "u8", shape))
        batch = data.take(np.arange(6))
        files = opened(x=(f"{folder}/:image", "u8", shape)).take(np.arange(6))["x"]
        assert batch["a"].tobytes() == batch["b"].tobytes() == files.tobytes()


@pytest.mark.parametrize("entry", ["spam-holes", "spam-holes(spool=true)", "spam-holes(log=SPAM_LOG)"])
def test_broken_rows_are_bad_samples(entry: str, package: Path, tmp_path: Path, opened: Any, refused: Any) -> None:
    name = f"entry:{entry}"
    if "log" in name:  # an iterable that fails has no rows after that
        error = refused(lambda: opened(**inputs(name)))
        assert error.code == "R101" and "failed after 5 rows: RuntimeError: a broken row" in error.message
        return
    data = opened(skip=99, **inputs(name))
    batch = data.take(np.arange(data.rows)) if "spool" not in name else data.take(data.index)
    rows = expected()
    good = [number for number in range(50) if number % 7 != 5]
    kept = dict(zip((range(50) if "spool" not in name else data.index.tolist()), batch["x"]))
    assert all(kept[number].tobytes() == rows[number]["x"].tobytes() for number in good)
    assert data.tolerance.rows == {number for number in range(50) if number % 7 == 5}
    error = refused(lambda: opened(**inputs(name)).take(np.arange(50)))
    assert error.code == "R101" and "record 5 cannot be read: RuntimeError: a broken row" in error.message


REFUSED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("spam-noise:x", "R101", "row 0 differs if it is read twice", {}),
    ("spam-broken:x", "R101", "it failed: RuntimeError: it does not work today", {}),
    ("spam-nothing:x", "R101", "it is neither rows by number nor an iterable: TypeError", {}),
    ("spam-breaks:x", "R101", "failed after 13 rows: RuntimeError: the connection is lost", {}),
    ("spam-table(rows=5, lines=3):x", "R101", "it failed: TypeError", {}),
    ("spam-not_a_function:x", "R101", "it is a int, not a function", {}),
    ("spam-tabel:x", "R101", "no installed package has an entry point `spam-tabel`", {}),
    ("os:x", "R101", "no installed package has an entry point `os`", {}),
    ("spam-table(rows=0):x", "R106", "the dataset has no rows", {}),
    ("spam-table(rows=0,spool=true):x", "R106", "the dataset has no rows", {}),
    ("spam-table(rows=-1):x", "R101", "its `len` failed: ValueError", {}),
    ("spam-table:y", "R102", "a row has no field `y`; it has x, label, text", {}),
    ("spam-table(spool=true):y", "R102", "a row has no field `y`; it has x, label, text", {}),
    ("spam-table", "R102", "row 0: a value of type dict is no array of numbers", {}),
    ("spam-tuples:3", "R102", "a row has no field `3`; it has 3", {}),
    ("spam-values:x", "R102", "a row is a int, which has no field `x`", {}),
    ("spam-table:text", "R102", "name `tokens(text)` or `bytes(text)`", {}),
    ("spam-table:x", "R102", "its shape is [4], expected [5]", {"shape": ("B", 5)}),
    ("spam-table:x", "R102", "its values are float32, expected int32", {"dtype": "i32"}),
    ("spam-table(spool=true):x", "R102", "its values are float32, expected int32", {"dtype": "i32"}),
    (
        "spam-table:label",
        "R103",
        "names 3 classes, more than the 2",
        {"dtype": "i32", "shape": ("B",), "range": (0, 2)},
    ),
    (
        "spam-table(spool=true):label",
        "R103",
        "more than the 2 of the model",
        {"dtype": "i32", "shape": ("B",), "range": (0, 2)},
    ),
    ("spam-table:tokens(text)", "R104", "text needs a tokenizer", {"dtype": "i32"}),
]


@pytest.mark.parametrize(("entry", "code", "says", "more"), REFUSED, ids=[f"{e[0]}-{e[1]}" for e in REFUSED])
def test_what_is_refused(
    entry: str, code: str, says: str, more: dict[str, Any], package: Path, opened: Any, refused: Any, cache: Path
) -> None:
    wanted = (f"entry:{entry}", more.get("dtype", "f32"), more.get("shape", ("B", 4)))
    wanted += (more["range"],) if "range" in more else ()
    error = refused(lambda: opened(x=wanted).take(np.arange(30)))
    assert error.code == code and says in error.message, error
    assert not list(cache.glob("*.tmp")) and (
        code == "R103" or "expected int" in says or not list(cache.glob("*.rows"))
    )


BAD = [
    "entry:", "entry:x y:a", "entry:a(", "entry:a(b)", "entry:a(b=1", "entry:a(b=1,)", "entry:a(b=)", "entry:a(b=1)c",
    "entry:a(b=1):", "entry:a:", "entry:a(b=1,b=2):x", 'entry:a(b="x):y', "entry:a(1=2):x", "entry:a(spool=maybe):x",
    "entry:../a:x", "entry:a(b=f(x)):y", "entry:/etc/passwd:x",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_malformed_names(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        split(text)


def test_arguments(tmp_path: Path) -> None:
    from dslc.runtime.data.entries.call import call_of
    from dslc.runtime.data.source import Source

    text = 'entry:a.b-c(i=-3, f=1e-3, t=true, n=null, s=plain text, q="a, \\"b\\" (c)", p=./x/../y.csv, e="" ):f:g'
    path, key = split(text)
    call = call_of(Source(tmp_path / path, key, text))
    assert dict(call.arguments) == {
        "i": -3, "f": 1e-3, "t": True, "n": None, "s": "plain text", "q": 'a, "b" (c)', "p": f"{tmp_path}/y.csv",
        "e": "",
    }  # fmt: skip
    assert (call.name, call.field, call.paths, call.spool) == ("a.b-c", "f:g", (tmp_path / "y.csv",), False)
    assert split("entry:a") == ("entry:a", "") and split("entry:a():x") == ("entry:a", "():x")


def test_a_name_belongs_to_one_package(package: Path, opened: Any, refused: Any) -> None:
    install(package, "other_data", "", {"spam-table": "spam_data:stream", "huggingface": "spam_data:values"})
    error = refused(lambda: opened(**inputs("entry:spam-table")))
    assert "2 installed packages use this name: other-data, spam-data" in error.message
    error = refused(lambda: opened(**inputs("entry:huggingface(path=x)")))
    assert "which is one of dslc" in error.message


def test_a_module_that_no_entry_point_names_is_never_imported(package: Path, opened: Any, refused: Any) -> None:
    (package / "evil.py").write_text("raise SystemExit('imported')")
    for name in ("evil", "evil.load", "spam_data", "spam_data.table"):
        assert refused(lambda name=name: opened(**inputs(f"entry:{name}"))).code == "R101"
    assert "evil" not in sys.modules


def test_damaged_rows_are_refused(package: Path, tmp_path: Path, cache: Path, opened: Any, refused: Any) -> None:
    wanted = inputs("entry:spam-table(spool=true)")
    opened(**wanted)
    [path] = cache.glob("*.rows")
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    places = [0, 700, len(whole) - 1, len(whole) - 20, *rng.integers(0, len(whole), 40).tolist()]
    cuts = [whole[:at] for at in (0, 5, 300, len(whole) - 1)]
    for damaged in [*(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in places), *cuts, whole + b"x"]:
        path.write_bytes(damaged)
        error = refused(lambda: opened(**wanted))
        assert error.code == "R101" and "damaged" in error.message and "dslc cache clear" in error.help
    path.write_bytes(whole)
    opened(**wanted)


def test_memory_is_bounded_and_the_progress_is_told(
    package: Path, tmp_path: Path, opened: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(spool, "_SAYS", 0.0)
    monkeypatch.setattr(spool, "_PART", 64)
    notes: list[str] = []
    data = opened(notes=notes, **inputs("entry:spam-table(spool=true)"))
    assert "entry:spam-table: 25 rows of 50, 50 % are stored" in notes
    assert [r["label"] for r in expected()] == data.take(np.arange(50))["label"].tolist()


def test_without_a_cache(package: Path, opened: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", "off")
    with pytest.raises(DslcError) as caught:
        opened(**inputs("entry:spam-table(spool=true)"))
    assert caught.value.code == "R402"
    opened(**inputs("entry:spam-table"))  # rows by number need none


def test_classes_that_are_not_those_of_the_training(package: Path, opened: Any) -> None:
    data = opened(**inputs("entry:spam-table"))
    for spooled in ("", "(spool=true)"):
        again = opened(fitted=data.fitted, **inputs(f"entry:spam-table{spooled}"))
        assert again.fitted == data.fitted
        install(package, module=MODULE.replace('"cat", "dog"', '"dog", "cat"'))
        forget()
        with pytest.raises(DataError, match="those of the training cat, dog, owl") as caught:
            opened(fitted=data.fitted, **inputs(f"entry:spam-table{spooled}"))
        assert caught.value.code == "R103"
        install(package)
        forget()
