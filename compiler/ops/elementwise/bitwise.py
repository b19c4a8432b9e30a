"""Bits of integers: bitwise_and, bitwise_or, bitwise_xor, bitwise_not, and shifts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import function
from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import Builder, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.elementwise.arithmetic import Binary, Elementwise, Gradients, Unary
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Bitwise(Elementwise):
    """Two integer tensors of one dtype, bit by bit. No gradient flows through it."""

    arity = 2
    accepts = "int"
    function: ClassVar[str]

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call(self.function, *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return getattr(np, self.name)(*xs)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,) * self.arity


class BitwiseAnd(Bitwise):
    """bitwise_and(x, y): the bits that are 1 in both, of integer tensors. Of b1 tensors, use ``logical_and``.

    given: t: i32[B]
    >>> bitwise_and(t, 7)
    """

    name = "bitwise_and"
    function = "bitand"


class BitwiseOr(Bitwise):
    """bitwise_or(x, y): the bits that are 1 in at least one, of integer tensors.

    given: t: i32[B]
    >>> bitwise_or(t, 1)
    """

    name = "bitwise_or"
    function = "bitor"


class BitwiseXor(Bitwise):
    """bitwise_xor(x, y): the bits that differ, of integer tensors.

    given: t: i32[B]
    >>> bitwise_xor(t, 1)
    """

    name = "bitwise_xor"
    function = "bitxor"


class BitwiseLeftShift(Bitwise):
    """bitwise_left_shift(x, y): ``x`` moved up by ``y`` bits; 0 if ``y`` is negative or not less than the width.

    given: t: i32[B]
    >>> bitwise_left_shift(t, 2)
    """

    name = "bitwise_left_shift"
    function = "shl"

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.left_shift(*xs)


class BitwiseRightShift(Bitwise):
    """bitwise_right_shift(x, y): ``x`` moved down by ``y`` bits, filled with its sign.

    If ``y`` is negative or not less than the width, all bits are the sign's.

    given: t: i32[B]
    >>> bitwise_right_shift(t, 2)
    """

    name = "bitwise_right_shift"
    function = "shr"

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.right_shift(*xs)


class BitwiseNot(Bitwise):
    """bitwise_not(x): every bit inverted, which is ``-x - 1`` for signed integers.

    given: t: i32[B]
    >>> bitwise_not(t)
    """

    name = "bitwise_not"
    arity = 1

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return (0 - xs[0]) - 1


bitwise_and = register(BitwiseAnd())
bitwise_or = register(BitwiseOr())
bitwise_xor = register(BitwiseXor())
bitwise_left_shift = register(BitwiseLeftShift())
bitwise_right_shift = register(BitwiseRightShift())
bitwise_not = register(BitwiseNot())

for _op in (bitwise_and, bitwise_or, bitwise_xor, bitwise_left_shift, bitwise_right_shift):
    function(Binary(_op))
function(Unary(bitwise_not))
