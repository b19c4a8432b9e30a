"""Regions of reductions: reduce each row of a tensor, or scale a row by values reduced from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, broadcast_strides, dense
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.scalar import Expr, call, select
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import float_attr, int_attr, int_tuple
from dslc.compiler.ops.compound.fused import expanded, packed_inputs
from dslc.compiler.ops.compound.fused_sums import finish_of, full_shape, parted
from dslc.compiler.ops.elementwise.powers import raised

#: The kind of an argument: "x" has the whole shape; "bits" as well, of b1 as bits; "row" lacks the inner axes; "along"
#: has only the inner axes; "first" is like x, but each row sees only its first element; or explicit strides.
Kind = str | tuple[int, ...]


class RowsBuilder:
    """A region over ``shape`` whose inner axes are ``over``, with arguments by their kinds.

    ``inputs`` and ``outputs``: the values of the node that it reads and writes, by default all.
    """

    def __init__(
        self,
        node: Node,
        shape: Sequence[int],
        over: Sequence[int],
        reads: Sequence[Kind],
        writes: Sequence[Kind],
        inputs: Sequence[Value] | None = None,
        outputs: Sequence[Value] | None = None,
    ) -> None:
        self.node, self.shape, self.over = node, tuple(shape), tuple(over)
        self.kept = [a for a in range(len(shape)) if a not in self.over]
        self.dtype = node.input_types[0].dtype.computed
        self.reads = tuple(node.inputs if inputs is None else inputs)
        self.writes = tuple(node.outputs if outputs is None else outputs)
        sources = [self._access(v.type, k) for v, k in zip(self.reads, reads, strict=True)]
        self.outputs = [self._access(v.type, k) for v, k in zip(self.writes, writes, strict=True)]
        self.count = math.prod(shape[a] for a in self.over)
        whole = dense(shape)
        self.b = RegionBuilder(
            [shape[a] for a in self.kept],
            [shape[a] for a in self.over],
            sources,
            self.outputs,
            canonical_strides=[whole[a] for a in (*self.kept, *self.over)],
        )

    def _access(self, type: TensorType, kind: Kind) -> Access:
        inner = (0,) * len(self.over)
        if kind == "row":
            return Access(type.dtype, dense([self.shape[a] for a in self.kept]) + inner)
        if kind == "along":
            return Access(type.dtype, (0,) * len(self.kept) + dense([self.shape[a] for a in self.over]))
        strides = dense(self.shape) if kind in ("x", "bits", "first") else kind
        assert not isinstance(strides, str)
        if kind == "first":
            strides = tuple(0 if a in self.over else s for a, s in enumerate(strides))
        dtype, bits = (DType.B1, True) if kind == "bits" else (type.dtype, False)
        return Access(dtype, tuple(strides[a] for a in (*self.kept, *self.over)), bits=bits)

    def input(self, number: int) -> Expr:
        return self.b.input(number)

    def let(self, expr: Expr, dtype: DType | None = None) -> Expr:
        return self.b.let(expr, dtype or self.dtype)

    def store(self, output: int, expr: Expr) -> None:
        """Rounds to the output's dtype and stores."""
        self.b.store(output, self.b.let(expr, self.outputs[output].dtype))

    def sum(self, expr: Expr, dtype: DType | None = None) -> Expr:
        """An element stage that sums ``expr``."""
        self.b.element()
        return self.b.reduce("sum", self.let(expr, dtype))

    def extreme(self, combine: Any, expr: Expr) -> Expr:
        self.b.element()
        return self.b.reduce(combine, self.let(expr))

    def launch(self) -> list[Launch]:
        return [Launch(self.b.region(), self.reads, self.writes)]


def _over(node: Node) -> tuple[int, ...]:
    return int_tuple(node.attrs, "over")


def _reduction(node: Node) -> RowsBuilder:
    return RowsBuilder(node, node.input_types[0].ints, _over(node), ["x"], ["row"])


@lowers("sum", "prod")
def total(node: Node) -> list[Launch]:
    """The sum or the product."""
    rows = _reduction(node)
    rows.b.element()
    found = rows.b.reduce("prod" if node.op.name == "prod" else "sum", rows.let(rows.input(0), node.types[0].dtype))
    rows.b.row()
    rows.store(0, found)
    return rows.launch()


@lowers("mean")
def mean(node: Node) -> list[Launch]:
    rows = _reduction(node)
    found = rows.sum(rows.input(0))
    rows.b.row()
    rows.store(0, found / float(rows.count))
    return rows.launch()


@lowers("max", "min")
def extreme(node: Node) -> list[Launch]:
    rows = _reduction(node)
    found = rows.extreme(node.op.name, rows.input(0))
    rows.b.row()
    # the maximum of 0.0 and -0.0 may be either, depending on the order: adding 0.0 makes it 0.0
    rows.store(0, found + 0.0 if rows.dtype.is_float else found)
    return rows.launch()


@lowers("sum_to")
def sum_to(node: Node) -> list[Launch]:
    wide, small = node.input_types[0].ints, node.types[0].ints
    new = len(wide) - len(small)
    over = [a for a in range(len(wide)) if a < new or small[a - new] != wide[a]]
    rows = RowsBuilder(node, wide, over, ["x"], ["row"])
    found = rows.sum(rows.input(0))
    rows.b.row()
    rows.store(0, found)
    return rows.launch()


