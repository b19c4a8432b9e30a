"""Small artifacts made by hand: plans in bytes, and numpy meanings for their ops.

``linear`` is y = x @ w.T + b, trained by plain gradient descent on the mean squared error. Rows do not depend on each
other. ``mixing`` subtracts the mean over the batch, so its rows do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.file import Blob, write_artifact
from dslc.runtime.artifact.instructions import Reference
from dslc.runtime.artifact.plan import Buffer, Constant, Plan, Port, Scalar

FEATURES, OUTPUTS, BATCH = 3, 2, 4
STEP_BLOCK = 256
Arrays = Sequence[np.ndarray]


class PlanMaker:
    """Puts buffers one after the other, at multiples of 64, and gives the plan at the end."""

    def __init__(self, scalars: Mapping[str, str] | None = None) -> None:
        self.ends = {"io": STEP_BLOCK, "work": 0}
        self.buffers: list[Buffer] = []
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []
        self.constants: list[Constant] = []
        self.instructions: list[Any] = []
        self.names: list[str] = []
        self.scalars = tuple(Scalar(name, 8 * i, dtype) for i, (name, dtype) in enumerate((scalars or {}).items()))

    def buffer(self, region: str, dtype: str, shape: Sequence[int], offset: int | None = None) -> int:
        if offset is None:
            offset = self.ends[region]
            self.ends[region] = -(-(offset + ITEMSIZE[dtype] * prod(shape)) // 64) * 64
        self.buffers.append(Buffer(region, offset, dtype, tuple(shape)))
        return len(self.buffers) - 1

    def scalar(self, name: str) -> int:
        [scalar] = [s for s in self.scalars if s.name == name]
        return self.buffer("io", scalar.dtype, (), scalar.offset)

    def input(self, name: str, dtype: str, shape: Sequence[int]) -> int:
        index = self.buffer("io", dtype, shape)
        self.inputs.append(Port(name, "data", index))
        return index

    def output(self, name: str, kind: str, dtype: str, shape: Sequence[int]) -> int:
        index = self.buffer("io", dtype, shape)
        self.outputs.append(Port(name, kind, index))
        return index

    def constant(self, dtype: str, shape: Sequence[int], blob: str) -> int:
        index = self.buffer("work", dtype, shape)
        self.constants.append(Constant(index, blob, 0))
        return index

    def op(self, op: str, inputs: Sequence[int], outputs: Sequence[int], **attrs: Any) -> None:
        self.names.append(f"{op} linear.nn:{len(self.names) + 1}")
        self.instructions.append(Reference(op, attrs, tuple(inputs), tuple(outputs), len(self.names) - 1))

    def plan(self) -> Plan:
        return Plan(
            tuple(self.buffers), tuple(self.inputs), tuple(self.outputs), self.scalars, tuple(self.constants),
            tuple(self.instructions), tuple(self.names),
        )  # fmt: skip


STATE = {
    "b": ("param", (OUTPUTS,), 0),
    "w": ("param", (OUTPUTS, FEATURES), 64),
    "w.momentum": ("optimizer", (OUTPUTS, FEATURES), 128),
}


def state(maker: PlanMaker, name: str) -> int:
    _, shape, offset = STATE[name]
    return maker.buffer("state", "f32", shape, offset)


def init_plan() -> PlanMaker:
    maker = PlanMaker({"seed": "i64"})
    for name in STATE:
        maker.op("draw", [maker.scalar("seed")], [state(maker, name)], shape=list(STATE[name][1]), name=name)
    return maker


def predict_plan(rows: int, op: str = "linear") -> PlanMaker:
    maker = PlanMaker({"row": "i64"})
    x = maker.input("x", "f32", (rows, FEATURES))
    y = maker.buffer("work", "f32", (rows, OUTPUTS))
    maker.op(op, [x, state(maker, "w"), state(maker, "b")], [y])
    # twice what comes out, with the 2 as a constant in a place that other sizes overlay
    two = maker.constant("f32", (1,), "two")
    maker.op("mul", [y, two], [maker.output("y", "result", "f32", (rows, OUTPUTS))])
    maker.op("rows", [maker.scalar("row")], [maker.output("number", "result", "i64", (rows,))], rows=rows)
    return maker


def train_plan(rows: int) -> PlanMaker:
    maker = PlanMaker({"step": "i64", "seed": "i64", "row": "i64", "lr": "f32", "beta": "f32"})
    x = maker.input("x", "f32", (rows, FEATURES))
    target = maker.input("target", "i32", (rows,))
    loss = maker.output("loss", "loss", "f32", ())
    metric = maker.output("metric.first_row", "metric", "f32", ())
    flags = maker.output("nonfinite", "flags", "u8", (2,))
    w, b, m = state(maker, "w"), state(maker, "b"), state(maker, "w.momentum")
    maker.op("row_number", [maker.scalar("row")], [metric])
    maker.op(
        "descend",
        [x, target, w, b, m, maker.scalar("lr"), maker.scalar("beta")],
        [loss, w, b, m, flags],
    )
    return maker


def eval_plan(rows: int) -> PlanMaker:
    maker = PlanMaker({"row": "i64", "beta": "f32"})
    x = maker.input("x", "f32", (rows, FEATURES))
    target = maker.input("target", "i32", (rows,))
    total = maker.output("partial.0", "partial.sum", "f64", ())
    count = maker.output("count.0", "count", "f64", ())
    high = maker.output("partial.1", "partial.max", "f64", ())
    low = maker.output("partial.2", "partial.min", "f64", ())
    maker.op("parts", [x, target, state(maker, "w"), state(maker, "b"), maker.scalar("row")], [total, count, high, low])
    return maker


def finish_plan() -> PlanMaker:
    maker = PlanMaker()
    parts = [maker.input(n, "f64", ()) for n in ("partial.0", "count.0", "partial.1", "partial.2")]
    loss = maker.output("loss", "loss", "f64", ())
    maker.op("finish", parts, [loss, maker.output("metric.high", "metric", "f64", ()),
                               maker.output("metric.low", "metric", "f64", ())])  # fmt: skip
    return maker


def draw(inputs: Arrays, attrs: Mapping[str, Any]) -> Arrays:
    generator = np.random.default_rng([int(inputs[0]) & 0xFFFFFFFF, len(attrs["name"])])
    return [generator.standard_normal(attrs["shape"]).astype(np.float32)]


def linear(inputs: Arrays, attrs: Mapping[str, Any]) -> Arrays:
    x, w, b = inputs
    # one row at a time, so that a row's bits do not depend on the size of its batch
    return [np.stack([(w * row).sum(1, dtype=np.float32) + b for row in x]).astype(np.float32)]


def mixing(inputs: Arrays, attrs: Mapping[str, Any]) -> Arrays:
    [y] = linear(inputs, attrs)
    return [y - y.mean(0, dtype=np.float32)]


def descend(inputs: Arrays, attrs: Mapping[str, Any]) -> Arrays:
    x, target, w, b, momentum, lr, beta = inputs
    [y] = linear([x, w, b], {})
    error = y - target[:, None].astype(np.float32)
    d_w = (error.T @ x / np.float32(len(x))).astype(np.float32)
    d_b = error.mean(0, dtype=np.float32)
    new_m = beta * momentum + np.where(np.isfinite(d_w), d_w, np.float32(0))
    new_b = np.where(np.isfinite(d_b), b - lr * d_b, b)
    flags = np.array([not np.isfinite(d_w).all(), not np.isfinite(d_b).all()], np.uint8)
    return [np.square(error).mean(dtype=np.float32), w - lr * new_m, new_b, new_m, flags]


def parts(inputs: Arrays, attrs: Mapping[str, Any]) -> Arrays:
    x, target, w, b, row = inputs
    [y] = linear([x, w, b], {})
    errors = np.square(y - target[:, None]).sum(1, dtype=np.float64) + int(row) * 0
    numbers = np.arange(int(row), int(row) + len(x), dtype=np.float64)
    return [errors.sum(), np.float64(len(x)), numbers.max(), numbers.min()]


MEANINGS = {
    "draw": draw,
    "linear": linear,
    "mixing": mixing,
    "mul": lambda inputs, attrs: [inputs[0] * inputs[1]],
    "rows": lambda inputs, attrs: [np.arange(attrs["rows"], dtype=np.int64) + inputs[0]],
    "row_number": lambda inputs, attrs: [inputs[0].astype(np.float32)],
    "descend": descend,
    "parts": parts,
    "finish": lambda inputs, attrs: [inputs[0] / inputs[1], inputs[2], inputs[3]],
}


def header(programs: list[dict[str, Any]], *, row_independent: bool, name: str = "line") -> dict[str, Any]:
    return {
        "required_features": ["reference"],
        "name": name,
        "model": "Line",
        "toolchain": {"dslc": "0.1.0", "python": "3.11"},
        "source_sha256": "0" * 64,
        "options": {},
        "interface": {
            "name": name,
            "model": "Line",
            "dims": [{"name": "B", "low": 1, "high": 50, "default": BATCH, "batch": True}],
            "inputs": [{"name": "x", "dtype": "f32", "shape": ["B", FEATURES]}],
            "results": [
                {"name": "y", "dtype": "f32", "shape": ["B", OUTPUTS]},
                {"name": "number", "dtype": "i64", "shape": ["B"]},
            ],
            "train": {
                "inputs": [{"name": "target", "dtype": "i32", "shape": ["B"]}],
                "scalars": [{"name": "beta", "default": 0.5}],
                "lr": 0.125,
                "metrics": ["first_row", "high", "low"],
                "ranges": {"target": [0, 10]},
            },
        },
        "row_independent": row_independent,
        "kernels": [],
        "state": {
            "bytes": 192,
            "forward_order": ["w", "b"],
            "tensors": [
                {
                    "name": n,
                    "kind": kind,
                    "dtype": "f32",
                    "shape": list(shape),
                    "offset": offset,
                    "init": "normal",
                    "of": "w" if kind == "optimizer" else None,
                    "trained": kind == "param",
                }
                for n, (kind, shape, offset) in sorted(STATE.items(), key=lambda item: item[1][2])
            ],
        },
        "programs": programs,
    }


def write_line(folder: Path, *, mix: bool = False, sizes: Sequence[int] = (1, BATCH), name: str = "line") -> Path:
    """``NAME.dslc`` in a folder; ``mix`` makes rows depend on each other."""
    makers: list[tuple[str, dict[str, int], PlanMaker]] = [
        ("init", {}, init_plan()),
        ("train_step", {"B": BATCH}, train_plan(BATCH)),
        ("eval_finish", {}, finish_plan()),
    ]
    for rows in sizes:
        makers.append(("predict", {"B": rows}, predict_plan(rows, "mixing" if mix else "linear")))
        makers.append(("eval_step", {"B": rows}, eval_plan(rows)))
    blobs = [Blob("two", "constant", np.float32([2]).tobytes())]
    programs = []
    for index, (entry, entry_sizes, maker) in enumerate(makers):
        blobs.append(Blob(f"plan.{index}", "plan", maker.plan().encode()))
        programs.append(
            {
                "entry": entry,
                "target": "cpu",
                "provider": "reference",
                "sizes": entry_sizes,
                "io_bytes": maker.ends["io"],
                "work_bytes": maker.ends["work"],
                "context_bytes": 0,
                "plan": f"plan.{index}",
                "lower_bound": maker.ends["work"],
                "planned": maker.ends["work"],
            }
        )
    path = folder / f"{name}.dslc"
    path.write_bytes(write_artifact(header(programs, row_independent=not mix, name=name), blobs))
    return path
