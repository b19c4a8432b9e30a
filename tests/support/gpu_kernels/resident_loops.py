"""Loops of small models, their resident kernels on the PTX machine, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import run_launches

from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.recurrent import lower
from dslc.compiler.codegen.cuda.recurrent.cell import Cell
from dslc.compiler.codegen.cuda.recurrent.division import Division
from dslc.compiler.codegen.cuda.recurrent.lower import resident
from dslc.compiler.codegen.cuda.recurrent.scalar_division import ScalarDivision
from dslc.compiler.codegen.cuda.recurrent.tensor_core_division import TensorCoreDivision, factors_of
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scan import Loop, int_count, scan
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.contraction import product_and_epilogue
from dslc.compiler.ops.compound.fused import expanded, results_of
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

CELLS = {
    "lstm": (4, "h, c", "i, f, g, o = split(xt @ w + h @ r + b, 4)\nc = sigmoid(f) * c + sigmoid(i) * tanh(g)\n"
             "h = sigmoid(o) * tanh(c)\n"),
    "gru": (3, "h", "a1, a2, a3 = split(xt @ w + b, 3)\nb1, b2, b3 = split(h @ r, 3)\ng = sigmoid(a1 + b1)\n"
            "u = tanh(a3 + sigmoid(a2 + b2) * b3)\nh = u + g * (h - u)\n"),
    "slstm": (4, "h, c, n, m", "i, f, z, o = split(xt @ w + h @ r + b, 4)\nk = maximum(f + m, i)\n"
              "c = exp(f + m - k) * c + exp(i - k) * tanh(z)\nn = exp(f + m - k) * n + exp(i - k)\nm = k\n"
              "h = sigmoid(o) * c / maximum(n, 1)\n"),
    "reset before the product": (1, "h", "h = tanh(xt @ w + b + (sigmoid(xt @ w) * h) @ r)\n"),
    "rnn": (1, "h", "h = tanh(xt @ w + h @ r + b)\n"),
    "two products, one after the other": (1, "h, c", "c = tanh(xt @ w + h @ r)\nh = tanh(c @ r + b) + c\n"),
}  # fmt: skip

#: Of a precision, how far an element may be from what a loop means; most elements are much closer.
MOST = {"bf16": 0.05, "tf32": 2e-3, "f32": 1e-5}


def loops_of(cell: str, width: int, rows: int, steps: int, folder: Path, precision: str = "bf16") -> list[Node]:
    """The loops of a training step: forward, and its gradient."""
    gates, carried, step = CELLS[cell]
    first = carried.split(", ")
    lines = "".join(f"    {line}\n" for line in step.splitlines())
    (folder / "net.nn").write_text(
        f"nn 1\nconst T = {steps}\nmodel Net(x: [{rows}, T, {width}]) -> [{rows}, T, {width}] {{\n"
        f"  param w: [{width}, {gates * width}] = uniform(0.5)\n  param r: [{width}, {gates * width}] = uniform(0.5)\n"
        f"  param b: [{gates * width}] = uniform(0.5)\n"
        + "".join(f"  {name} = zeros([{rows}, {width}])\n" for name in first)
        + f"  scan xt in x along T carry {carried} into y {{\n{lines}    yield h\n  }}\n  return y\n}}\n"
        f"train Net(t: [{rows}, T, {width}]) {{\n  loss = mean(output * t)\n  optimizer = sgd(lr=0.1)\n}}\n"
    )
    options = Options(target="sm_90", precision=precision, provider="vendor")
    program, _ = compile_entry(check_file(folder / "net.nn"), "train_step", {}, options)
    return [node for node in program.graph.nodes if node.op is scan]


def inputs_of(node: Node, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {v: rng.uniform(-1, 1, v.type.ints).astype("f4") for v in node.inputs}  # two may be the same
    return [simulator.held(drawn[v], v.type.dtype) for v in node.inputs]


def on_machine(
    node: Node, xs: list[np.ndarray], backwards: bool = False, launches: Sequence[Launch] = ()
) -> list[np.ndarray]:
    """What the kernel's PTX makes of inputs, in memory that is no longer than the tensors. ``launches``: others."""
    known: dict[Any, np.ndarray] = {
        v: simulator.memory(np.array(x).reshape(-1), v.type.dtype) for v, x in zip(node.inputs, xs)
    }
    for v in node.outputs:
        kind = simulator.numpy_type(v.type.dtype)
        known[v] = np.full(int(np.prod(v.type.ints)) * kind.itemsize, 0xFF, np.uint8).view(kind)
    run_launches(launches or resident(node), known, backwards=backwards)
    return [simulator.values(known[v], v.type.dtype).reshape(v.type.ints) for v in node.outputs]


