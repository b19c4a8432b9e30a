"""A loop as one resident kernel: its PTX gives what the loop means, without races between blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import run_launches

from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.recurrent import lower, scalar_division
from dslc.compiler.codegen.cuda.recurrent.cell import Cell
from dslc.compiler.codegen.cuda.recurrent.division import Division
from dslc.compiler.codegen.cuda.recurrent.lower import resident, resident_seconds, why_not_resident
from dslc.compiler.codegen.cuda.recurrent.tensor_core_division import TensorCoreDivision
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
        xs = [((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32) for x in xs]
    attrs = {name: each.value if isinstance(each, DType) else each for name, each in node.attrs.items()}
    found = xs if node.op.name == "cast" else node.op.meaning(xs, attrs)
    return [simulator.held(np.asarray(y, "f4"), t.dtype) for y, t in zip(found, node.types, strict=True)]


def check(node: Node, seed: int, backwards: bool = False) -> None:
    xs = inputs_of(node, seed)
    compare(on_machine(node, xs, backwards), meant(node, xs))


def compare(found: list[np.ndarray], wanted: list[np.ndarray], most: float = 0.05) -> None:
    for one, other in zip(found, wanted, strict=True):
        apart = np.abs(one - other) / np.maximum(1, np.abs(other))
        assert np.median(apart) < 1e-6, "but for values that round to another neighbour of 16 bits"
        assert apart.max() < most


def divide(monkeypatch: pytest.MonkeyPatch, warps: int, columns: int) -> None:
    """Has loops divided into more blocks than the model would choose for such small ones."""

    def divided(cell: Cell) -> Division:
        kind = TensorCoreDivision if cell.factor.is_half else scalar_division.ScalarDivision
        return kind(cell, warps, columns)

    monkeypatch.setattr(lower, "best_division", divided)


def test_a_loop_and_its_gradient(tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    divide(monkeypatch, 1, 2)
    forward, backward = loops_of("lstm", 4, 2, 2, tmp_path)
    assert resident(forward)[1].spec.geometry.grid == (2, 1, 1)
    check(forward, fuzz_seed)
    check(backward, fuzz_seed + 1)


@pytest.mark.parametrize(("rows", "width"), [(2, 8), (6, 16)])
@pytest.mark.parametrize("cell", ["lstm", "gru", "slstm"])
def test_gradients_are_resident_too(cell: str, rows: int, width: int, tmp_path: Path) -> None:
    """However the passes compute the gradient of the gates' split."""
    assert [why_not_resident(node) for node in loops_of(cell, width, rows, 2, tmp_path)] == [None, None]


