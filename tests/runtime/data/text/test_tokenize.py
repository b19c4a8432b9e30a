"""A tokenizer runs in a process with limits: whatever its file does, the command goes on with an error or tokens."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables.texts import TEXT, row_of

from dslc.base.errors import DataError
from dslc.runtime.data import library_process
from dslc.runtime.data.rows import BadSample
from dslc.runtime.data.text import tokenize, tokenize_client
from dslc.runtime.data.text.texts import TextRefused
from dslc.runtime.data.text.tokenize import Tokenizer

pytest.importorskip("tokenizers")
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
PARTS = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
PADDING = {"strategy": "BatchLongest", "direction": "Right", "pad_type_id": 0, "pad_token": "[PAD]"}


def write(path: Path, **fields: Any) -> Path:
    """A tokenizer file of three tokens with these fields changed."""
    sound = {"version": "1.0", "added_tokens": [], "model": BPE, **dict.fromkeys(PARTS)}
    path.write_text(json.dumps({**sound, **fields}))
    return path


@pytest.mark.parametrize(
    "fields",
    [
        {"model": {**BPE, "continuing_subword_prefix": "##"}},  # the library panics when it reads these two
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAEAAAD///8="}},
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},  # and this one when it encodes
        {"padding": {**PADDING, "pad_id": 2**32 - 1}},
        {"post_processor": {"type": "BertProcessing", "sep": ["x", 2**32 - 1], "cls": ["y", 2**32 - 1]}},
        {"post_processor": {"type": "BertProcessing", "sep": ["x", 3], "cls": ["y", 3]}},
        {"model": {**BPE, "vocab": {"a": 2**32 - 1, "b": 1, "ab": 2}}},
    ],
    ids=["prefix", "characters", "no length", "padding", "large id", "unknown id", "large vocabulary"],
)
def test_a_tokenizer_that_contradicts_itself_is_refused(tokenizer: Path, fields: dict[str, Any]) -> None:
    write(tokenizer)
    rows, counts = Tokenizer(tokenizer).encode(["ab", "b"], 3)
    assert rows.tolist() == [[2, 0, 0], [1, 0, 0]] and counts.tolist() == [1, 1]
    write(tokenizer, **fields)
    with pytest.raises(DataError) as caught:
        Tokenizer(tokenizer).encode(["ab", "b"], 3)
    assert caught.value.code == "R101"


def test_mutated_tokenizers_give_tokens_or_an_error(
    tokenizer: Path, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    rng = random.Random(fuzz_seed)
    whole = tokenizer.read_bytes()
    refused = 0
    for _ in range(fuzz_count(300)):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 3)] = rng.choice([b"", b"[", b"-", b"9" * 12, b'"', b"null", b"{}"])
        tokenizer.write_bytes(data)
        try:
            rows, counts = Tokenizer(tokenizer).encode(["The rain", "fell"], 5)
        except DataError as error:
            assert error.code == "R101"
            refused += 1
            continue
        assert rows.min() >= 0 and counts.max() <= 5
    assert refused


GROWS = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 20}
MANY = {"id": "a", "ids": [0] * 20_000, "tokens": ["a"] * 20_000}


@pytest.mark.parametrize(
    "fields",
    [
        {"normalizer": {"type": "Sequence", "normalizers": [GROWS] * 9}},
        pytest.param(
            {
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": [
                        {"Sequence": {"id": "A", "type_id": 0}},
                        *[{"SpecialToken": {"id": "a", "type_id": 0}}] * 900,
                    ],
                    "pair": [],
                    "special_tokens": {"a": MANY},
                }
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["a text that grows", "special tokens without end"],
)
def test_a_file_that_takes_all_memory_ends_only_its_process(tokenizer: Path, fields: dict[str, Any]) -> None:
    found = Tokenizer(write(tokenizer, **fields))
    for _ in range(2):  # the second call is refused at once
        with pytest.raises(DataError, match=r"killed by SIGABRT: memory allocation of .*\d+ bytes failed") as one:
            found.encode(["a", "b"], 3)
        assert one.value.code == "R101" and one.value.place == str(tokenizer)
        assert not isinstance(one.value, TextRefused), "the text is not to blame"
        assert len(found._client._started) == 1


def test_a_file_that_never_ends(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a word of n letters without a known beginning, this model compares n beginnings, each as long as that."""
    model = {"type": "WordPiece", "vocab": {"x": 0}, "unk_token": "x", "continuing_subword_prefix": "#"}
    found = Tokenizer(write(tokenizer, model={**model, "max_input_chars_per_word": 1 << 40}))
    monkeypatch.setattr(library_process, "_PATIENCE", 0.2)
    with pytest.raises(DataError, match=r"gave no answer for 0\.2 s"):
        found.encode(["b" * 1_000_000], 3)
    assert found._client.process.returncode == -9


