"""The ops border and border_grad: on a CPU, copies and sums of the parts that stay together; on a GPU, one region."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Region, all_strides, dense
from dslc.compiler.codegen.region.pointwise import copy
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_tuple, str_attr
from dslc.compiler.ops.shape.borders import places

_Term = tuple[int, int, int, int]  # see ``places``

#: Most terms of a gradient that a thread looks for, one by one.
MOST_TERMS: Final = 32


@lowers("border")
def border(node: Node) -> list[Launch]:
    """For each axis a part before, one within and one after, copied in whole vectors."""
    [x], [y], mode = node.input_types, node.types, str_attr(node.attrs, "mode")
    parts = []
    for n, low, high in zip(x.ints, *_ends(node)):
        match mode:  # of the result from, elements, of the tensor from, step
            case "reflect":
                ends = (0, low, low, -1), (low + n, high, n - 2, -1)
            case "circular":
                ends = (0, low, n - low, 1), (low + n, high, 0, 1)
            case _:
                ends = (0, low, 0, 0), (low + n, high, n - 1, 0)
        parts.append([each for each in (ends[0], (low, n, 0, 1), ends[1]) if each[1]])
    launches = []
    given, made = all_strides(x.ints), all_strides(y.ints)
    for part in product(*parts):
        steps, start = tuple(p[3] * s for p, s in zip(part, given)), sum(p[2] * s for p, s in zip(part, given))
        source = Access(x.dtype, steps, start)
        target = Access(y.dtype, made, sum(p[0] * s for p, s in zip(part, made)))
        launches.append(Launch(copy([p[1] for p in part], source, target), node.inputs, node.outputs))
    return launches


@lowers("border_grad")
def border_grad(node: Node) -> list[Launch]:
    """The elements' own places are copied; then each of the other terms is added, to the few elements that have it."""
    [dy], [dx] = node.input_types, node.types
    given, made = all_strides(dy.ints), all_strides(dx.ints)
    launches: list[Launch] = []
    for terms in _terms(node):
        shape = [last - first for first, last, _, _ in terms]
        steps = tuple(scale * s for (_, _, scale, _), s in zip(terms, given))
        start = sum((scale * first + offset) * s for (first, _, scale, offset), s in zip(terms, given))
        source = Access(dy.dtype, steps, start)
        target = Access(dx.dtype, made, sum(first * s for (first, *_), s in zip(terms, made)))
        if not launches:
            launches.append(Launch(copy(shape, source, target), node.inputs, node.outputs))
            continue
        b = RegionBuilder(shape, (), [target, source], [target])
        b.row()
        b.store(0, b.let(b.input(0) + b.input(1), dx.dtype))
        launches.append(Launch(b.region(), (*node.outputs, *node.inputs), node.outputs))
    return launches


