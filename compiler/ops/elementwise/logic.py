"""Comparisons lt, le, gt, ge, eq, ne; logical_and, logical_or, logical_not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import function
from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import Builder, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.elementwise.arithmetic import Binary, Elementwise, Gradients, Unary
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Comparison(Elementwise):
    """A comparison: two tensors of one dtype give b1. Every comparison with nan is false, ``!=`` is true."""

    arity = 2
    ufunc: ClassVar[str]
    cheap = True

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        super().result(dtypes, attrs)
        return DType.B1

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call(self.name, *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return getattr(np, self.ufunc)(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return None, None


class Lt(Comparison):
    """lt(x, y): ``x < y``, as b1.

    given: x: [B, 8], y: [8]
    >>> x < y
    """

    name = "lt"
    ufunc = "less"


class Le(Comparison):
    """le(x, y): ``x <= y``, as b1.

    given: x: [B, 8], y: [8]
    >>> x <= y
    """

    name = "le"
    ufunc = "less_equal"


class Gt(Comparison):
    """gt(x, y): ``x > y``, as b1.

    given: x: [B, 8], y: [8]
    >>> x > y
    """

    name = "gt"
    ufunc = "greater"


class Ge(Comparison):
    """ge(x, y): ``x >= y``, as b1.

    given: x: [B, 8], y: [8]
    >>> x >= y
    """

    name = "ge"
    ufunc = "greater_equal"


class Eq(Comparison):
    """eq(x, y): ``x == y``, as b1.

    given: t: i32[B], u: i32[B]
    >>> t == u
    """

    name = "eq"
    ufunc = "equal"
    accepts = "any"


class Ne(Comparison):
    """ne(x, y): ``x != y``, as b1.

    given: t: i32[B], u: i32[B]
    >>> t != u
    """

    name = "ne"
    ufunc = "not_equal"
    accepts = "any"


class LogicalAnd(Elementwise):
    """logical_and(x, y): true where both are, of b1 tensors.

    given: x: [B, 8]
    >>> logical_and(x > 0, x < 1)
    """

    name = "logical_and"
    cheap = True
    arity = 2
    accepts = "bool"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("and", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.logical_and(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return None, None


class LogicalOr(Elementwise):
    """logical_or(x, y): true where at least one is, of b1 tensors.

    given: x: [B, 8]
    >>> logical_or(x < 0, x > 1)
    """

    name = "logical_or"
    cheap = True
    arity = 2
    accepts = "bool"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("or", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.logical_or(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return None, None


class LogicalNot(Elementwise):
    """logical_not(x): true where ``x`` is false, of a b1 tensor.

    given: x: [B, 8]
    >>> logical_not(x > 0)
    """

    name = "logical_not"
    cheap = True
    arity = 1
    accepts = "bool"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("not", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.logical_not(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)


lt = register(Lt())
le = register(Le())
gt = register(Gt())
ge = register(Ge())
eq = register(Eq())
ne = register(Ne())
logical_and = register(LogicalAnd())
logical_or = register(LogicalOr())
logical_not = register(LogicalNot())


for _op in (lt, le, gt, ge, eq, ne, logical_and, logical_or):
    function(Binary(_op))
function(Unary(logical_not))
