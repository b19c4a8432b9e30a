"""A refusal takes at most 2 s and 512 MiB, and says what is wrong: every reader of a file, every hostile file.

Each is measured in a process of its own: its processor time and the most memory that it had.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hostile import hostile_files as hostile
from hostile.hostile_tars import tars
from hostile.hostile_texts import GOOD_TOKENIZER, texts, tokenizers
from hostile.invocations import ran
from places import ROOT

from dslc.base.errors import exit_code

pytestmark = pytest.mark.slow

SOAK: Final = os.environ.get("DSLC_SOAK") == "1"
SECONDS: Final = 2.0
BYTES: Final = 512 << 20
_SOURCE: Final = """nn 1
dim B in 1..8 = 2
model Net(x: [B, 2]) -> [B, 3] { return x |> linear(3) as fc }
train Net(y: i32[B]) { loss = cross_entropy(output, y); optimizer = sgd(lr=0.1) }
"""
_CONFIG: Final = "model: net.nn\nbuild: {providers: reference}\ndata:\n  train: {x: '%s', y: good.npz:y}\n"
#: On the CPU: a GPU's driver takes time and memory of its own.
_PREDICT: Final = ("predict", "-o", "out.npy", "--device", "cpu")
#: By the kind of file: its name, and the commands that read it.
READERS: Final[dict[str, tuple[str, tuple[tuple[str, ...], ...]]]] = {
    "weights": (
        "h.safetensors",
        (
            ("weights", "list", "h.safetensors"),
            ("weights", "convert", "h.safetensors", "out.safetensors", "--map", "a.b=c"),
            (*_PREDICT, "good.npz:x", "--artifact", "net.dslc", "--weights", "h.safetensors"),
        ),
    ),
    "arrays": ("h.npz", ((*_PREDICT, "h.npz:x", "--artifact", "net.dslc"), ("train",))),
    "tables": ("h.csv", (("train",),)),
    "packed": ("h.csv.gz", (("train",), ("check", "--data"))),
    "tokens": ("h.bin", (("train",),)),
    "images": ("h-idx2-ubyte.gz", (("train",),)),
    "shards": ("h.tar", (("train",), ("check", "--data"))),
    "texts": ("h.txt", (("train",), ("check", "--data"))),
    "tokenizers": ("h.json", (("train",), ("check", "--data"))),
    "artifacts": (
        "h.dslc",
        (("info", "h.dslc"), ("verify", "h.dslc"), (*_PREDICT, "good.npz:x", "--artifact", "h.dslc")),
    ),
    "configurations": ("dslc.yaml", (("config",), ("check",))),
    "sources": ("h.nn", (("check", "h.nn"), ("fmt", "h.nn"), ("show", "h.nn"))),
    "measurements": ("h.json", (("bench", "net.dslc", "--device", "cpu", "--seconds", "0.1", "--against", "h.json"),)),
}
_INSIDE: Final = {
    "arrays": "h.npz:x",
    "tables": "h.csv:a,b",
    "packed": "h.csv.gz:a,b",
    "tokens": "h.bin:u16",
    "images": "h-idx2-ubyte.gz",
    "shards": "h.tar:npy",
    "texts": "h.txt:tokens",
    "tokenizers": "c.txt:tokens",
}
_KINDS: Final[dict[str, Callable[[], dict[str, Callable[[Path], None]]]]] = {
    "weights": hostile.weights, "arrays": hostile.arrays, "tables": hostile.tables, "packed": hostile.packed,
    "tokens": hostile.tokens,
    "images": hostile.images, "shards": tars, "texts": texts, "tokenizers": tokenizers,
    "configurations": hostile.configurations, "sources": hostile.sources,
    "measurements": hostile.measurements,
}  # fmt: skip
#: Files that a reader takes: no configuration is as good as any. `info` looks at no plan of a CPU.
_TAKEN: Final = {("configurations", "nothing"), ("sources", "nothing"), ("sources", "a folder")}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dslc.compiler.check.model import check_file
    from dslc.compiler.options import Options
    from dslc.compiler.pipeline import build

    folder = tmp_path_factory.mktemp("base")
    (folder / "net.nn").write_text(_SOURCE)
    (folder / "net.dslc").write_bytes(build(check_file(folder / "net.nn"), Options(provider="reference")).artifact)
    np.savez(folder / "good.npz", x=np.zeros((4, 2), np.float32), y=np.zeros(4, np.int32))
    (folder / "c.txt").write_text("a b " * 99)
    (folder / "good.json").write_text(GOOD_TOKENIZER)
    return folder


def cases(kind: str, base: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    yield from hostile.ANYWHERE.items()
    yield from (hostile.artifacts(base / "net.dslc") if kind == "artifacts" else _KINDS[kind]()).items()


@pytest.mark.parametrize("kind", READERS)
def test_a_refusal_is_quick_small_and_said(
    kind: str, base: Path, tmp_path: Path, allowed: Callable[[float, float], bool], fuzz_seed: int
) -> None:
    """Every file by one of the commands that read its kind, which the seed takes; by all with DSLC_SOAK=1."""
    rng = random.Random(f"{kind} {fuzz_seed}")
    name, commands = READERS[kind]
    refused, slowest, largest = 0, (0.0, ""), (0, "")
    for case, make in cases(kind, base):
        folder = tmp_path / str(refused)
        shutil.copytree(base, folder)
        (folder / "dslc.yaml").write_text(_CONFIG % _INSIDE.get(kind, "good.npz:x"))
        if kind in ("texts", "tokenizers"):
            with (folder / "dslc.yaml").open("a") as file:
                file.write(f"  tokenizer: {'h' if kind == 'tokenizers' else 'good'}.json\n")
        if kind == "configurations":
            (folder / "dslc.yaml").unlink()
        make(folder / name)
        for args in commands if SOAK else [rng.choice(commands)]:
            ended = ran([*args, "--json"], folder, measured=True)
            said = f"{kind}, {case}, {' '.join(args)}: {ended}"[:2000]
            assert allowed(ended.seconds, SECONDS), said
            assert ended.peak <= BYTES, said
            slowest, largest = max(slowest, (ended.seconds, case)), max(largest, (ended.peak, case))
            if ended.code == 0 and ((kind, case) in _TAKEN or (args[0] == "info" and "plan" in case)):
                continue
            report = json.loads(ended.out)
            assert "errors" in report, said
            [error, *_] = report["errors"]
            assert report["exit_code"] == ended.code == exit_code(error["code"]) != 70, said
            # The next step, or of a source what is written at the place in it.
            assert error["message"] and error["place"] and (error["help"] or error.get("label")), said
            assert len(ended.out) < 1 << 16 and b"Traceback" not in ended.err, said
        shutil.rmtree(folder)
        refused += 1
    print(f"{kind}: {refused} files; at most {slowest[0]:.2f} s ({slowest[1]}), {largest[0] >> 20} MiB ({largest[1]})")


def test_what_keeps_to_the_limits_is_read(base: Path, tmp_path: Path, allowed: Callable[[float, float], bool]) -> None:
    """As many tensors as may be, and a file of 3 GiB whose head is sound: neither is read as a whole."""
    count = hostile.tensorhead.MOST_TENSORS
    (tmp_path / "most.safetensors").write_bytes(hostile.tensors(hostile._entries(count), bytes(count)))
    header = hostile._one("w", [3 << 28], 3 << 30)
    hostile.sparse(hostile.tensors(header), len(header) + 8 + (3 << 30))(tmp_path / "large.safetensors")
    for name, tensors in (("most", count), ("large", 1)):
        ended = ran(["weights", "list", f"{name}.safetensors", "--json"], tmp_path, measured=True)
        assert ended.code == 0 and len(json.loads(ended.out)["tensors"]) == tensors
        assert allowed(ended.seconds, 2 * SECONDS) and ended.peak <= BYTES, ended.seconds
    # Weights of another model are refused by their shapes.
    shutil.copy(base / "net.dslc", tmp_path)
    shutil.copy(base / "good.npz", tmp_path)
    args = (*_PREDICT, "good.npz:x", "--artifact", "net.dslc", "--weights", "large.safetensors")
    ended = ran(args, tmp_path, measured=True)
    assert ended.code == 5 and b"error[R305]" in ended.err
    assert allowed(ended.seconds, SECONDS) and 0 < ended.peak <= BYTES


def test_every_limit_is_written_down() -> None:
    """The numbers of the pages are those of the code."""
    from dslc.runtime.artifact import container, plan_schema
    from dslc.runtime.weights import safetensors_header as tensorhead

    root = ROOT / "docs"
    artifact, data = ((root / name).read_text("utf-8") for name in ("artifact.md", "data.md"))
    plans = f"at most {plan_schema.MAX_BYTES >> 20} MiB and {plan_schema.MAX_VALUES:,} values in all"
    assert plans in artifact and f"at most {container.MAX_FILE >> 20} MiB" in artifact
    assert f"at most {container.MAX_HEADER >> 20} MiB" in artifact
    for limit in (
        f"{tensorhead.MOST_TENSORS:,} tensors", f"{tensorhead.LONGEST_HEADER >> 20} MiB",
        f"{tensorhead.MOST_AXES} axes", f"{tensorhead.LONGEST_NAME:,} characters",
    ):  # fmt: skip
        assert limit in data, limit
    from dslc.runtime.data.columns import typed
    from dslc.runtime.data.formats import arrays
    from dslc.runtime.data.tables import arrow_process, arrow_table, lines, table

    for limit in (
        f"{arrays._MAX_MEMBERS:,} members", f"{arrays._MAX_DIRECTORY >> 20} MiB", f"{table.MOST_COLUMNS:,} columns",
        f"{lines.MOST_BAD:,} bad lines", f"{lines.LONGEST_LINE >> 20} MiB",
        f"{typed.LONGEST_TEXT} characters per category",
        f"a directory of {arrow_table._LONGEST_FOOTER >> 20} MiB", f"{arrow_process._MOST_COLUMNS:,} columns",
        f"{arrow_process._MOST_GROUPS:,} row groups",
    ):  # fmt: skip
        assert limit in data, limit
    assert re.search(r"2 s and 512 MiB", (root / "robust.md").read_text("utf-8"))
