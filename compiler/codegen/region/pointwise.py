"""Regions of pointwise ops, constants and copies: one value per element, no reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Region, all_strides, broadcast_strides, dense
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.scalar import Expr, argument, as_expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr, int_tuple, number_attr
from dslc.compiler.ops.compound.fused import BITS, PLACES, FusedOp, cut_inputs, packed_inputs, results_of, steps_of
from dslc.compiler.ops.compound.fused_stack import fused_stack, part_type, strides_of
from dslc.compiler.ops.constants.literal import MOST_WRITTEN, as_number
from dslc.compiler.ops.constants.ramp import line
from dslc.compiler.ops.random.stochastic import ALL, kept_share


def pointwise(node: Node) -> list[Launch]:
    """A pointwise, ``fused`` or ``fused_stack`` node: every step becomes a value rounded to its dtype."""
    steps = steps_of(node)
    values = [*node.inputs, *(step.out for step in steps)]
    places = results_of(node.attrs, len(values))
    shape, outputs = _stored_parts(node) if node.op is fused_stack else _stored(node, steps, places)
    reads = _loads(node, steps, shape)
    builder = RegionBuilder(shape, (), [access for _, access in reads.values()], outputs)
    builder.row()
    known: dict[Value, Expr] = {value: builder.input(i) for i, value in enumerate(reads)}
    for step in steps:
        if step.op.name not in PLACES:
            known[step.out] = step_value(builder, step, [known[v] for v in step.inputs])
    for number, place in enumerate(places):
        builder.store(number, known[values[place]])
    sources = tuple(source for source, _ in reads.values())
    return [Launch(builder.region(), sources, node.outputs * len(outputs) if node.op is fused_stack else node.outputs)]


def _stored(node: Node, steps: Sequence[Node], places: Sequence[int]) -> tuple[tuple[int, ...], list[Access]]:
    """The shape of the region, and the access to each result."""
    shape = node.types[0].ints
    made = [steps[place - len(node.inputs)].op.name if place >= len(node.inputs) else "" for place in places]
    named = zip(made, node.types)
    return shape, [packed(shape) if name == "pack_bits" else Access(t.dtype, dense(shape)) for name, t in named]


def _stored_parts(node: Node) -> tuple[tuple[int, ...], list[Access]]:
    """The shape of the region, and the access to each part of a ``fused_stack``'s result."""
    inside, apart = strides_of(node)
    steps = results_of(node.attrs, 0)
    return part_type(node).ints, [Access(node.types[0].dtype, inside, part * apart) for part in range(len(steps))]


def _loads(node: Node, steps: Sequence[Node], shape: Sequence[int]) -> dict[Value, tuple[Value, Access]]:
    """A value that the steps load from memory -> the input that contains it, and its access."""
    bits, cut = (packed_inputs(node.attrs), cut_inputs(node.attrs)) if isinstance(node.op, FusedOp) else ((), ())
    found = {
        v: (v, packed(shape) if i in bits else Access(v.type.dtype, all_strides(v.type.ints)))
        for i, v in enumerate(node.inputs)
        if i not in cut
    }
    for step in steps:
        if step.op.name == "slice":
            found[step.out] = (step.inputs[0], _slice_access(step))
        elif step.op.name == "reshape":
            source, access = found[step.inputs[0]]
            found[step.out] = (source, replace(access, strides=_reshaped(step, access.strides)))
    read = {v for step in steps if step.op.name not in PLACES for v in step.inputs}
    values = [*node.inputs, *(step.out for step in steps)]
    read.update(values[i] for i in results_of(node.attrs, len(values)))
    return {
        v: (source, access if access.bits else replace(access, strides=_broadcast(access.strides, v.type.ints, shape)))
        for v, (source, access) in found.items()
        if v in read
    }


def _reshaped(step: Node, strides: Sequence[int]) -> tuple[int, ...]:
    """The strides after a ``reshape`` that adds and removes axes of size 1."""
    kept = (s for s, size in zip(strides, step.input_types[0].ints) if size != 1)
    return tuple(next(kept) if size != 1 else 0 for size in step.types[0].ints)


