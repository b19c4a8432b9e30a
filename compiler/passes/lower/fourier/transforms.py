"""Computes discrete Fourier transforms by products with matrices: a whole matrix, parts of it, or several small ones.

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
from dslc.compiler.cost import machine_for
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import Loop, loop_node, new_input, scan
from dslc.compiler.ir.stored import Stored
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import float_attr, int_attr, str_attr
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.products.fourier import PARTS, fourier
from dslc.compiler.ops.shape.views import reshape
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


def _composed(node: Node, build: Build, store: Store) -> list[Value]:
    """The results of a transform."""
    b, x, dtype = Builder().at(node, node.phase), list(node.inputs), node.types[0].dtype
    attrs = {name: int_attr(node.attrs, name) for name in ("count", "sign", "outputs")}
    stages = Stages(b, store, Roots(attrs["count"], attrs["sign"], float_attr(node.attrs, "scale")))
    *lead, given = x[0].type.ints
    shape = Shape(attrs["count"], prod(lead), len(x), given, 1, PARTS[str_attr(node.attrs, "parts")], attrs["outputs"])
    wide = DType.F32 if dtype.is_half else dtype
    rows = [b(reshape, _cast(b, each, wide), shape=(shape.batch, given)) for each in x]
    way = _fastest(shape, dtype, build)
    if way is None:
        return stages.whole(x, shape.outputs, shape.parts)
    if way.orders:
        found = stages.of_orders(rows, shape, way.orders)
    else:
        found = Folded(stages, given, shape.outputs).results(rows, shape.parts)
    return [_cast(b, b(reshape, y, shape=(*lead, shape.outputs)), dtype) for y in found]


def _fastest(shape: Shape, dtype: DType, build: Build) -> Way | None:
    """The way that is faster than products with whole matrices: of several stages, or of folded matrices, which have no
    order; None if there is none."""
    on_cores = traits_of(build.target).has_tensor_cores
    if not shape.batch or (build.precision.tf32 and on_cores and not dtype.is_half):
        return None
    machine, wide = machine_for(build), DType.F32 if dtype.is_half else dtype
    ways, own = Ways(machine, wide), Ways(machine, dtype)
    rows = shape.inputs * shape.given + len(shape.parts) * shape.outputs
    casts = own.moving(shape.batch * rows) if dtype.is_half else 0.0
    able = [way for way in (ways.several(shape), ways.folded(shape)) if way is not None]
    best = min(able, key=lambda way: way.seconds, default=None)
    return best if best is not None and best.seconds + casts < SURE * own.whole(shape) else None


def _cast(b: Builder, x: Value, dtype: DType) -> Value:
    return x if x.type.dtype is dtype else b(cast, x, dtype=dtype)
