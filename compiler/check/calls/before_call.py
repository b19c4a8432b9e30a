"""Parameters of a layer that was not called yet, if their shapes do not depend on the input of the first call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.check.calls.arguments import bind_function
from dslc.compiler.check.calls.given import Given
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Layer, Problem
from dslc.compiler.ir.fault import PackageFault
from dslc.compiler.ir.function import Function, Init, Number, Operand, Shape, operands_of
from dslc.compiler.ir.graph import Attr, Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Mismatch, Op
from dslc.compiler.ir.sizes import Dim, of_dim
from dslc.compiler.ir.types import DType, TensorType

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander

_LARGEST: Final = 2**20
_RANKS: Final = range(1, 6)  # of inputs of the layers that exist: from [n] to [B, C, D, H, W]


def known_parameters(layer: Layer, frame: Frame, expander: Expander) -> dict[str, tuple[Shape, Init]]:
    """The parameters of a function's layer whose shape and initialiser are the same for every input that the function
    takes; none of a block."""
    if not isinstance(layer.callee, Function):
        return {}
    found: dict[str, tuple[Shape, Init]] = {}
    varying: set[str] = set()
    for x in _inputs():
        for leaf, (shape, init) in _parameters(layer, layer.callee, x, frame, expander).items():
            if found.setdefault(leaf, (shape, init)) != (shape, init) or not all(isinstance(s, int) for s in shape):
                varying.add(leaf)
    return {leaf: known for leaf, known in found.items() if leaf not in varying}


def _inputs() -> Iterator[Value]:
    """A tensor of each rank, of ids and of floats, whose sizes may be anything."""
    for dtype in (DType.I32, DType.FLOAT):
        for rank in _RANKS:
            shape = tuple(of_dim(Dim(f"size {i}", 1, _LARGEST, 1)) for i in range(rank))
            yield Input("x", Kind.DATA, TensorType(dtype, shape)).value


def _parameters(
    layer: Layer, function: Function, x: Value, frame: Frame, expander: Expander
) -> dict[str, tuple[Shape, Init]]:
    """The parameters that a call with this input makes, up to the point where the function refuses it."""
    trial = _Trial()
    args = [Given(name, value, place, layer.call) for name, value, place in layer.args]
    given = [Given(None, x, layer.call.span, layer.call), *args]
    try:
        positional, named = bind_function(function, given, layer.call.span, frame, expander)
        function.build(trial, *positional, **named)
    except (Mismatch, Problem, PackageFault):
        pass  # the first call reports what is wrong
    return trial.params


class _Trial:
    """A call that is not part of the model (ir/function.py: Call); it records the parameters."""

    def __init__(self) -> None:
        self.params: dict[str, tuple[Shape, Init]] = {}

    def emit(self, op: Op, *inputs: Value, **attrs: Attr) -> Value:
        return self.emit_all(op, *inputs, **attrs)[0]

    def emit_all(self, op: Op, *inputs: Value, **attrs: Attr) -> tuple[Value, ...]:
        return Node(op, inputs, op.infer([v.type for v in inputs], attrs), attrs).outputs

    def param(self, leaf: str, shape: Shape, init: Init) -> Value:
        self.params[leaf] = shape, init
        return self.buffer(leaf, shape, init)

    def buffer(self, leaf: str, shape: Shape, init: Init) -> Value:
        return Input(leaf, Kind.PARAM, TensorType(DType.FLOAT, tuple(shape))).value

    def update(self, leaf: str, new: Value) -> None:
        """Nothing is kept."""

    def full(self, value: Number, dtype: DType = DType.FLOAT, shape: Shape = ()) -> Value:
        return self.emit(OPS["full"], value=value, dtype=dtype, shape=shape)

    def constant(self, numbers: Any, dtype: DType = DType.FLOAT) -> Value:
        return Input("", Kind.CONSTANT, TensorType(dtype, numbers.shape)).value

    def operands(self, *xs: Operand) -> tuple[Value, ...]:
        return operands_of(self, xs)

    def random(self, purpose: str, type_shape: Shape) -> tuple[tuple[Value, Value, Value], dict[str, Attr]]:
        scalars = tuple(Input(name, Kind.SCALAR, TensorType(DType.I64, ())).value for name in ("seed", "step", "row"))
        return (scalars[0], scalars[1], scalars[2]), {"key": 0, "row_elements": 0}