STUBS = {
    "at its start": ("kill -SEGV $$", r"has ended, killed by SIGSEGV"),
    "with a word": ("echo the heap is broken >&2; exit 3", "has ended, exit code 3: the heap is broken"),
    "and hangs": ("exec sleep 600", r"gave no answer for 0\.2 s"),
}


@pytest.mark.parametrize("case", STUBS)
def test_a_process_that_dies(case: str, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, says = STUBS[case]
    (tmp_path / "stub").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "stub").chmod(0o755)
    monkeypatch.setattr(tokenize_client.sys, "executable", str(tmp_path / "stub"))
    monkeypatch.setattr(library_process, "_PATIENCE", 0.2 if "sleep" in script else 60.0)
    with pytest.raises(DataError, match=says) as caught:
        Tokenizer(tokenizer)
    assert caught.value.code == "R101" and caught.value.place == str(tokenizer)


@pytest.mark.slow
def test_a_dead_tokenizer_is_no_bad_row(tokenizer: Path, tmp_path: Path, opened: Any, refused: Any) -> None:
    """Rows may be skipped, but the tokenizer's end is an error about its file, in tables, shards and datasets."""
    write(tokenizer, normalizer={"type": "Sequence", "normalizers": [GROWS] * 9})
    (tmp_path / "t.csv").write_text("a,text\n" + "1,a\n" * 9)
    error = refused(
        lambda: opened(tokenizer=tokenizer, skip=9, x=(f"{tmp_path}/t.csv:tokens(text)", "i32", ("B", 4), (0, 9)))
    )
    assert error.code == "R101" and error.place == str(tokenizer) and "has ended" in error.message


