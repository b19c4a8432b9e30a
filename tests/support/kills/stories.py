"""Projects that train, publish and predict, one for each kind of data: what a kill must not spoil."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

_ROWS: Final = 24
_TRAIN: Final = """
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { accuracy = accuracy(output, label) }
  optimizer = sgd(lr=0.05, momentum=0.9)
}
"""
_DENSE: Final = f"""nn 1
dim B in 1..32 = 8
model Net(x: [B, WIDTH]) -> [B, 2] {{
  return x |> linear(6) as a |> batchnorm as norm |> relu |> dropout(0.2) |> linear(2) as head
}}
{_TRAIN}"""
_PICTURES: Final = """nn 1
dim B in 1..32 = 8
model Net(image: [B, 1, 6, 6]) -> [B, 2] {
  return image |> conv(2, 3) as c |> relu |> flatten |> linear(2) as head
}
train Net(label: i32[B], other: i32[B], share: [B]) {
  one       = cross_entropy(output, label, reduce="none")
  loss      = share * one + (1 - share) * cross_entropy(output, other, reduce="none")
  metrics   { accuracy = accuracy(output, label) }
  optimizer = sgd(lr=0.05, momentum=0.9)
}
"""
_WORDS: Final = """nn 1
dim B in 1..32 = 8
model Net(tokens: i32[B, 4]) -> [B, 4, 9] {
  return tokens |> embedding(9, 6) as table |> linear(9) as head
}
train Net(next: i32[B, 4]) {
  loss      = cross_entropy(output, next)
  metrics   { accuracy = accuracy(output, next) }
  optimizer = adam(lr=0.05)
}
"""
_CONFIG: Final = """model: net.nn
build: {target: cpu, providers: reference, sizes: {train: {B: 8}}}
data:
DATA
train: {epochs: 1, seed: 1, lr: {cosine: {warmup: 1 step, end: 0.1}}}
save: {every: 2 steps, keep: 9}
"""


def _write(folder: Path, model: str, data: list[str]) -> None:
    (folder / "net.nn").write_text(model)
    (folder / "dslc.yaml").write_text(_CONFIG.replace("DATA", "\n".join(f"  {line}" for line in data)))


def table(folder: Path) -> None:
    """Numbers with gaps, categories, dates: all fitted."""
    rng = np.random.default_rng(1)
    lines = ["area,city,built,label"]
    for row in range(_ROWS):
        area = "" if row % 5 == 3 else f"{rng.normal(50, 9):.2f}"
        lines.append(f"{area},{('Bonn', 'Ulm', 'Aue')[row % 3]},19{50 + row}-02-{1 + row:02},{('no', 'yes')[row % 2]}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    _write(folder, _DENSE.replace("WIDTH", "7"), [
        'train: {x: "t.csv:area,city,built", label: t.csv:label}',
        "split: 0.3",
        "columns:",
        "  area: {missing: median, missing_flag: true, scale: standard}",
        "  city: {categories: onehot}",
        "  built: {date: [year, day], scale: minmax}",
        "  label: {categories: index}",
    ])  # fmt: skip


def shards(folder: Path) -> None:
    """Arrays and classes in two tar files."""
    rng = np.random.default_rng(2)
    for number in range(2):
        with tarfile.open(folder / f"s-{number}.tar", "w") as file:
            for row in range(_ROWS // 2):
                sink = io.BytesIO()
                np.save(sink, rng.standard_normal(3, dtype=np.float32))
                for suffix, data in (("npy", sink.getvalue()), ("cls", str(row % 2).encode())):
                    member = tarfile.TarInfo(f"{row:03}.{suffix}")
                    member.size = len(data)
                    file.addfile(member, io.BytesIO(data))
    names = '{x: "s-{0..1}.tar:npy", label: "s-{0..1}.tar:cls"}'
    _write(folder, _DENSE.replace("WIDTH", "3"), [f"train: {names}", "split: 0.3"])


def text(folder: Path) -> None:
    """A text, encoded by a tokenizer's file into the cache."""
    words = ["a", "b", "c", "d", "e", "f", "g", "h", "?"]
    (folder / "words.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": {word: id for id, word in enumerate(words)}},
    }))  # fmt: skip
    rng = np.random.default_rng(3)
    (folder / "t.txt").write_text("\n".join(" ".join(rng.choice(words[:8], 8)) for _ in range(_ROWS)))
    _write(
        folder, _WORDS, ["tokenizer: words.json", "train: {tokens: t.txt:tokens, next: t.txt:tokens+1}", "split: 0.3"]
    )


def pictures(folder: Path) -> None:
    """A folder of images, augmented and mixed by a worker."""
    from PIL import Image

    rng = np.random.default_rng(4)
    for number in range(_ROWS):
        path = folder / "shapes" / ("dark", "light")[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(rng.normal(80 + 90 * (number % 2), 30, (6, 6)), 0, 255).astype("u1")).save(path)
    _write(folder, _PICTURES, [
        'train: {image: "shapes/:image", label: "shapes/:label"}',
        "augment: {image: [{flip: 0.5}, {rotate: 15}, {normalize: {mean: 0.5, std: 0.5, scale: 255}}]}",
        "mix: {image: image, label: label, other: other, share: share, mixup: 0.2, cutmix: 1}",
        "split: 0.3",
        "workers: 1",
    ])  # fmt: skip


#: For each: what writes its files, and what ``dslc predict`` is given.
STORIES: Final[dict[str, tuple[Callable[[Path], None], str]]] = {
    "table": (table, "t.csv"), "shards": (shards, "s-{0..1}.tar:npy"), "text": (text, "t.txt"),
    "pictures": (pictures, "shapes/"),
}  # fmt: skip


def commands(name: str) -> list[tuple[str, ...]]:
    """Those that are killed, after a first run in ``runs/old``, whose weights are not published: a training publishes
    its weights, ``dslc publish`` replaces them, and so on."""
    _, source = STORIES[name]
    start = ("--set", "start.weights=runs/new/weights.safetensors", "--set", "start.replace=[head]")
    return [
        ("train", "--set", "save.dir=runs/new", "--set", "train.epochs=2"),
        ("publish", "old"),
        ("predict", source, "-o", "y.jsonl"),
        ("predict", source, "-o", "y.npz"),
        ("train", *start, "--set", "save.dir=runs/tuned"),
    ]
