"""Pointwise ops of float tensors that are formulas: the op and its gradient are expression trees."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, only

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

#: Functions of trees whose op has another name.
_NAMED: Final = {"select": "where", "min": "minimum", "max": "maximum", "and": "logical_and", "or": "logical_or"}


class Formula(Elementwise):
    """An op whose numpy meaning is its scalar tree, evaluated, and whose gradients are trees, too, built from ops: so
    they have gradients themselves. ``backward`` gets the inputs, then the gradient of the result."""

    accepts = "float"

    @abstractmethod
    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        """The gradient of each input."""

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return tree.evaluate(self.scalar(attrs, *map(tree.argument, range(self.arity))), xs)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        values = [*node.inputs, only(dys)]
        found = self.backward(node.attrs, *map(tree.argument, range(len(values))))
        built: dict[int, Value] = {}
        return [_built(expr, values, b, built) for expr in found]


class Of1(Formula):
    """A formula of one input, which its gradient reads."""

    arity = 1
    needs: ClassVar[tuple[frozenset[str], ...]] = (frozenset({"x0"}),)


class Primitive(Of1):
    """A function that targets and numpy have by the op's name."""

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call(self.name, *xs)


class Flat(Of1):
    """A formula without a slope."""

    needs = (frozenset(),)

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        return ()

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)


def built(expr: Expr, values: Sequence[Value], b: Builder) -> Value:
    """The tree as ops, with ``values`` as its arguments."""
    return _built(expr, values, b, {})


def _built(expr: Expr, values: Sequence[Value], b: Builder, built: dict[int, Value]) -> Value:
    """The tree as ops; a part that stands in it several times is computed once. ``built``: parts by identity."""
    if expr.function == "arg":
        return values[expr.index]
    if id(expr) not in built:
        if expr.function == "const":
            built[id(expr)] = constant(b, float(expr.value), values[0])
        else:
            op = OPS[_NAMED.get(expr.function, expr.function)]
            built[id(expr)] = b(op, *[_built(arg, values, b, built) for arg in expr.args])
    return built[id(expr)]
