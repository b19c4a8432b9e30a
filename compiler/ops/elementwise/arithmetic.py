"""The base of all elementwise ops, and arithmetic: add, sub, mul, div, neg, abs, sign.

Shapes broadcast as in numpy. Integers wrap around on overflow and stay integers; ``div`` accepts only floats.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Mismatch, Pointwise, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

Gradients = Sequence[Value | None]


def only(dys: Gradients) -> Value:
    """The gradient of the only output."""
    assert len(dys) == 1 and dys[0] is not None
    return dys[0]


_OF_KIND: Final = {
    "any": frozenset(DType),
    "float": frozenset(d for d in DType if d.is_float),
    "int": frozenset(d for d in DType if d.is_int),
    "number": frozenset(DType) - {DType.B1},
    "bool": frozenset({DType.B1}),
}


def require_kind(op: str, dtype: DType, kind: str) -> None:
    """Raises Mismatch unless ``dtype`` has this kind: float, int, number (int or float), bool, any."""
    if dtype in _OF_KIND[kind]:
        return
    wanted, help = {
        "float": ("a float tensor", 'convert it: `cast(x, "float")`'),
        "int": ("an integer tensor", 'convert it: `cast(x, "i32")`'),
        "number": ("numbers", 'convert it: `cast(x, "float")`'),
        "bool": ("a b1 tensor", "compare it: `x != 0`"),
    }[kind]
    raise Mismatch(f"`{op}` needs {wanted}, not {dtype}", help)


class Elementwise(Pointwise):
    """A pointwise op whose reference implementation is one numpy expression.

    ``accepts`` names the kind of dtype (see ``require_kind``); all inputs have the same dtype, which is also the
    output's. Values that are not finite follow IEEE 754, as in numpy, without a warning.
    """

    accepts: ClassVar[str] = "number"

    @abstractmethod
    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        """The output in numpy, an array or a numpy scalar."""

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        dtype = super().result(dtypes, attrs)
        require_kind(self.name, dtype, self.accepts)
        return dtype

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(self.compute(attrs, *xs))]  # for rank 0 numpy returns scalars


class Unary(Function):
    """The function of an op with one input and no attributes; its page is the op's page."""

    def __init__(self, op: Pointwise) -> None:
        self.op = op
        self.name = op.name  # type: ignore[misc]
        self.__doc__ = op.__doc__

    def build(self, call: Call, x: Operand) -> Value:
        return call.emit(self.op, *call.operands(x))


class Binary(Function):
    """The function of an op with two inputs and no attributes; its page is the op's page."""

    def __init__(self, op: Pointwise) -> None:
        self.op = op
        self.name = op.name  # type: ignore[misc]
        self.__doc__ = op.__doc__

    def build(self, call: Call, x: Operand, y: Operand) -> Value:
        return call.emit(self.op, *call.operands(x, y))


class Add(Elementwise):
    """add(x, y): ``x + y``.

    given: x: [B, 8], y: [8]
    >>> x + y
    """

    name = "add"
    cheap = True
    arity = 2

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return xs[0] + xs[1]

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.add(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return only(dys), only(dys)


class Sub(Elementwise):
    """sub(x, y): ``x - y``.

    given: x: [B, 8], y: [8]
    >>> x - y
    """

    name = "sub"
    cheap = True
    arity = 2

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return xs[0] - xs[1]

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.subtract(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return only(dys), b(neg, only(dys))


class Mul(Elementwise):
    """mul(x, y): ``x * y``.

    given: x: [B, 8], y: [8]
    >>> 2 * x * y
    """

    name = "mul"
    cheap = True
    arity = 2
    needs = (frozenset({"x0", "x1"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return xs[0] * xs[1]

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.multiply(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, y = node.inputs
        return b(mul, only(dys), y), b(mul, only(dys), x)


class Div(Elementwise):
    """div(x, y): ``x / y`` of float tensors; ``x / 0`` is an infinity, ``0 / 0`` is nan.

    given: x: [B, 8], y: [8]
    >>> x / (y * y + 1)
    """

    name = "div"
    arity = 2
    accepts = "float"
    needs = (frozenset({"x1", "y0"}), frozenset({"x0", "x1"}))

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        if all(d.is_int for d in dtypes):
            raise Mismatch("`/` needs float tensors", 'use `floordiv`, or `cast(x, "float")` first')
        return super().result(dtypes, attrs)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return xs[0] / xs[1]

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.divide(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        dx = b(div, only(dys), node.inputs[1])
        return dx, b(neg, b(mul, dx, node.out))


class Neg(Elementwise):
    """neg(x): ``-x``.

    given: x: [B, 8]
    >>> -x
    """

    name = "neg"
    cheap = True
    arity = 1

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        if dtypes[0].is_unsigned:
            raise Mismatch(f"{dtypes[0]} has no negative numbers", 'convert it: `cast(x, "i64")`')
        return super().result(dtypes, attrs)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return -xs[0]

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.negative(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(neg, only(dys)),)


class Abs(Elementwise):
    """abs(x): the absolute value. Its gradient at 0 is 0.

    given: x: [B, 8]
    >>> abs(x)
    """

    name = "abs"
    cheap = True
    arity = 1
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("abs", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.abs(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(mul, only(dys), b(sign, node.inputs[0])),)


class Sign(Elementwise):
    """sign(x): -1, 0 or 1; 0.0 for both zeros, nan for nan. No gradient flows through it.

    given: x: [B, 8]
    >>> sign(x)
    """

    name = "sign"
    arity = 1

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("sign", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.sign(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)


add = register(Add())
sub = register(Sub())
mul = register(Mul())
div = register(Div())
neg = register(Neg())
abs_ = register(Abs())
sign = register(Sign())

for _binary in (add, sub, mul, div):
    function(Binary(_binary))
for _unary in (neg, abs_, sign):
    function(Unary(_unary))


def scaled(b: Builder, factor: float, x: Value) -> Value:
    """``factor * x`` for gradients."""
    return b(mul, x, constant(b, factor, x))
