"""What optimizers of whole tensors are built of: nodes of ordinary ops."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.compiler.ir.graph import Attr, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.nonfinite import nonfinite


class Emitted:
    """Builds nodes of a dtype. Operands may be numbers."""

    def __init__(self, b: Builder, dtype: DType) -> None:
        self.b = b
        self.dtype = dtype

    def __call__(self, name: str, *xs: Value | float, **attrs: Attr) -> Value:
        return self.b(OPS[name], *(x if isinstance(x, Value) else self.number(x) for x in xs), **attrs)

    def number(self, value: float) -> Value:
        return self.b(OPS["full"], value=float(value), dtype=self.dtype, shape=())

    def toward(self, start: Value, end: Value, share: float | Value) -> Value:
        """``start + share * (end - start)``."""
        return self("add", start, self("mul", self("sub", end, start), share))

    def size(self, x: Value) -> Value:
        """The root of the mean square of all elements, a scalar."""
        return self("sqrt", self.mean_square(x, range(x.type.rank), keep=False))

    def mean_square(self, x: Value, over: Sequence[int], keep: bool) -> Value:
        return self("mean", self("mul", x, x), over=tuple(over), keep=keep)

    def norm(self, x: Value) -> Value:
        """The root of the sum of squares of all elements, a scalar."""
        return self("sqrt", self("sum", self("mul", x, x), over=tuple(range(x.type.rank)), keep=False))

    def shrunk(self, param: Value, lr: Value, weight_decay: float) -> Value:
        """The parameter times ``1 - lr*weight_decay``."""
        return self("mul", param, self("sub", 1.0, self("mul", lr, weight_decay))) if weight_decay else param

    def known(self, grad: Value) -> tuple[Value, Value]:
        """Where the gradient is finite; the gradient, 0 elsewhere."""
        finite = self("isfinite", grad)
        return finite, self("where", finite, grad, 0.0)

    def flag(self, grad: Value) -> Value:
        """b1[]: whether some element is not finite."""
        return self("reshape", self.b(nonfinite, grad), shape=())