def _broadcast(strides: Sequence[int], sizes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor's axes, and 0 along the axes of ``shape`` along which it is the same."""
    return (0,) * (len(shape) - len(sizes)) + tuple(s if size != 1 else 0 for s, size in zip(strides, sizes))


def packed(shape: Sequence[int]) -> Access:
    """Access to a dense b1 tensor stored as bits."""
    return Access(DType.B1, dense(shape), bits=True)


def step_value(builder: RegionBuilder, step: Node, inputs: Sequence[Expr], axes: Sequence[int] | None = None) -> Expr:
    """One pointwise op, constant or dropout as the next value of a region, rounded to its dtype. ``axes``: the axes of
    the step's result in the region's order, outer, then inner; unchanged by default."""
    if step.op.name == "full":
        return builder.let(as_expr(as_number(step.attrs["value"])), step.types[0].dtype)
    if step.op.name == "dropout":
        own = dense(step.types[0].ints)
        return _dropout(builder, step, own if axes is None else [own[axis] for axis in axes], *inputs)
    if step.op.name in BITS:  # the argument's access packs or unpacks
        return inputs[0]
    assert isinstance(step.op, Pointwise)
    dtype = step.types[0].dtype
    return builder.let(step.op.scalar_of(dtype.computed, step.attrs, *inputs), dtype)


def _dropout(
    builder: RegionBuilder, step: Node, strides: Sequence[int], x: Expr, seed: Expr, turn: Expr, row: Expr
) -> Expr:
    """The scaled element if its random bits keep it, else 0."""
    dtype, least, scale = step.types[0].dtype, *kept_share(step)
    if least in (0, ALL):
        return builder.let(x if least == 0 else as_expr(0.0), dtype)
    attrs = step.attrs
    drawn = builder.bits(int_attr(attrs, "key"), int_attr(attrs, "row_elements"), seed, turn, row, strides)
    return builder.let(select(drawn >= least, x * scale, 0.0), dtype)


def trees(node: Node) -> list[tuple[Expr, list[DType]]]:
    """The scalar trees of a pointwise or fused node with their argument dtypes, which the target must be able to
    emit."""
    steps = steps_of(node)
    found = []
    for step in steps:
        if step.op.name != "full" and step.op.name not in PLACES:
            assert isinstance(step.op, Pointwise)
            args = [argument(i) for i in range(len(step.inputs))]
            found.append((step.op.scalar(step.attrs, *args), [t.dtype for t in step.input_types]))
    return found


@lowers("full")
def full(node: Node) -> list[Launch]:
    return filled(node, as_number(node.attrs["value"]))


def filled(node: Node, value: float | int | bool) -> list[Launch]:
    """Fills the first output with one value."""
    shape, dtype = node.types[0].ints, node.types[0].dtype
    return [Launch(fill(shape, Access(dtype, dense(shape)), value), (), node.outputs)]


def fill(shape: Sequence[int], target: Access, value: float | int | bool) -> Region:
    """Writes one value to ``shape`` elements of a view."""
    builder = RegionBuilder(shape, (), [], [target])
    builder.row()
    builder.store(0, builder.let(as_expr(value), target.dtype))
    return builder.region()


def copy(shape: Sequence[int], source: Access, target: Access) -> Region:
    """Copies ``shape`` elements from one view to another."""
    builder = RegionBuilder(shape, (), [source], [target])
    builder.row()
    builder.store(0, builder.let(builder.input(0), source.dtype))
    return builder.region()


@lowers("expand")
def expand(node: Node) -> list[Launch]:
    [x], shape = node.inputs, node.types[0].ints
    source = Access(x.type.dtype, broadcast_strides(x.type.ints, shape))
    return [Launch(copy(shape, source, Access(x.type.dtype, dense(shape))), node.inputs, node.outputs)]


@lowers("transpose")
def transpose(node: Node) -> list[Launch]:
    [x], shape = node.inputs, node.types[0].ints
    strides = dense(x.type.ints)
    source = Access(x.type.dtype, tuple(strides[p] for p in int_tuple(node.attrs, "perm")))
    return [Launch(copy(shape, source, Access(x.type.dtype, dense(shape))), node.inputs, node.outputs)]


@lowers("slice")
def slice_(node: Node) -> list[Launch]:
    shape = node.types[0].ints
    target = Access(node.types[0].dtype, dense(shape))
    return [Launch(copy(shape, _slice_access(node), target), node.inputs, node.outputs)]


def _slice_access(node: Node) -> Access:
    """The access to a slice's elements in its input."""
    whole = node.input_types[0]
    strides = all_strides(whole.ints)
    starts, steps = int_tuple(node.attrs, "starts"), int_tuple(node.attrs, "steps")
    offset = sum(s * start for s, start in zip(strides, starts)) if prod(node.types[0].ints) else 0
    return Access(whole.dtype, tuple(s * step for s, step in zip(strides, steps)), offset)


@lowers("tri")
def tri(node: Node) -> list[Launch]:
    shape = node.types[0].ints
    builder = RegionBuilder(shape, (), [], [Access(DType.B1, dense(shape))], indices=(0, 1))
    builder.row()
    # in i32: for three lanes of i64, LLVM for aarch64 fails an assertion
    row, column = (builder.let(builder.along(axis), DType.I32) for axis in (0, 1))
    inside = call("le", column - row, int_attr(node.attrs, "diagonal"))
    builder.store(0, builder.let(inside, DType.B1))
    return [Launch(builder.region(), (), node.outputs)]


@lowers("arange")
def arange(node: Node) -> list[Launch]:
    builder = RegionBuilder(node.types[0].ints, (), [], [Access(DType.I32, (1,))], indices=(0,))
    builder.row()
    index = builder.let(builder.along(0), DType.I32)
    scaled = builder.let(index * int_attr(node.attrs, "step"), DType.I32)
    builder.store(0, builder.let(scaled + int_attr(node.attrs, "start"), DType.I32))
    return [Launch(builder.region(), (), node.outputs)]


@lowers("ramp")
def ramp(node: Node) -> list[Launch]:
    [count], dtype = node.types[0].ints, node.types[0].dtype
    start, step, last = line(node.attrs, count)
    builder = RegionBuilder((count,), (), [], [Access(dtype, (1,))], indices=(0,))
    builder.row()
    index = builder.let(builder.along(0), DType.I32)
    scaled = builder.let(builder.let(index, DType.F64) * step, DType.F64)
    value = builder.let(scaled + start, DType.F64)
    if last is not None:
        value = builder.let(select(call("eq", index, count - 1), last, value), DType.F64)
    builder.store(0, builder.let(value, dtype))
    return [Launch(builder.region(), (), node.outputs)]


@lowers("concat")
def concat(node: Node) -> list[Launch]:
    """One copy per input, into its part of the output."""
    launches, start = [], 0
    for x in node.inputs:
        launches.append(copy_into(x, node.out, start))
        start += prod(x.type.ints[int_attr(node.attrs, "axis") :])
    return launches


def copy_into(x: Value, whole: Value, start: int) -> Launch:
    """Copies a tensor into another one of its rank, starting at element ``start``."""
    shape, dtype = x.type.ints, x.type.dtype
    target = Access(dtype, all_strides(whole.type.ints), start)
    return Launch(copy(shape, Access(dtype, dense(shape)), target), (x,), (whole,))


@lowers("pad")
def pad(node: Node) -> list[Launch]:
    """Fills the output, or what is added if that is one side of one axis; then copies the input to its place."""
    [x], out = node.inputs, node.types[0]
    strides = all_strides(out.ints)
    low, interior = int_tuple(node.attrs, "low"), int_tuple(node.attrs, "interior")
    places = tuple(s * (gap + 1) for s, gap in zip(strides, interior))
    target = Access(out.dtype, places, sum(s * start for s, start in zip(strides, low)))
    region = copy(x.type.ints, Access(out.dtype, dense(x.type.ints)), target)
    return [*_filled_around(node), Launch(region, node.inputs, node.outputs)]


def _filled_around(node: Node) -> list[Launch]:
    low, high, interior = (int_tuple(node.attrs, name) for name in ("low", "high", "interior"))
    value, out, x = number_attr(node.attrs, "value"), node.types[0], node.input_types[0].ints
    ends = [(axis, *end) for axis in range(len(x)) for end in ((low[axis], 0), (high[axis], x[axis])) if end[0]]
    if len(ends) != 1 or any(interior):
        return filled(node, value)
    [(axis, size, start)] = ends
    strides = all_strides(out.ints)
    added = fill((*x[:axis], size, *x[axis + 1 :]), Access(out.dtype, strides, start * strides[axis]), value)
    return [Launch(added, (), node.outputs)]


@lowers("literal")
def literal(node: Node) -> list[Launch] | None:
    """Selects the value by the element's index; None if there are more than ``MOST_WRITTEN``."""
    values, type = node.attrs["values"], node.types[0]
    assert isinstance(values, tuple)
    if len(values) > MOST_WRITTEN:
        return None
    builder = RegionBuilder((), (len(values),), [], [Access(type.dtype, (1,))])
    builder.element()
    expr = as_expr(0.0 if type.dtype.is_float else False if type.dtype is DType.B1 else 0)
    for place, value in enumerate(values):
        known = builder.let(as_expr(as_number(value)), type.dtype)
        expr = builder.let(select(call("eq", builder.index, place), known, expr), type.dtype)
    builder.store(0, builder.let(expr, type.dtype))
    return [Launch(builder.region(), (), node.outputs)]


@lowers("pack_bits", "unpack_bits", target="cuda")
def bits(node: Node) -> list[Launch]:
    """A separate ``pack_bits`` or ``unpack_bits``: a copy."""
    packs = node.op.name == "pack_bits"
    shape = (node.input_types if packs else node.types)[0].ints
    source, target = Access(DType.B1, dense(shape)), packed(shape)
    if not packs:
        source, target = target, source
    return [Launch(copy(shape, source, target), node.inputs, node.outputs)]