@lowers("norm")
def norm(node: Node) -> list[Launch]:
    rows, p = _reduction(node), float_attr(node.attrs, "p")
    x = rows.input(0)
    size = call("abs", x)
    found = rows.sum(size if p == 1 else x * x if p == 2 else raised(size, p))
    rows.b.row()
    rows.store(0, found if p == 1 else call("sqrt", found) if p == 2 else call("pow", found, 1 / p))
    return rows.launch()


@lowers("argmax", "argmin")
def arg_extreme(node: Node) -> list[Launch]:
    rows = RowsBuilder(node, node.input_types[0].ints, [int_attr(node.attrs, "axis")], ["x"], ["row"])
    x = rows.input(0)
    top = rows.extreme("max" if node.op.name == "argmax" else "min", x)
    rows.b.element()
    # the first equal element; if any element is nan, top is nan and the first nan counts
    equal = call("or", call("eq", x, top), call("ne", x, x))
    place = rows.b.reduce("min", rows.let(select(equal, rows.b.index, rows.count), DType.I64))
    rows.b.row()
    rows.store(0, place)
    return rows.launch()


def _along(node: Node, reads: Sequence[Kind], writes: Sequence[Kind]) -> RowsBuilder:
    return RowsBuilder(node, node.input_types[0].ints, [int_attr(node.attrs, "axis")], reads, writes)


@lowers("softmax")
def softmax(node: Node) -> list[Launch]:
    rows = _along(node, ["x"], ["x"])
    x = rows.input(0)
    top = rows.extreme("max", x)
    below = rows.sum(call("exp", x - top))
    rows.b.row()
    share = rows.let(1 / below)
    rows.b.element()
    rows.store(0, rows.let(call("exp", x - top)) * share)
    return rows.launch()


@lowers("softmax_grad")
def softmax_grad(node: Node) -> list[Launch]:
    rows = _along(node, ["x", "x"], ["x"])
    y, dy = rows.input(0), rows.input(1)
    inner = rows.sum(y * dy)
    rows.b.element()
    rows.store(0, y * (dy - inner))
    return rows.launch()


@lowers("log_softmax_grad")
def log_softmax_grad(node: Node) -> list[Launch]:
    rows = _along(node, ["x", "x"], ["x"])
    y, dy = rows.input(0), rows.input(1)
    total = rows.sum(dy)
    rows.b.element()
    rows.store(0, dy - call("exp", y) * total)
    return rows.launch()


@lowers("log_softmax")
def log_softmax(node: Node) -> list[Launch]:
    rows = _along(node, ["x"], ["x"])
    x = rows.input(0)
    top = rows.extreme("max", x)
    below = rows.sum(call("exp", x - top))
    rows.b.row()
    shift = rows.let(call("log", below))
    rows.b.element()
    rows.store(0, rows.let(x - top) - shift)
    return rows.launch()


@lowers("logsumexp")
def logsumexp(node: Node) -> list[Launch]:
    rows = _reduction(node)
    x = rows.input(0)
    top = rows.extreme("max", x)
    rows.b.row()
    shift = rows.let(select(call("abs", top) < math.inf, top, 0.0))
    below = rows.sum(call("exp", x - shift))
    rows.b.row()
    rows.store(0, call("log", below) + shift)
    return rows.launch()


@lowers("fused_sums", "finished_sums")
def fused_sums(node: Node) -> list[Launch]:
    """One element stage: the steps, then all sums; then the epilogue, if the node has one."""
    shape = full_shape(node)
    bits = packed_inputs(node.attrs)
    wide, late = parted(node.inputs, node.attrs)
    reads: list[Kind] = ["bits" if i in bits else broadcast_strides(v.type.ints, shape) for i, v in enumerate(wide)]
    reads += ["row" if v.type.rank else broadcast_strides((), shape) for v in late]
    over = int_tuple(node.attrs, "over")
    summed = int_tuple(node.attrs, "summed")
    whole = int_tuple(node.attrs, "kept") if "kept" in node.attrs else ()
    rows = RowsBuilder(node, shape, over, reads, [*["row"] * (len(node.outputs) - len(whole)), *["x"] * len(whole)])
    known = [rows.input(i) for i in range(len(wide))]
    values = list(wide)
    rows.b.element()
    for step in expanded(wide, node.attrs):
        read = [known[values.index(v)] for v in step.inputs]
        known.append(pointwise.step_value(rows.b, step, read, (*rows.kept, *over)))
        values.append(step.out)
    for number, i in enumerate(whole):
        rows.b.store(len(node.outputs) - len(whole) + number, known[i])
    kept = [rows.let(known[i], values[i].type.dtype) for i in summed]
    sums = [rows.b.reduce("sum", value) for value in kept]
    rows.b.row()
    if "finish" in node.attrs:
        sums = _with_epilogue(rows, [rows.let(x, values[i].type.dtype) for x, i in zip(sums, summed)])
    for number, result in enumerate(sums):
        rows.store(number, result)
    return rows.launch()


def _with_epilogue(rows: RowsBuilder, sums: list[Expr]) -> list[Expr]:
    """The epilogue of the sums of ``finished_sums``."""
    node, steps = rows.node, finish_of(rows.node)
    _, late = parted(node.inputs, node.attrs)
    first = len(node.inputs) - len(late)
    known = [*sums, *(rows.input(first + i) for i in range(len(late)))]
    for step, (_, read, _) in zip(steps, node.attrs["finish"]):  # type: ignore[arg-type]
        known.append(pointwise.step_value(rows.b, step, [known[i] for i in read]))
    return [known[i] for i in int_tuple(node.attrs, "results")]
