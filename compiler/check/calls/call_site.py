"""A call of a built-in function as that function sees it: it makes nodes, parameters, buffers and random draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import (
    Groups,
)
from dslc.compiler.ir.function import Init, Number, Operand, Shape, operands_of
from dslc.compiler.ir.graph import Attr, Value
from dslc.compiler.ir.op import OPS, Op
from dslc.compiler.ir.sizes import Poly, exact_div, product
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.constants.constant import as_attr
from dslc.compiler.ops.constants.literal import MOST_WRITTEN, attributes
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


class CallSite:
    """A call as its function sees it (ir/function.py: Call)."""

    def __init__(self, expander: Expander, frame: Frame, span: Span, node_path: str, param_path: str, groups: Groups):
        self.expander = expander
        self.frame = frame
        self.span = span
        self.node_path = node_path
        self.param_path = param_path
        self.groups = groups
        self.made_params = False

    def emit(self, op: Op, *inputs: Value, **attrs: Attr) -> Value:
        return self.expander.make(self.node_path, self.span, op, inputs, attrs, self.groups).out

    def emit_all(self, op: Op, *inputs: Value, **attrs: Attr) -> tuple[Value, ...]:
        return self.expander.make(self.node_path, self.span, op, inputs, attrs, self.groups).outputs

    def param(self, leaf: str, shape: Shape, init: Init) -> Value:
        self.made_params = True
        return self.expander.tensors.param(f"{self.param_path}.{leaf}", shape, init, self.groups, self.span)

    def buffer(self, leaf: str, shape: Shape, init: Init) -> Value:
        return self.expander.tensors.buffer(f"{self.param_path}.{leaf}", shape, init, self.span)

    def update(self, leaf: str, new: Value) -> None:
        self.expander.tensors.update_in_training(f"{self.param_path}.{leaf}", new)

    def full(self, value: Number, dtype: DType = DType.FLOAT, shape: Shape = ()) -> Value:
        return self.emit(OPS["full"], value=as_attr(value), dtype=dtype, shape=shape)

    def constant(self, numbers: Any, dtype: DType = DType.FLOAT) -> Value:
        if numbers.size <= MOST_WRITTEN:
            return self.emit(OPS["literal"], **attributes(numbers, dtype))
        return self.expander.tensors.constant("tensor", numbers, dtype, self.span)

    def operands(self, *xs: Operand) -> tuple[Value, ...]:
        return operands_of(self, xs)

    def random(self, purpose: str, type_shape: Shape) -> tuple[tuple[Value, Value, Value], dict[str, Attr]]:
        from dslc.compiler.ops.random.philox import key_of

        batch = self.expander.batch
        rows: Attr = 0
        if batch is not None and type_shape and isinstance(type_shape[0], Poly):
            rows = exact_div(product(type_shape), batch) or 0
        scalars = tuple(self.expander.tensors.scalar(name, DType.I64) for name in ("seed", "step", "row"))
        assert len(scalars) == 3
        return (scalars[0], scalars[1], scalars[2]), {"key": key_of(self.node_path, purpose), "row_elements": rows}