def test_the_process_has_limits_and_no_secrets(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    found = Tokenizer(tokenizer)
    found.encode(["a"], 4)
    process = Path(f"/proc/{found._client.process.pid}")
    assert b"secret" not in (process / "environ").read_bytes()
    limits = {line[:26].strip(): line[26:].split()[0] for line in (process / "limits").read_text().splitlines()}
    assert 1 << 30 < int(limits["Max address space"]) < 1 << 33
    assert limits["Max core file size"] == limits["Max file size"] == "0"


def test_one_process_serves_all_calls_and_ends_with_the_tokenizer(tokenizer: Path) -> None:
    found = Tokenizer(tokenizer)
    rows, _ = found.encode(["The rain", TEXT], 9)
    streamed = list(found.stream(["The rain", TEXT]))  # the rows before were cut, these are not
    again, _ = found.encode(["The rain", TEXT], 9)
    assert again.tolist() == rows.tolist() == [row_of(tokenizer, text, 9) for text in ("The rain", TEXT)]
    assert len(streamed[1]) > 500 and streamed[0].tolist() == [id for id in rows[0].tolist() if id > 2]
    process = found._client.process
    assert len(found._client._started) == 1 and process.poll() is None
    del found
    assert process.poll() is not None


def test_threads_share_a_process(tokenizer: Path) -> None:
    found, wrong = Tokenizer(tokenizer), []

    def work(number: int) -> None:
        text = f"{number} dark night" * number
        expected = row_of(tokenizer, text, 12)
        wrong.extend(row for _ in range(20) if (row := found.encode([text], 12)[0][0].tolist()) != expected)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(found._client._started) == 1


def test_an_interrupted_answer_is_not_taken_for_the_next(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, wait = Tokenizer(tokenizer), library_process.answering

    def interrupted(children: Any, seconds: float) -> Any:
        wait(children, seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(library_process, "answering", interrupted)
    with pytest.raises(KeyboardInterrupt):
        found.encode(["The rain"], 9)
    monkeypatch.setattr(library_process, "answering", wait)
    assert found.encode(["fell"], 9)[0].tolist() == [row_of(tokenizer, "fell", 9)]


FORKED = """
import os, sys
from pathlib import Path
from dslc.runtime.data.text.tokenize import Tokenizer
found = Tokenizer(Path(sys.argv[1]))
child = os.fork()
for _ in range(20):
    print(found.encode([str(child > 0) * 9], 50)[0].tolist(), flush=True)
print("pid", found._client.process.pid, flush=True)
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_fork_has_a_process_of_its_own_and_none_outlives_its_parent(tokenizer: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(tokenizer)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    lines = ran.stdout.splitlines()
    pids = {int(line.split()[1]) for line in lines if line.startswith("pid")}
    expected = {str([row_of(tokenizer, text * 9, 50)]) for text in ("True", "False")}
    assert len(pids) == 2 and {line for line in lines if not line.startswith("pid")} == expected
    assert len(lines) == 42 and not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the requests to all tokenizers, in bytes."""
    sizes: list[int] = []
    send = tokenize_client.Client.send

    def seen(self: tokenize_client.Client, line: str) -> None:
        sizes.append(len(line.encode()))
        send(self, line)

    monkeypatch.setattr(tokenize_client.Client, "send", seen)
    return sizes


def test_texts_are_sent_in_bounded_parts(tokenizer: Path, requests: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize, "_BYTES_OF_ROWS", 1 << 12)
    monkeypatch.setattr(tokenize, "_BYTES_OF_PIECES", 1 << 13)
    found = Tokenizer(tokenizer)
    texts = ["x " * (1 << 10), "y " * (1 << 10), "z", "€ " * (1 << 9), "w" * (1 << 14), *["w"] * 1030]
    rows, counts = found.encode(texts, 60)
    assert len(requests) == 5 and max(requests) < 17 << 10
    assert rows[:5].tolist() == [row_of(tokenizer, text, 60) for text in texts[:5]]
    assert counts[:5].tolist() == [60, 60, 3, 60, 60] and (rows[5:] == rows[5]).all()
    requests.clear()
    together = [ids.tolist() for ids in found.stream(texts)]
    assert len(requests) == 4
    assert together == [ids.tolist() for text in texts for ids in found.stream([text])]
    assert list(found.stream([])) == [] and found.encode([], 6)[0].shape == (0, 6)
    assert np.array_equal(next(found.stream(["lone \ud800"])), next(found.stream(["lone ?"])))


@pytest.mark.parametrize("far", [False, True])
def test_the_texts_of_a_shard_are_one_request(
    far: bool, tokenizer: Path, tmp_path: Path, opened: Any, requests: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if far:
        monkeypatch.setattr("dslc.runtime.data.shards.rows.AT_ONCE", 0)
    texts = [f"{number} dark nights" for number in range(40)]
    texts[3] = "no text: \0"
    with tarfile.open(tmp_path / "s.tar", "w") as file:
        for number, text in enumerate(texts):
            info = tarfile.TarInfo(f"{number}.txt")
            data = b"\xff" if number == 3 else text.encode()
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    notes: list[str] = []
    data = opened(tokenizer=tokenizer, skip=9, notes=notes, x=(f"{tmp_path}/s.tar:txt", "i32", ("B", 9)))
    rows = data.columns["x"].rows
    assert len(requests) == (0 if far else 39), "a part with a bad text is read text by text"
    good = np.array([number for number in range(40) if number != 3])
    assert rows.read(good).tolist() == [row_of(tokenizer, text, 9) for text in texts if text != texts[3]]
    assert len(requests) == (1 if far else 39)
    with pytest.raises(BadSample, match="utf-8") as caught:
        rows.read(np.array([2, 3, 4]))
    assert caught.value.row == 3
