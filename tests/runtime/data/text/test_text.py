"""A text as windows of bytes and of tokens, and texts as padded rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables.texts import TEXT

from dslc.base.errors import DslcError
from dslc.runtime.data.store import Store

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "c.txt").write_text(TEXT)
    return tmp_path / "c.txt"


def ids_of(tokenizer: Path, text: str) -> list[int]:
    return list(tokenizers.Tokenizer.from_file(str(tokenizer)).encode(text, add_special_tokens=False).ids)


def test_bytes_are_windows_of_the_text_itself(corpus: Path, opened: Any) -> None:
    data = opened(x=(f"{corpus}:bytes", "i32", ("B", 8), (0, 256)), y=(f"{corpus}:bytes+1", "i32", ("B", 8), (0, 256)))
    batch = data.take(np.arange(data.rows))
    assert bytes(batch["x"].astype("u1").reshape(-1)) == TEXT.encode()[: 8 * data.rows]
    assert bytes(batch["y"].astype("u1").reshape(-1)) == TEXT.encode()[1 : 8 * data.rows + 1]


def test_tokens_are_those_of_the_library(corpus: Path, tokenizer: Path, cache: Path, opened: Any) -> None:
    data = opened(
        tokenizer=tokenizer, x=(f"{corpus}:tokens", "i32", ("B", 8)), y=(f"{corpus}:tokens/4+1", "i32", ("B", 8))
    )
    expected = ids_of(tokenizer, TEXT)
    assert len(expected) > 500
    whole = data.columns["x"].rows.read(np.arange(data.columns["x"].rows.count)).reshape(-1)
    assert whole.tolist() == expected[: len(whole)] and len(expected) - len(whole) < 8
    assert data.columns["y"].rows.read(np.array([3])).tolist() == [expected[13:21]]


def test_a_text_is_encoded_once(corpus: Path, tokenizer: Path, cache: Path, opened: Any) -> None:
    notes: list[str] = []

    def open_() -> Any:
        notes.clear()
        return opened(tokenizer=tokenizer, notes=notes, x=(f"{corpus}:tokens", "i32", ("B", 8)))

    first = open_().take(np.arange(8))["x"]
    assert [note for note in notes if "tokens" in note] and len(os.listdir(cache)) == 1
    again = open_().take(np.arange(8))["x"]
    assert not notes and again.tobytes() == first.tobytes()
    corpus.write_text("x" + TEXT)  # another text, another file
    open_()
    assert notes and len(os.listdir(cache)) == 2
    text = json.loads(tokenizer.read_text())
    text["model"]["merges"] = text["model"]["merges"][:-10]
    tokenizer.write_text(json.dumps(text))  # another tokenizer, another file
    open_()
    assert notes and len(os.listdir(cache)) == 3


def test_large_texts_are_cut_at_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dslc.runtime.data.source import Source
    from dslc.runtime.data.text import corpus

    monkeypatch.setattr(corpus, "_PIECE", 64)
    texts = [TEXT, "ä" * 300, "word " * 99 + "\n", "", "\n", "a", "€uro\n" * 50 + "€" * 99, "x" * 63 + "\n" + "y" * 64]
    for text in texts:
        (tmp_path / "t.txt").write_text(text)
        with open(tmp_path / "t.txt", "rb") as file:
            found = list(corpus.pieces(file, Source(tmp_path / "t.txt", "tokens", "t.txt:tokens")))
        assert "".join(found) == text and all(0 < len(piece.encode()) <= 64 for piece in found)
        for piece, rest in zip(found, range(1, len(found))):
            tail = "".join(found[rest:])
            assert piece.endswith("\n") or "\n" not in (piece + tail)[: len(piece)], (piece, tail)


@pytest.mark.parametrize(
    ("data", "says"), [(b"ab\xffcd" * 99, "byte 2 is not UTF-8"), (b"a" * 98 + b"\xc3", "byte 98 is not UTF-8")]
)
def test_a_text_that_is_not_utf8(
    data: bytes, says: str, tmp_path: Path, tokenizer: Path, cache: Path, opened: Any, refused: Any
) -> None:
    (tmp_path / "c.txt").write_bytes(data)
    error = refused(lambda: opened(tokenizer=tokenizer, x=(f"{tmp_path}/c.txt:tokens", "i32", ("B", 4))))
    assert error.code == "R101" and says in error.message
    assert not list(cache.glob("*.bin"))


def test_rows_of_texts(tokenizer: Path) -> None:
    from dslc.runtime.data.text.tokenize import Tokenizer

    found = Tokenizer(tokenizer)
    texts = ["", "The rain", TEXT, "lone \ud800 surrogate"]
    rows, counts = found.encode(texts, 12)
    assert rows.dtype == counts.dtype == np.int32 and rows.shape == (4, 12) and found.padding == 2
    rain = ids_of(tokenizer, "The rain")
    assert rows[1].tolist() == [0, *rain, 1] + [2] * (10 - len(rain)) and counts.tolist()[:3] == [2, len(rain) + 2, 12]
    assert rows[2].tolist() == [0, *ids_of(tokenizer, TEXT)[:10], 1]
    many = [f"{i} night" for i in range(2500)]
    whole, lengths = found.encode(many, 9)
    for i in (0, 1023, 1024, 2499):
        one, length = found.encode([many[i]], 9)
        assert (whole[i] == one[0]).all() and lengths[i] == length[0]


HOSTILE = [
    b"", b"{", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"model": {"type": "Unigram", "vocab": []}}',
    b'{"version":"1.0","model":{"type":"BPE","vocab":{"a":5},"merges":["x y"]}}',
    b'{"version":"1.0","model":{"type":"WordLevel","vocab":{"a":4294967295},"unk_token":"a"}}',
]  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_no_tokenizer(data: bytes, corpus: Path, tmp_path: Path, cache: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.json").write_bytes(data)
    error = refused(lambda: opened(tokenizer=tmp_path / "t.json", x=(f"{corpus}:tokens", "i32", ("B", 4))))
    assert error.code == "R101" and "t.json" in error.place


def test_what_is_missing(corpus: Path, tokenizer: Path, opened: Any, refused: Any, monkeypatch: Any) -> None:
    wanted = (f"{corpus}:tokens", "i32", ("B", 4))
    error = refused(lambda: opened(x=wanted))
    assert error.code == "R104" and "tokenizer" in error.message and "bytes" in error.help
    monkeypatch.setenv("DSLC_CACHE_DIR", "off")
    with pytest.raises(DslcError) as caught:
        opened(tokenizer=tokenizer, x=wanted)
    assert caught.value.code == "R402" and "DSLC_CACHE_DIR" in str(caught.value.place)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DslcError) as caught:
        opened(tokenizer=tokenizer, x=wanted)
    assert caught.value.code == "R205" and "dslc[text]" in str(caught.value.help)


KILLED = """
import sys
from pathlib import Path
from dslc.runtime.data.source import Source
from dslc.runtime.data.text import corpus
from dslc.runtime.data.text.tokenize import Tokenizer
corpus._PIECE = 256
path, item = corpus.encoded(Source(Path(sys.argv[1]), "tokens", "c"), Tokenizer(Path(sys.argv[2])), lambda text: None)
print(path)
"""


def test_killed_while_encoding(corpus: Path, tokenizer: Path, cache: Path) -> None:
    def run(failpoint: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "DSLC_FAILPOINT": failpoint, "DSLC_FAILPOINT_LOG": str(cache.parent / "points")}
        command = [sys.executable, "-c", KILLED, str(corpus), str(tokenizer)]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)

    for point in ("data.encode:3", "data.write:2", "data.fsync:1", "data.rename:1"):
        killed = run(f"{point}:kill")
        assert killed.returncode == -9, killed.stderr
        assert not [name for name in os.listdir(cache) if name.endswith(".bin")]
    assert run("data.renamed:1:kill").returncode == -9
    whole = [name for name in os.listdir(cache) if name.endswith(".bin")]  # complete, because it has its name
    done = run("")
    assert done.returncode == 0 and Path(done.stdout.strip()).name == whole[0], done.stderr
    assert os.listdir(cache) == whole, "a dead writer's file was left"


def test_the_store_keeps_what_is_used(cache: Path) -> None:
    names = [f"tokens-{number:064x}.bin" for number in range(4)]
    store = Store(cache, 250)
    made = [store.make(name, lambda sink: sink.write(bytes(100))) for name in names]
    assert [path.name for path in made] == names and len(store.entries()) == 4  # all are in use by this process
    other = "import sys; from pathlib import Path; from dslc.runtime.data.store import Store; "
    other += "s = Store(Path(sys.argv[1]), 250); p = s.make('rows-' + 'a' * 64 + '.npy', lambda k: k.write(bytes(100)))"
    subprocess.run([sys.executable, "-c", other], check=False)
    subprocess.run([sys.executable, "-c", other, str(cache)], check=True)
    assert len(store.entries()) == 5  # another process removes none of ours
    from dslc.runtime.data import store as module

    for path in made[:3]:
        module._USED.pop(path).close_all()
    store.make(f"tokens-{9:064x}.bin", lambda sink: sink.write(bytes(100)))
    left = {each.path.name for each in store.entries()}
    assert names[3] in left and f"tokens-{9:064x}.bin" in left and not left & set(names[:3])
    for files in (module._USED.pop(made[3]), module._USED.pop(cache / f"tokens-{9:064x}.bin")):
        files.close_all()
    assert store.clear()[0] == 2 and not store.entries()


def test_windows_of_several_files_stay_together(tmp_path: Path, opened: Any, refused: Any) -> None:
    for number, count in enumerate((20, 21, 23)):
        np.arange(100 * number, 100 * number + count, dtype="<u2").tofile(tmp_path / f"{number}.bin")
    data = opened(x=(f"{tmp_path}/?.bin:u16", "i32", ("B", 4)), y=(f"{tmp_path}/?.bin:u16+1", "i32", ("B", 4)))
    batch = data.take(np.arange(data.rows))
    assert data.rows == 4 + 5 + 5 and np.array_equal(batch["y"], batch["x"] + 1)
    two = opened(x=(f"{tmp_path}/?.bin:u16/2", "i32", ("B", 4)), y=(f"{tmp_path}/?.bin:u16/2+3", "i32", ("B", 2)))
    batch = two.take(np.arange(two.rows))
    assert np.array_equal(batch["y"][:, 0], batch["x"][:, 3])
    error = refused(
        lambda: opened(x=(f"{tmp_path}/?.bin:u16/2", "i32", ("B", 4)), y=(f"{tmp_path}/?.bin:u16+1", "i32", ("B", 4)))
    )
    assert error.code == "R102" and "different distances" in error.message
