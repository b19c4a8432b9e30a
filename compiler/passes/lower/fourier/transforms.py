"""Computes discrete Fourier transforms by kernels of whole transforms, or by products with matrices: a whole matrix,
parts of it, or several small ones.

A GPU has such kernels (``ops/products/fourier_plan.py``). They need a table of roots of unity, a constant of the
artifact, and compute along any axis; products need the axis at the end.

Before, 1513 rows of 693 real numbers on a CPU::

    %1, %2 = fourier %0 {count=693, outputs=347, parts=both, scale=1.0, sign=-1} : f32[1513, 347], f32[1513, 347]

After, with the stages of the orders 21 and 33::

    %1 = matmul %0 as [1513, 21, 33], of which each matrix is transposed, by a matrix [21, 42] : f32[1513, 33, 42]
    %2 = concat of the real and the imaginary parts of %1 times the twiddle factors : f32[1513, 66, 21]
    %3 = matmul of a matrix [17, 66] by %2, for the real parts : f32[1513, 17, 21]
    %4 = slice of %3 as [1513, 357] : f32[1513, 347]
    %5 and %6, the same for the imaginary parts

So a row takes 4 * 693 * (21 + 33) operations instead of 2 * 693 * 693, but more bytes move. A prime order has no
stages, but half of the matrix suffices (``folded.py``). The target's time model decides (``ways.py``). Stages and half
matrices of 16-bit floats are computed in f32, if that is faster than a product on tensor cores. TF32 keeps one product,
since it would round between the stages. The matrices of stages are constants of the artifact; larger ones are gathered
from a table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import prod

from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.cost import machine_for, seconds
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import Loop, loop_node, new_input, scan
from dslc.compiler.ir.stored import Stored
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import float_attr, int_attr, str_attr
from dslc.compiler.ops.elementwise.arithmetic import mul
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.products.fourier import PARTS, fourier, given_of, shares
from dslc.compiler.ops.products.staged_fourier import plan_of_node, staged_fourier
from dslc.compiler.ops.shape.views import reshape, transpose
from dslc.compiler.passes.lower.fourier.folded import Folded
from dslc.compiler.passes.lower.fourier.matrices import Array, Roots, Store
from dslc.compiler.passes.lower.fourier.narrowed import narrowed
from dslc.compiler.passes.lower.fourier.stages import Stages
from dslc.compiler.passes.lower.fourier.ways import SURE, Shape, Way, Ways


def transforms(program: Program, build: Build) -> Program:
    """The pass; the reference provider computes transforms as a whole. Deterministic and idempotent."""
    if build.provider == "reference":
        return program
    stored: dict[str, Input] = {}

    def store(numbers: Array, dtype: DType) -> Value:
        constant = Stored(np.ascontiguousarray(numbers))
        name = f"dft:{constant.digest[:16]}.{dtype.value}"
        if name not in stored:
            stored[name] = Input(name, Kind.CONSTANT, TensorType(dtype, numbers.shape), None, constant)
        return stored[name].value

    graph = _rewritten(program.graph, build, store)
    if graph is program.graph:
        return program
    read = {v for node in graph.nodes for v in node.inputs}
    fresh = tuple(source for source in stored.values() if source.value in read)
    return dataclasses.replace(program, graph=dataclasses.replace(graph, inputs=(*graph.inputs, *fresh)))


def _rewritten(graph: Graph, build: Build, store: Store) -> Graph:
    def rule(node: Node) -> Sequence[Value] | Node | None:
        if node.op is scan:
            return _in_loop(node, build, store)
        return _composed(node, build, store) if node.op is fourier else None

    return narrowed(graph).rewrite(rule)


def _in_loop(node: Node, build: Build, store: Store) -> Node | None:
    """A loop with such a body, which captures the constants."""
    loop = Loop.of(node)
    inside: dict[Value, Input] = {}

    def captured(numbers: Array, dtype: DType) -> Value:
        outside = store(numbers, dtype)
        if outside not in inside:
            inside[outside] = new_input("const", len(loop.consts) + len(inside), outside.type)
        return inside[outside].value

    body = _rewritten(loop.graph, build, captured)
    if body is loop.graph:
        return None
    consts = {**dict(zip(loop.const_inputs, loop.consts)), **{source: value for value, source in inside.items()}}
    return loop_node(
        Builder().at(node, node.phase),
        consts,
        {source: (first, after) for (source, after), first in zip(body.updates, loop.carries)},
        dict(zip(loop.sequence_inputs, loop.sequences)),
        list(body.outputs.values()),
        body.nodes,
        loop.count,
        loop.reverse,
    )


def _composed(node: Node, build: Build, store: Store) -> Sequence[Value]:
    """The results of a transform: of a kernel of whole transforms if it is faster than products."""
    shape, dtype = _shape(node), node.types[0].dtype
    way, staged = _fastest(shape, dtype, build), _staged(node, shape, build, store)
    if staged is not None and seconds(staged, machine_for(build)) < way.seconds:
        return staged.outputs
    if int_attr(node.attrs, "axis") < node.input_types[0].rank - 1:
        return _at_the_end(node, build, store)
    return _products(node, shape, way, store)


def _shape(node: Node) -> Shape:
    """That of the transform with its axis at the end."""
    x, given, parts = node.input_types[0], given_of(node), PARTS[str_attr(node.attrs, "parts")]
    count, outputs = int_attr(node.attrs, "count"), int_attr(node.attrs, "outputs")
    return Shape(count, prod(x.ints) // given, len(node.inputs), given, 1, parts, outputs)


def _staged(node: Node, shape: Shape, build: Build, store: Store) -> Node | None:
    """The node of a kernel of whole transforms; None if there is none."""
    plan = plan_of_node(node)
    if not traits_of(build.target).has_transforms or plan is None:
        return None
    if not 0 < shape.batch * plan.length < I32_PADDED_ELEMENTS:
        return None
    table = store(plan.roots(int_attr(node.attrs, "sign")), node.types[0].dtype.computed)
    return Builder().at(node, node.phase).node(staged_fourier, *node.inputs, table, **node.attrs)


def _at_the_end(node: Node, build: Build, store: Store) -> list[Value]:
    """The results of the same transform of transposed tensors, transposed back."""
    b, axis = Builder().at(node, node.phase), int_attr(node.attrs, "axis")
    last = node.input_types[0].rank - 1
    order = (*(i for i in range(last + 1) if i != axis), axis)
    x = [b(transpose, each, perm=order) for each in node.inputs]
    y = _composed(b.node(fourier, *x, **{**node.attrs, "axis": last}), build, store)
    return [b(transpose, each, perm=tuple(map(order.index, range(last + 1)))) for each in y]


def _products(node: Node, shape: Shape, way: Way, store: Store) -> list[Value]:
    """The results by products with matrices; the axis is the last one."""
    b, x = Builder().at(node, node.phase), list(node.inputs)
    stages = Stages(b, store, Roots(shape.count, int_attr(node.attrs, "sign"), float_attr(node.attrs, "scale")))
    if node.attrs["twice"] == "given":
        x = _doubled(stages, x)
    y = _multiplied(node, shape, way, stages, x)
    return _doubled(stages, y) if node.attrs["twice"] == "results" else y


def _doubled(stages: Stages, values: Sequence[Value]) -> list[Value]:
    """Each number as often as it counts."""
    weights = shares(stages.roots.count, values[0].type.ints[-1])
    if max(weights) == 1.0:
        return list(values)
    weight = stages.stored(np.array(weights), values[0].type.dtype)
    return [stages.b(mul, value, weight) for value in values]


def _multiplied(node: Node, shape: Shape, way: Way, stages: Stages, x: Sequence[Value]) -> list[Value]:
    b, dtype = stages.b, node.types[0].dtype
    if not way.orders and not way.folded:
        return stages.whole(x, shape.outputs, shape.parts)
    *lead, given = x[0].type.ints
    rows = [b(reshape, _cast(b, each, dtype.computed), shape=(shape.batch, given)) for each in x]
    if way.folded:
        found = Folded(stages, given, shape.outputs).results(rows, shape.parts)
    else:
        found = stages.of_orders(rows, shape, way.orders)
    return [_cast(b, b(reshape, y, shape=(*lead, shape.outputs)), dtype) for y in found]


def _fastest(shape: Shape, dtype: DType, build: Build) -> Way:
    """The fastest way of products. Others than whole matrices must be clearly faster."""
    on_cores = traits_of(build.target).has_tensor_cores
    machine = machine_for(build)
    ways, own = Ways(machine, dtype.computed), Ways(machine, dtype)
    whole = Way((), own.whole(shape))
    if not shape.batch or (build.precision.tf32 and on_cores and not dtype.is_half):
        return whole
    rows = shape.inputs * shape.given + len(shape.parts) * shape.outputs
    casts = own.moving(shape.batch * rows) if dtype.is_half else 0.0
    able = [way for way in (ways.several(shape), ways.folded(shape)) if way is not None]
    best = min(able, key=lambda way: way.seconds, default=whole)
    best = dataclasses.replace(best, seconds=best.seconds + casts)
    return best if best.seconds < SURE * whole.seconds else whole


def _cast(b: Builder, x: Value, dtype: DType) -> Value:
    return x if x.type.dtype is dtype else b(cast, x, dtype=dtype)
