"""A stand-in for the checker: records what a function builds, and runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from op_laws.evaluation import run, type_of

from dslc.compiler.ir.function import Init, Number, Operand, Shape
from dslc.compiler.ir.graph import Attr, Input, Kind, Value, order
from dslc.compiler.ir.op import Builder, Op
from dslc.compiler.ir.pull_back import pull_back
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops import registry
from dslc.compiler.ops.constants.literal import attributes

FUNCTIONS = registry.functions()


class Recorder:
    """The protocol ``Call``, with all tensors in ``dtype``. ``inits`` holds each parameter's and buffer's start."""

    def __init__(self, dtype: DType = DType.FLOAT) -> None:
        self.dtype = dtype
        self.builder = Builder(name="here")
        self.leaves: dict[str, Value] = {}
        self.inits: dict[str, Init] = {}
        self.updates: dict[Value, Value] = {}

    def tensor(self, *shape: Size, dtype: DType | None = None) -> Value:
        return Input("x", Kind.DATA, TensorType(dtype or self.dtype, shape)).value

    def build(self, name: str, *args: Any, **named: Any) -> Any:
        """Calls a function of the language."""
        return FUNCTIONS[name].build(self, *args, **named)

    def emit(self, op: Op, *inputs: Value, **attrs: Attr) -> Value:
        return self.emit_all(op, *inputs, **attrs)[0]

    def emit_all(self, op: Op, *inputs: Value, **attrs: Attr) -> tuple[Value, ...]:
        concrete = {n: self.dtype if v is DType.FLOAT else v for n, v in attrs.items()}
        return self.builder.node(op, *inputs, **concrete).outputs

    def param(self, leaf: str, shape: Shape, init: Init) -> Value:
        return self._leaf(leaf, shape, init, Kind.PARAM)

    def buffer(self, leaf: str, shape: Shape, init: Init) -> Value:
        return self._leaf(leaf, shape, init, Kind.BUFFER)

    def _leaf(self, leaf: str, shape: Shape, init: Init, kind: Kind) -> Value:
        assert leaf not in self.leaves
        self.inits[leaf] = init
        self.leaves[leaf] = Input(leaf, kind, TensorType(self.dtype, tuple(shape))).value
        return self.leaves[leaf]

    def update(self, leaf: str, new: Value) -> None:
        self.updates[self.leaves[leaf]] = new

    def full(self, value: Number, dtype: DType = DType.FLOAT, shape: Shape = ()) -> Value:
        return self.emit(registry.ops()["full"], value=value, dtype=dtype, shape=tuple(shape))

    def constant(self, numbers: np.ndarray, dtype: DType = DType.FLOAT) -> Value:
        return self.emit(registry.ops()["literal"], **attributes(numbers, dtype))

    def operands(self, *xs: Operand) -> tuple[Value, ...]:
        dtypes = [x.type.dtype for x in xs if isinstance(x, Value)]
        dtype = dtypes[0] if dtypes else self.dtype
        return tuple(x if isinstance(x, Value) else self.full(x, dtype) for x in xs)

    def random(self, purpose: str, type_shape: Shape) -> Any:
        raise AssertionError("nothing random here")


def value_of(x: np.ndarray) -> Value:
    """An input of the array's type."""
    return Input("x", Kind.DATA, type_of(x)).value


def compute(
    name: str, xs: Sequence[np.ndarray], leaves: Mapping[str, np.ndarray] | None = None, **named: Any
) -> np.ndarray:
    """The result of a function on arrays in f64, with these parameters and buffers."""
    call = Recorder(DType.F64)
    values = [value_of(x) for x in xs]
    y = call.build(name, *values, **named)
    feeds = dict(zip(values, xs)) | {call.leaves[leaf]: array for leaf, array in (leaves or {}).items()}
    assert set(leaves or {}) == set(call.leaves)
    return run([y], feeds)[0]


def gradients(
    name: str, xs: Sequence[np.ndarray], dy: np.ndarray, **named: Any
) -> tuple[np.ndarray, list[np.ndarray | None]]:
    """The result of a function on arrays, floats in f64, and for each the gradient of ``dy`` times the result; None: no
    gradient flows to it."""
    values = [value_of(x) for x in xs]
    call = Recorder(DType.F64)
    y, weight = call.build(name, *values, **named), value_of(dy)
    nodes = order([y])
    terms = {y: [weight]}
    reached = {v for node in nodes for v in (*node.inputs, *node.outputs)}
    pull_back(nodes, terms, reached, _total)
    feeds = {**dict(zip(values, xs)), weight: dy}
    found = [run([_total(terms[v])], feeds)[0] if v in terms else None for v in values]
    return run([y], feeds)[0], found


def _total(terms: Sequence[Value]) -> Value:
    return reduce(lambda x, y: Builder()(registry.ops()["add"], x, y), terms)
