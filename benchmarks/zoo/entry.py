"""A model of the zoo: file, arguments, sizes, inputs and the map of the twin's weights. Needs numpy alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np

ROOT: Final = Path(__file__).resolve().parent.parent.parent
#: Of an input: its shape, whose names are sizes; its dtype; and below what number or size integers are drawn.
Port = tuple[tuple[str | int, ...], str, int | str]
IMAGE: Final[Port] = (("B", "S", "S", 3), "u8", 256)
CLASS: Final[dict[str, Port]] = {"label": (("B",), "i32", 1000)}
CROSS: Final = "cross_entropy(output, label)"
CROSS_TARGET: Final = "cross_entropy(output, target)"
#: Of a text in a prediction: at most so many.
TOKENS: Final = 128
#: Both leave the first step's gradient in the state; weight decay of adamw is no part of it.
OPTIMIZERS: Final = {
    "sgd": "sgd(lr=1e-6, momentum=0.9)",
    "adamw": "adamw(lr=1e-6, betas=(0.9, 0.999), weight_decay=0.01)",
    "adam": "adam(lr=1e-6, betas=(0.5, 0.999))",
}


@dataclass(frozen=True)
class Entry:
    """A model. ``file``: FILE:MODEL, from the root of the repository. ``args``: as for ``-D``; nothing is drawn at
    random. ``sizes``: those of a CPU; ``gpu``: those of a GPU that differ; ``fixed``: which sizes are arguments, not
    dims. ``gib``: about what either side needs of a GPU in bf16. ``labels``, ``loss`` and ``optimizer``: the train
    section; ``steps``: of one with several, their parameters and losses. ``map``: as for ``weights.load``. ``result``:
    which of several results is compared. ``predictor``: the model of the file that predicts, if it is another one,
    the only input that it reads, and its ``map``.
    """

    name: str
    paper: str
    file: str
    inputs: Mapping[str, Port]
    sizes: Mapping[str, int]
    gpu: Mapping[str, int]
    gib: float = 4.0
    args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Port] = field(default_factory=lambda: CLASS)
    loss: str = CROSS
    map: str | Mapping[str, Any] | None = None
    optimizer: str = "sgd"
    fixed: tuple[str, ...] = ()
    steps: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    result: str = ""
    predictor: tuple[str, str, Mapping[str, Any]] | None = None

    def arguments(self) -> dict[str, str]:
        """As for ``-D``."""
        return {**self.args, **{name: str(self.sizes[name]) for name in self.fixed}}

    def dims(self) -> dict[str, int]:
        """The sizes of dims."""
        return {name: size for name, size in self.sizes.items() if name not in self.fixed}

    def on(self, device: str) -> Entry:
        """The entry whose ``sizes`` are those of this device, ``cpu`` or ``gpu``."""
        return dataclasses.replace(self, sizes={**self.sizes, **self.gpu}) if device == "gpu" else self

    def of(self, **sizes: int) -> Entry:
        """The entry with other sizes, of those that it has; experts have room in proportion to the tokens."""
        found = {name: sizes.get(name, size) for name, size in self.sizes.items()}
        if "room" in found:
            before, now = (each["B"] * each["T"] for each in (self.sizes, found))
            found["room"] = -(-self.sizes["room"] * now // before)
        return dataclasses.replace(self, sizes=found)

    def predicting(self, batch: int) -> Entry:
        """The entry of a prediction for so many rows, of texts with at most ``TOKENS`` tokens each."""
        short = {"T": min(self.sizes["T"], TOKENS)} if "ids" in self.inputs and "T" in self.sizes else {}
        found = self.of(B=batch, **short)
        if self.predictor is None:
            return found
        model, read, map = self.predictor
        file = f"{self.file.partition(':')[0]}:{model}"
        return dataclasses.replace(found, file=file, inputs={read: self.inputs[read]}, result="", map=map)

    def drawn(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Inputs and labels, the same on both sides. Of texts with a mask, rows end one after the other."""
        rng = np.random.default_rng(crc32(self.name.encode()))
        inputs, labels = (
            {n: self._one(rng, *port) for n, port in ports.items()} for ports in (self.inputs, self.labels)
        )
        if "mask" in inputs:
            count, length = inputs["mask"].shape
            ends = length - np.arange(count) * length // (2 * count)
            inputs["mask"] = (np.arange(length) < ends[:, None]).astype(np.int32)
            if "ignore_index" in self.loss:
                labels["target"] = np.where(inputs["mask"], labels["target"], -100).astype(np.int32)
        return inputs, labels

    def _one(self, rng: np.random.Generator, shape: tuple[str | int, ...], dtype: str, below: int | str) -> np.ndarray:
        sizes = [n if isinstance(n, int) else self.sizes[n] for n in shape]
        below = self.sizes[below] if isinstance(below, str) else below
        if dtype == "f32":
            return (
                rng.integers(0, 2, sizes).astype(np.float32) if below else rng.standard_normal(sizes).astype(np.float32)
            )
        return rng.integers(0, below, sizes).astype({"u8": np.uint8, "i32": np.int32}[dtype])