@lowers("border", target="cuda")
def border_at_once(node: Node) -> list[Launch]:
    [x], [y], mode = node.input_types, node.types, str_attr(node.attrs, "mode")
    padded = _padded(node)
    b = _builder(x, y, padded)
    b.row()
    place = as_expr(0)
    for axis, (n, low, _) in enumerate(zip(x.ints, *_ends(node))):
        if axis not in padded:
            continue
        at = b.let(b.along(axis) - low, DType.I64)
        match mode:
            case "reflect":
                at = b.let(call("abs", at), DType.I64)
                at = b.let((n - 1) - call("abs", (n - 1) - at), DType.I64)
            case "circular":
                at = b.let(select(at < 0, at + n, select(at >= n, at - n, at)), DType.I64)
            case _:
                at = b.let(call("max", call("min", at, n - 1), 0), DType.I64)
        place = place + at * all_strides(x.ints)[axis]
    value = b.fetch(0, b.let(place, DType.I64)) if padded else b.input(0)
    b.store(0, b.let(value, y.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]


@lowers("border_grad", target="cuda")
def border_grad_at_once(node: Node) -> list[Launch]:
    """All axes at once if few terms are looked for; else one after the other, from kernel to kernel in the dtype of
    sums."""
    [dy], [dx] = node.input_types, node.types
    padded, terms = _padded(node), list(_terms(node))
    if not padded or len(terms) <= MOST_TERMS:
        return [Launch(_summed(dy, dx, padded, terms), node.inputs, node.outputs)]
    launches, before = list[Launch](), dy
    source: Value | Scratch = node.inputs[0]
    for number, axis in enumerate(padded):
        last = axis == padded[-1]
        shape = (*before.ints[:axis], dx.ints[axis], *before.ints[axis + 1 :])
        after = TensorType(dx.dtype if last else dx.dtype.computed, shape)
        target: Value | Scratch = node.out if last else Scratch(number, after.bytes)
        own = [(0, n, 1, 0) for n in shape]  # along the other axes an element has itself alone
        along = [(*own[:axis], term, *own[axis + 1 :]) for term in _places(node)[axis]]
        launches.append(Launch(_summed(before, after, [axis], along), (source,), (target,)))
        source, before = target, after
    return launches


def _summed(before: TensorType, after: TensorType, axes: Sequence[int], terms: Sequence[tuple[_Term, ...]]) -> Region:
    """The sums of elements of ``before``. ``terms``: each of them along each axis; only those along ``axes`` are looked
    for. An element without a term reads nothing for it."""
    b, dtype = _builder(before, after, axes), after.dtype
    b.row()
    strides = all_strides(before.ints)
    total: Expr | None = None
    known: dict[tuple[int, _Term], tuple[Expr, Expr | None]] = {}
    for each in terms:
        place, masks = as_expr(0), list[Expr]()
        for axis in axes:
            if (axis, each[axis]) not in known:
                known[axis, each[axis]] = _along(b, axis, after.ints[axis], each[axis], strides[axis])
            at, mask = known[axis, each[axis]]
            place = place + at
            masks += [] if mask is None else [mask]
        there: Expr | None = None
        for mask in masks:
            there = mask if there is None else b.let(call("and", there, mask), DType.B1)
        value = b.fetch(0, b.let(place, DType.I64), there) if axes else b.input(0)
        total = value if total is None else b.let(total + value, dtype.computed)
    assert total is not None
    b.store(0, b.let(total, dtype))
    return b.region()


def _along(b: RegionBuilder, axis: int, size: int, term: _Term, stride: int) -> tuple[Expr, Expr | None]:
    """How far the term's element is along an axis, and whether there is one; None: always."""
    first, last, scale, offset = term
    index = b.along(axis)
    at = b.let((index + offset if scale == 1 else offset - index) * stride, DType.I64)
    if (first, last) == (0, size):
        return at, None
    return at, b.let(call("and", index >= first, index < last), DType.B1)


def _builder(source: TensorType, target: TensorType, axes: Sequence[int]) -> RegionBuilder:
    """The builder of a region over a target that reads its source at computed places along ``axes``."""
    strides = tuple(0 if axis in axes else stride for axis, stride in enumerate(dense(source.ints)))
    accesses = [Access(source.dtype, strides)], [Access(target.dtype, dense(target.ints))]
    return RegionBuilder(target.ints, (), *accesses, indices=axes)


def _ends(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return int_tuple(node.attrs, "low"), int_tuple(node.attrs, "high")


def _padded(node: Node) -> list[int]:
    return [axis for axis, ends in enumerate(zip(*_ends(node))) if any(ends)]


def _places(node: Node) -> list[list[_Term]]:
    mode = str_attr(node.attrs, "mode")
    return [places(n, low, high, mode) for n, low, high in zip(node.types[0].ints, *_ends(node))]


def _terms(node: Node) -> Iterator[tuple[_Term, ...]]:
    """A place along each axis, in the order in which they are added."""
    return product(*_places(node))
