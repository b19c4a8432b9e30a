"""floordiv and mod: division rounded down, and its remainder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import function
from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import Builder, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.elementwise.arithmetic import Binary, Elementwise, Gradients, mul, neg, only
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class FloorDiv(Elementwise):
    """floordiv(x, y): ``x // y``, rounded down. An integer divided by zero gives 0. No gradient flows through it.

    given: t: i32[B]
    >>> floordiv(t, 2)
    """

    name = "floordiv"
    wide = "position"
    arity = 2

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("floordiv", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.floor_divide(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return None, None


class Mod(Elementwise):
    """mod(x, y): the remainder ``x - (x // y) * y``, with the sign of ``y``. An integer modulo zero gives 0.

    given: t: i32[B]
    >>> mod(t, 2)
    """

    name = "mod"
    wide = "position"
    arity = 2
    needs = (frozenset({"x0", "x1"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("mod", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.mod(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return only(dys), b(neg, b(mul, only(dys), b(floordiv, *node.inputs)))


floordiv = register(FloorDiv())
mod = register(Mod())

for _op in (floordiv, mod):
    function(Binary(_op))