SIZES = [(8, 2, 3, (2, 3)), (16, 6, 2, (1, 9)), (40, 17, 2, None)]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "rows", "steps", "division"), SIZES)
@pytest.mark.parametrize("cell", sorted(CELLS))
def test_cells_and_sizes(
    cell: str, width: int, rows: int, steps: int, division: tuple[int, int] | None,
    tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Widths that no tile divides, columns of a block that fill no word or two, rows beyond one tile, a width beyond
    one chunk of terms, warps without elements."""
    if division is not None:
        divide(monkeypatch, *division)
    nodes = loops_of(cell, width, rows, steps, tmp_path)
    for number, node in enumerate(nodes):
        if why_not_resident(node) is None:
            check(node, fuzz_seed + number, backwards=number == 0)
        else:
            assert number == 1 and (cell.startswith(("two", "reset")) or rows == 17), why_not_resident(node)


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("if (row && threadIdx.x % 8 == 0)", "if (false)"),  # others wait for ever
        ("while (waits)", "while (false)"),  # words that are not there yet
        ("(unsigned)(step + 1) << 16", "(unsigned)(step % 2 + 1) << 16"),  # words of two steps ago
        ("float *sums = memory + (step & 1) *", "float *sums = memory + 0 *"),  # sums that others still read
    ],
)
def test_a_broken_exchange_is_noticed(
    whole: str, part: str, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the tests above say something: in four steps each place of the exchange is used again."""
    divide(monkeypatch, 2, 2)
    node, _ = loops_of("lstm", 4, 6, 4, tmp_path)
    zeros, kernel = resident(node)
    assert kernel.spec.text.count(whole) == 1
    broken = replace(kernel, spec=replace(kernel.spec, text=kernel.spec.text.replace(whole, part)))
    xs = inputs_of(node, fuzz_seed)
    with pytest.raises(AssertionError):
        compare(on_machine(node, xs, launches=[zeros, broken]), meant(node, xs))


@pytest.mark.parametrize("first", [0x7F81, 0xFFFE])
def test_numbers_of_late_steps(first: int, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As factors, the bits of step 32,640 and some later ones would be NaN; those of step 65,535 are 0."""
    divide(monkeypatch, 1, 2)
    node, _ = loops_of("lstm", 4, 2, 4, tmp_path)
    zeros, kernel = resident(node)
    assert kernel.spec.text.count("(unsigned)(step + 1) << 16") == 1
    text = kernel.spec.text.replace("(unsigned)(step + 1) << 16", f"(unsigned)(step + {first}) << 16")
    xs = inputs_of(node, fuzz_seed)
    late = replace(kernel, spec=replace(kernel.spec, text=text))
    compare(on_machine(node, xs, launches=[zeros, late]), meant(node, xs))


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        ("scan xt in x along T carry h into y { h = tanh(xt * h); yield h }", "no product"),
        ("scan xt in x along T carry h into y { h = softmax(xt + h @ r); yield h }", "softmax|fused|max"),
        ("scan xt in x along T into y { k = tanh(sin(xt) @ r); yield k }", "carries nothing"),
    ],
)
def test_other_loops_are_told_why(loop: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text(
        "nn 1\nconst T = 3\nmodel Net(x: [4, T, 16]) -> [4, T, 16] {\n  param r: [16, 16] = uniform(0.5)\n"
        f"  h = zeros([4, 16])\n  {loop}\n  return y\n}}\n"
    )
    options = Options(target="sm_90", precision="bf16", provider="vendor")
    program, _ = compile_entry(check_file(tmp_path / "net.nn"), "predict", {}, options)
    for node in program.graph.nodes:
        if node.op is scan:
            assert re.search(why, why_not_resident(node) or "")


def check_f32(node: Node, seed: int, backwards: bool = False) -> None:
    xs = inputs_of(node, seed)
    compare(on_machine(node, xs, backwards), meant(node, xs), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["f32", "tf32"])
def test_products_in_f32(precision: str, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also rounded to TF32: a loop whose factors are not rounded differs by more."""
    divide(monkeypatch, 1, 2)
    forward, _ = loops_of("lstm", 4, 2, 2, tmp_path, precision)
    check_f32(forward, fuzz_seed)
    assert ("TF32 = 1" in resident(forward)[1].spec.text) == (precision == "tf32")


F32_SIZES = [("lstm", 8, 2, 3, (1, 4)), ("gru", 8, 6, 2, (2, 5)), ("rnn", 24, 2, 2, (2, 4)),
             ("two products, one after the other", 4, 3, 3, (1, 2)), ("lstm", 12, 2, 2, None)]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "width", "rows", "steps", "division"), F32_SIZES)
def test_cells_and_sizes_in_f32(
    cell: str, width: int, rows: int, steps: int, division: tuple[int, int] | None,
    tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Columns of a block that fill no words, rows that fill no batch, several warps and chunks of terms."""
    if division is not None:
        divide(monkeypatch, *division)
    for number, node in enumerate(loops_of(cell, width, rows, steps, tmp_path, "f32")):
        if why_not_resident(node) is None:
            check_f32(node, fuzz_seed + number, backwards=number == 0)
        else:
            assert number == 1 and cell.startswith("two"), why_not_resident(node)


@pytest.mark.slow
@pytest.mark.parametrize("column_lanes", [1, 4, 32])
def test_shapes_of_a_warp(column_lanes: int, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the lanes of a warp share a product."""
    divide(monkeypatch, 1, 4)
    monkeypatch.setattr(scalar_division, "_SHAPES", [scalar_division.Shape(column_lanes, 2)])
    node, _ = loops_of("rnn", 8, 3, 2, tmp_path, "f32")
    check_f32(node, fuzz_seed)


def test_an_f32_kernel_of_many_rows_is_no_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, _ = loops_of("lstm", 16, 4, 2, tmp_path, "f32")
    assert 0 < (resident_seconds(node) or 0) < 1e-4
    monkeypatch.setattr(lower, "_MOST_ROWS_F32", 3)
    assert why_not_resident(node) is None and resident_seconds(node) is None


@pytest.mark.parametrize(("rows", "width"), [(16, 256), (64, 512), (1, 1024), (20, 650), (128, 256)])
def test_divisions_in_f32_fit_an_h200(rows: int, width: int, tmp_path: Path) -> None:
    node = loops_of("lstm", width, rows, 2, tmp_path, "f32")[0]
    division = resident(node)[1].spec.division
    assert division.blocks <= 114 and division.shared_bytes <= 227 << 10 and division.each <= 4
    assert division.matrix_elements[-1] * division.blocks >= 4 * width * width