def meant(node: Node, xs: list[np.ndarray]) -> list[np.ndarray]:
    """What the loop means, each value rounded to its dtype, with 16-bit floats as f32."""
    loop = Loop.of(node)
    graph, first = loop.graph, len(loop.consts)
    second = first + len(loop.carries)
    count = int_count(node)
    carried, stacks = xs[first:second], [[xs[0]] * count for _ in graph.outputs]
    for at in reversed(range(count)) if loop.reverse else range(count):
        given = [*xs[:first], *carried, *(x[at] for x in xs[second:])]
        known = {source.value: x for source, x in zip(graph.inputs, given, strict=True)}
        for each in graph.nodes:
            known.update(zip(each.outputs, values_of(each, [known[v] for v in each.inputs])))
        carried = [known[v] for _, v in graph.updates]
        for stack, v in zip(stacks, graph.outputs.values()):
            stack[at] = known[v]
    return [*carried, *map(np.stack, stacks)]


def values_of(node: Node, xs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a node of a body."""
    if node.op.name == "contraction":
        first, last = product_and_epilogue(node)
        return values_of(last, [*values_of(first, xs[:2]), *xs[2:]])
    if node.op.name in ("fused", "fused_stack"):
        known = dict(zip(node.inputs, xs))
        steps = expanded(node.inputs, node.attrs)
        for step in steps:
            known.update(zip(step.outputs, values_of(step, [known[v] for v in step.inputs])))
        values = [*node.inputs, *(step.out for step in steps)]
        results = [known[values[i]] for i in results_of(node.attrs, len(values))]
        return results if node.op.name == "fused" else [np.stack(results, node.attrs["axis"])]
    if node.attrs.get("tf32"):
        xs = [rounded_to_tf32(x).astype("f8") for x in xs]
    attrs = {name: each.value if isinstance(each, DType) else each for name, each in node.attrs.items()}
    found = xs if node.op.name == "cast" else node.op.meaning(xs, attrs)
    return [simulator.held(np.asarray(y, "f4"), t.dtype) for y, t in zip(found, node.types, strict=True)]


def rounded_to_tf32(x: np.ndarray) -> np.ndarray:
    """f32 with 10 bits, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000).view(np.float32)


def compare(found: list[np.ndarray], wanted: list[np.ndarray], most: float = MOST["bf16"]) -> None:
    for one, other in zip(found, wanted, strict=True):
        apart = np.abs(one - other) / np.maximum(1, np.abs(other))
        assert np.median(apart) < 1e-6, "but for values that round to another neighbour of 16 bits or TF32"
        assert apart.max() < most


def divide(monkeypatch: pytest.MonkeyPatch, warps: int, columns: int, loads: int = 8) -> None:
    """Has loops divided into more blocks than the model would choose for such small ones."""

    def divided(cell: Cell, loops: int = 1) -> Division:
        factors = factors_of(cell)
        if factors is None:
            return ScalarDivision(cell, warps, columns)
        return TensorCoreDivision(cell, warps, columns, factors, loads)

    monkeypatch.setattr(lower, "best_division", divided)
