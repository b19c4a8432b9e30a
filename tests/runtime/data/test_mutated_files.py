"""Files of every kind changed at random with their structure in mind: each is read, or refused with a code, within
limits of time and memory. Decoders that crash end their own process only."""

from __future__ import annotations

import io
import json
import random
import resource
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile.mutations import MUTATIONS, mutated
from processor_time import spent
from tables.written import WRITERS, random_table

from dslc.base.errors import DslcError
from dslc.runtime.data.rows import BadSample
from dslc.runtime.history.folders import run_in
from dslc.runtime.weights import safetensors_file as tensorfile

SECONDS, BYTES = 2.0, 512 << 20  # that reading a file may take, as docs/robust.md says
COUNT = 600
CATEGORIES = "city: {categories: index, missing: mode}\nbuilt: {date: [year], missing: '1970-01-01'}"
SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
WORDS = {
    "version": "1.0",
    "truncation": {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0},
    "padding": {"strategy": {"Fixed": 4}, "direction": "Right", "pad_to_multiple_of": None,
                "pad_id": 3, "pad_type_id": 0, "pad_token": "[PAD]"},
    "added_tokens": [{"id": 3, "content": "[PAD]", **SPECIAL}, {"id": 4, "content": "[CLS]", **SPECIAL}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"},
                   {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Removed", "invert": False},
        {"type": "FixedLength", "length": 40}, {"type": "Digits", "individual_digits": True}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
                       "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                       "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [4], "tokens": ["[CLS]"]}}},
    "decoder": None,
    "model": {"type": "BPE", "dropout": None, "unk_token": "a", "continuing_subword_prefix": "",
              "end_of_word_suffix": "", "fuse_unk": False, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
}  # fmt: skip
RECORD = {"state": "finished", "epochs": 4, "step": 24, "metrics": {"loss": 0.5}, "times": {"started": "x"},
          "best": {"metric": "loss", "value": 0.5, "step": 4}, "seed": 3}  # fmt: skip

Read = Callable[[Path], object]


def table(kind: str, opened: Any) -> tuple[str, Callable[[Path], object], Read]:
    name = f"t.{kind}"
    columns = random_table(4, 40, 0.1) | {"area": [float(row) for row in range(40)]}

    def read(path: Path) -> None:
        data = opened(
            columns=CATEGORIES, skip=99, x=(f"{path}:area", "f64", ("B",)),
            city=(f"{path}:city", "f32", ("B",)), built=(f"{path}:built", "f32", ("B",)),
        )  # fmt: skip
        assert data.rows <= 1 << 24
        data.take(np.arange(data.rows)[:99])

    return name, lambda path: WRITERS[name](path, columns), read


def picture(kind: str, opened: Any) -> tuple[str, Callable[[Path], object], Read]:
    Image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, (24, 20, 3)).astype("u1")

    def read(path: Path) -> None:
        data = opened(image=(f"{path.parent.parent}/:image", "u8", ("B", 24, 20, 3)))
        data.take(np.arange(1))

    def write(path: Path) -> None:
        path.parent.mkdir()
        Image.fromarray(pixels).save(path)

    return f"c/p.{kind}", write, read


def shard(kind: str, opened: Any) -> tuple[str, Callable[[Path], object], Read]:
    def write(path: Path) -> None:
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
            for row in range(6):
                sink = io.BytesIO()
                np.save(sink, np.arange(3, dtype=np.float32))
                for suffix, data in (("npy", sink.getvalue()), ("cls", b"1"), ("json", b'{"a": {"b": [1, 2]}}')):
                    member = tarfile.TarInfo(f"{'é' * 60}/{row:03}.{suffix}")
                    member.size = len(data)
                    file.addfile(member, io.BytesIO(data))

    def read(path: Path) -> None:
        data = opened(
            x=(f"{path}:npy", "f32", ("B", 3)), label=(f"{path}:cls", "i32", ("B",), (0, 9)),
            more=(f"{path}:json.a.b", "f32", ("B", 2)),
        )  # fmt: skip
        data.take(np.arange(data.rows))

    return "s.tar", write, read


