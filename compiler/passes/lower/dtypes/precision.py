"""Assigns dtypes to the checker's abstract ``float``.

Before::

    %0 = param w : [4]
    %1 = exp %0 : [4]  # a forward
    %2, %3 = sgd_update %0, %1, ... : [4], b1[]  # w update

After, with ``compute=f32, params=f64``::

    %0 = param w : f64[4]
    %1 = cast %0 {dtype=f32} : f32[4]  # a forward
    %2 = exp %1 : f32[4]  # a forward
    %3 = cast %2 {dtype=f64} : f64[4]  # w update
    %4, %5 = sgd_update %0, %3, ... : f64[4], b1[]  # w update

Forward and backward nodes compute in ``compute``, the update phase and initial values in the dtype of the state. Float
inputs, stored constants, scalars and results have the dtype of the boundary, and what shards add up has ``shared``.
What one shard gives keeps its 16 bits, which the sum reads; of micro-batches, whose sums it is, it has ``shared``, too.
Other dtypes stay as they are. Idempotent.

If ``compute`` has 16 bits, the train section (loss, metrics and their gradients) computes in f32, and so do the weights
and statistics of normalisations (``Op.statistics``), the nodes of ``wide.py``, and those that the source asks for
(``Precision.nodes``), with their gradients. What ``predict`` computes from weights alone it computes in f32, too, once
after they change. Of a gradient that the model or its loss uses (``Phase.GRADIENT``), only the products have 16 bits;
all its nodes belong to the forward pass from here on. In an f32 model such nodes compute in bf16, except in the train
section. All floats of a loop have one dtype: f32 if ``compute`` has 16 bits, since its steps round the same values
again and again. On tensor cores the factors of its matrix products then have 16 bits; their sums are not rounded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from dslc.base.errors import BuildError
from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.ir.build import SHARD, Build, Precision
from dslc.compiler.ir.graph import Attr, Attrs, Body, Graph, Input, Kind, Node, Phase, Value, order
from dslc.compiler.ir.op import OPS, PRODUCT_KINDS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import body_of, scan
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.passes.lower.dtypes.wide import from_weights, in_train_section, wide

_HALF = (DType.BF16, DType.F16)


def precision(program: Program, build: Build) -> Program:
    """The pass. Raises BuildError E0602 for a dtype in which the target, or numpy as its provider, does not compute."""
    asked, traits = build.precision, traits_of(build.target)
    for what, dtype, known in (
        ("compute", asked.compute, traits.compute_dtypes),
        ("params", asked.params, traits.param_dtypes),
    ):
        if dtype.value not in known:
            raise BuildError(
                "E0602",
                f"the target {build.target} has no {what} in {dtype}, only in {' and '.join(known)}",
                place="precision",
                help="--precision f32",
            )
    if program.entry == "init":  # drawn in the dtype of the state or f32, not rounded to that of the products
        asked = dataclasses.replace(asked, compute=DType.F32 if asked.params in _HALF else asked.params)
    halves = asked.compute if asked.compute in _HALF and traits.has_tensor_cores else None
    given_in_halves = build.train is not None and build.train.accumulate == 1
    alone = from_weights(program.graph) if program.entry == "predict" and build.prepare else set()
    graph = _Typing(program.graph, asked, halves, given_in_halves=given_in_halves, alone=alone).run()
    if traits.has_reference and build.provider == "reference":
        _refuse_bf16(graph)
    return dataclasses.replace(program, graph=graph)


def _refuse_bf16(graph: Graph) -> None:
    """Raises E0602 for bf16, which numpy lacks."""
    for node in graph.nodes:
        if any(type.dtype is DType.BF16 for type in node.types):
            raise BuildError(
                "E0602",
                f"numpy has no bf16, the dtype of this `{node.op.name}`",
                place=str(node.span) if node.span else node.name,
                help="build with --precision f32, or with --providers auto, whose kernels compute bf16",
            )


class _Typing:
    """``halves``: the dtype of the factors of products in loops that otherwise compute in f32; None for the loop's.
    ``in_loop``: the graph is the body of such a loop. ``given_in_halves``: what a shard gives keeps its 16 bits.
    ``alone``: nodes that compute in f32 instead of 16 bits."""

    def __init__(
        self,
        graph: Graph,
        asked: Precision,
        halves: DType | None,
        in_loop: bool = False,
        given_in_halves: bool = False,
        alone: Set[Node] = frozenset(),
    ) -> None:
        self.graph = graph
        self.asked = asked
        self.halves = halves
        self.in_loop = in_loop
        self.given_in_halves = given_in_halves
        self.alone = alone
        self.nodes = dict(asked.nodes)
        if asked.compute in _HALF:
            self.nodes = dict.fromkeys(wide(graph, asked.nodes), DType.F32) | self.nodes
        self.new: dict[Value, Value] = {}
        self.casts: dict[tuple[Value, DType], Value] = {}

    def run(self) -> Graph:
        graph = self.graph
        inputs = {source: self._input(source) for source in graph.inputs}
        if all(i is j for i, j in inputs.items()) and not any(map(_is_unready, graph.nodes)):
            return graph
        for node in graph.nodes:
            self._node(node)
        outputs = {}
        for name, value in graph.outputs.items():
            dtype = self._given(value) if name.startswith(SHARD) else self.asked.boundary
            made = value.producer
            phase = Phase.BACKWARD if isinstance(made, Node) and made.phase is Phase.BACKWARD else Phase.FORWARD
            outputs[name] = self._as(value, dtype, Builder(name=name, span=made.span, phase=phase))
        updates = []
        for source, value in graph.updates:
            b = Builder(name=source.name, span=source.span, phase=Phase.UPDATE)
            updates.append((inputs[source], self._as(value, inputs[source].value.type.dtype, b)))
        roots = [*outputs.values(), *(v for _, v in updates)]
        return Graph(tuple(inputs.values()), order(roots), outputs, tuple(updates))

    def _given(self, value: Value) -> DType:
        """The dtype of what a shard gives."""
        own, shared = self.new[value].type.dtype, self.asked.shared
        return own if own in _HALF and self.given_in_halves and shared is DType.F32 else shared

    def _input(self, source: Input) -> Input:
        type_ = source.value.type
        if type_.dtype is DType.FLOAT:
            outside = source.kind in (Kind.DATA, Kind.SCALAR, Kind.CONSTANT)
            dtype = self.asked.boundary if outside else self.asked.params
            if source.kind is Kind.DATA and source.name.startswith(SHARD):
                dtype = self.asked.shared
            fresh = source.of_type(TensorType(dtype, type_.shape))
        else:
            fresh = source
        self.new[source.value] = fresh.value
        return fresh

    def _node(self, node: Node) -> None:
        dtype = self.asked.params if node.phase is Phase.UPDATE else self.asked.compute
        own = self.nodes.get((node.name, node.span))
        if dtype in _HALF and (in_train_section(node) or own is DType.F32 or node in self.alone):
            dtype = DType.F32
        elif own is DType.BF16 and node.phase is not Phase.UPDATE and not in_train_section(node):
            dtype = own
        if node.op is scan:
            half = dtype in _HALF or self.in_loop
            self._loop(node, DType.F32 if dtype in _HALF else dtype, self.halves if half else None)
            return
        if self.in_loop and self.halves is not None and own is not DType.F32 and _is_product(node):
            self._product(node, self.halves)
            return
        if dtype in _HALF and node.phase is Phase.GRADIENT and node.op.kernel_kind not in PRODUCT_KINDS:
            dtype = DType.F32  # of a gradient that the model or its loss uses, only products, for the tensor cores
        b = Builder().at(node, Phase.FORWARD if node.phase is Phase.GRADIENT else node.phase)
        statistic = DType.F32 if dtype in _HALF else dtype
        statistics = node.op.statistics
        inputs = tuple(self._as(v, statistic if i in statistics else dtype, b) for i, v in enumerate(node.inputs))
        attrs = _concrete(node.attrs, dtype)
        if attrs is node.attrs and DType.FLOAT not in {t.dtype for t in (*node.types, *node.input_types)}:
            fresh = node.with_inputs(inputs)
            fresh = fresh if b.phase is node.phase else fresh.replaced(phase=b.phase)
        else:
            fresh = b.node(node.op, *inputs, **attrs)
        self.new.update(zip(node.outputs, fresh.outputs))

    def _product(self, node: Node, half: DType) -> None:
        """A product of matrices with 16-bit factors, whose sums stay in f32."""
        b = Builder().at(node, Phase.FORWARD if node.phase is Phase.GRADIENT else node.phase)
        inputs = [self._as(v, half, b) for v in node.inputs]
        self.new[node.out] = b(node.op, *inputs, **node.attrs, dtype=DType.F32)

    def _loop(self, node: Node, dtype: DType, halves: DType | None) -> None:
        """A loop, all of whose floats have one dtype. ``halves``: that of its products' factors, if it is another."""
        b = Builder().at(node, Phase.FORWARD if node.phase is Phase.GRADIENT else node.phase)
        asked = {} if halves is None else {at: own for at, own in self.asked.nodes.items() if own is DType.F32}
        inside = Precision(dtype, dtype, tf32=self.asked.tf32, nodes=asked)
        body = _Typing(body_of(node.attrs), inside, halves, in_loop=halves is not None).run()
        inputs = tuple(self._as(v, dtype, b) for v in node.inputs)
        fresh = b.node(scan, *inputs, **{**node.attrs, "loop": Body(body)})
        self.new.update(zip(node.outputs, fresh.outputs))

    def _as(self, old: Value, dtype: DType, b: Builder) -> Value:
        """The new value of ``old``, cast to ``dtype`` if ``old`` was an abstract float."""
        value = self.new[old]
        if old.type.dtype is not DType.FLOAT or value.type.dtype is dtype:
            return value
        key = (value, dtype)
        if key not in self.casts:
            self.casts[key] = b(OPS["cast"], value, dtype=dtype)
        return self.casts[key]


def _is_product(node: Node) -> bool:
    return node.op.name == "matmul" and node.types[0].dtype is DType.FLOAT and node.types[0].rank == 2


def _is_unready(node: Node) -> bool:
    return node.phase is Phase.GRADIENT or _is_abstract(node)


def _is_abstract(node: Node) -> bool:
    return any(t.dtype is DType.FLOAT for t in node.types) or any(_holds_float(a) for a in node.attrs.values())


def _holds_float(attr: Attr) -> bool:
    return attr is DType.FLOAT or (isinstance(attr, tuple) and any(_holds_float(a) for a in attr))


def _concrete(attrs: Attrs, dtype: DType) -> Attrs:
    if not any(_holds_float(a) for a in attrs.values()):
        return attrs
    return {k: _concrete_attr(a, dtype) for k, a in attrs.items()}


def _concrete_attr(attr: Attr, dtype: DType) -> Attr:
    if isinstance(attr, tuple):
        return tuple(_concrete_attr(a, dtype) for a in attr)
    return dtype if attr is DType.FLOAT else attr
