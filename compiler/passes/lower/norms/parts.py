"""What the parts of a normalisation share: nodes in the dtype of its statistics."""

from __future__ import annotations

from dslc.compiler.ir.graph import Attr, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.constants.constant import constant


class Norm:
    """One normalisation, or its gradient: its input x, and the dtype of its statistics."""

    def __init__(self, node: Node) -> None:
        self.node, self.b = node, Builder().at(node, node.phase)
        self.x = node.inputs[0]
        self.inner = node.inputs[1].type.dtype

    def op(self, name: str, *inputs: Value | float, **attrs: Attr) -> Value:
        """A node; numbers become constants of the statistics' dtype."""
        like = self.node.inputs[1]
        values = [v if isinstance(v, Value) else constant(self.b, v, like) for v in inputs]
        return self.b(OPS[name], *values, **attrs)

    @property
    def is_wide(self) -> bool:
        """Whether x has the dtype of the statistics."""
        return self.x.type.dtype is self.inner

    def wide(self, v: Value) -> Value:
        return v if v.type.dtype is self.inner else self.op("cast", v, dtype=self.inner)

    def narrow(self, v: Value) -> Value:
        dtype = self.x.type.dtype
        return v if dtype is self.inner else self.op("cast", v, dtype=dtype)

    def as_wide(self, *numbers: int) -> tuple[Attr, ...]:
        """Steps of a body that cast these inputs to the dtype of the statistics; none if they have it."""
        return () if self.is_wide else tuple(("cast", (n,), (("dtype", self.inner),)) for n in numbers)