def arrays(kind: str, opened: Any) -> tuple[str, Callable[[Path], object], Read]:
    values = np.random.default_rng(1).standard_normal((40, 3), dtype=np.float32)

    def read(path: Path) -> None:
        data = opened(x=(f"{path}:x" if kind == "npz" else str(path), "f32", ("B", 3)))
        data.take(np.arange(data.rows)[:99])

    return (
        f"a.{kind}",
        lambda path: np.savez_compressed(path, x=values) if kind == "npz" else np.save(path, values),
        read,
    )


def tokenizer(kind: str, opened: Any) -> tuple[str, Callable[[Path], object], Read]:
    pytest.importorskip("tokenizers")
    from dslc.runtime.data.text.tokenize import Tokenizer

    def read(path: Path) -> None:
        found = Tokenizer(path)
        rows, counts = found.encode(["ab a b", "b" * 40], 5)
        assert rows.min(initial=0) >= 0 and counts.max(initial=0) <= 5
        assert all(ids.max(initial=0) < max(found.size, 1) for ids in found.stream(["a ab b"]))

    return "words.json", lambda path: path.write_text(json.dumps(WORDS)), read


def weights(kind: str, opened: Any) -> tuple[str, Callable[[Path], object], Read]:
    # As other programs write it, without our digests: then the reader looks at every field.
    places = {"a.weight": ("F32", [3, 4], 0, 48), "b": ("I32", [5], 48, 68)}
    head: dict[str, Any] = {
        name: {"dtype": d, "shape": s, "data_offsets": [a, b]} for name, (d, s, a, b) in places.items()
    }
    text = json.dumps({"__metadata__": {"note": "é"}, **head}).encode()
    whole = len(text).to_bytes(8, "little") + text + bytes(range(68))

    def read(path: Path) -> None:
        for tensor in tensorfile.read(path, verify=True).tensors.values():
            assert tensor.array().nbytes <= path.stat().st_size

    return "w.safetensors", lambda path: path.write_bytes(whole), read


def record(kind: str, opened: Any) -> tuple[str, Callable[[Path], object], Read]:
    def write(path: Path) -> None:
        path.parent.mkdir()
        path.write_text(json.dumps(RECORD))

    def read(path: Path) -> None:
        found = run_in(path.parent)
        assert isinstance(found.state, str) and isinstance(found.metrics, dict) and isinstance(found.started, str)
        assert found.best is None or len(found.best) == 3

    return "r/run.json", write, read


KINDS = {
    "parquet": table, "arrow": table, "csv": table, "jsonl": table, "tar": shard, "jpg": picture, "png": picture,
    "webp": picture, "bmp": picture, "npz": arrays, "npy": arrays, "tokenizer": tokenizer, "safetensors": weights,
    "run": record,
}  # fmt: skip


def most_memory() -> int:
    """The most bytes that this process, or one that it waited for, has had so far."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) << 10


def test_every_kind_is_changed() -> None:
    assert KINDS.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_file_is_read_or_refused(
    kind: str,
    tmp_path: Path,
    opened: Any,
    fuzz_count: Callable[..., int],
    fuzz_seed: int,
    allowed: Any,
    monkeypatch: Any,
) -> None:
    monkeypatch.setenv("DSLC_CACHE_DIR", "off")
    if kind in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    draw = random.Random(f"{kind} {fuzz_seed}")
    name, write, read = KINDS[kind](kind, opened)
    path = tmp_path / name
    write(path)
    whole = path.read_bytes()
    read(path)  # so that no case pays for what it imports
    ended, before = Counter[str](), most_memory()
    slowest = 0.0
    for number in range(fuzz_count(COUNT, 100 if kind in ("parquet", "arrow") else 20)):
        path.unlink()  # a reader may have mapped the former
        path.write_bytes(mutated(kind, whole, draw))
        begun = spent()
        try:
            read(path)
            ended["read"] += 1
        except (DslcError, BadSample) as error:
            ended[error.code if isinstance(error, DslcError) else "bad sample"] += 1
        except BaseException:
            (tmp_path / "failing").write_bytes(path.read_bytes())
            print(f"case {number}: {tmp_path / 'failing'}")
            raise
        slowest = max(slowest, spent() - begun)
        assert allowed(spent() - begun, SECONDS), f"case {number}"
    used = most_memory() - before
    print(f"{kind}: {dict(ended)}, the slowest {slowest:.2f} s, {used >> 20} MiB more")
    assert used <= BYTES
