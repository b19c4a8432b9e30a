"""triangular_solve: the solution of a system whose matrix is a triangle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, broadcast, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.algebra.matrices import as_given, batched, computed, product, require_square, triangle
from dslc.compiler.ops.attrs import bool_attr
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.elementwise.arithmetic import Gradients, neg, only, require_kind
from dslc.compiler.ops.elementwise.logic import logical_not
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class TriangularSolve(Op):
    """triangular_solve(t, b): x with ``t @ x = b``, of which only a triangle of ``t`` is read.

    ``t`` [*L, n, n], ``b`` and the result [*L, n, k]. Attributes: ``upper``: the triangle above the diagonal;
    ``transposed``: ``t.T @ x = b``; ``unit``: the diagonal counts as ones. Unknowns follow one after the other, and the
    terms of each are subtracted in that order.
    """

    name = "triangular_solve"
    wide = "exponent"
    statistics = (0, 1)
    needs = (frozenset({"x0", "y0"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        t, b = types
        for flag in ("upper", "transposed", "unit"):
            bool_attr(attrs, flag)
        assert t.dtype is b.dtype and t.dtype.is_float and not t.dtype.is_half and t.rank == b.rank >= 2
        assert t.shape[-1] == t.shape[-2] and t.shape[:-1] == b.shape[:-1]
        return (b,)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        """``db`` solves the transposed system; ``dt = -db @ x.T``, of the triangle that is read."""
        t, x = node.inputs[0], node.out
        upper, transposed, unit = (bool_attr(node.attrs, each) for each in ("upper", "transposed", "unit"))
        db = b(triangular_solve, t, only(dys), upper=upper, transposed=not transposed, unit=unit)
        whole = product(b, x, db, turn_y=True) if transposed else product(b, db, x, turn_y=True)
        mask = b(logical_not, triangle(b, t, -1 + unit)) if upper else triangle(b, t, -1 if unit else 0)
        return b(where, mask, b(neg, whole), constant(b, 0.0, whole)), db

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        t, b = (x.astype(np.result_type(x.dtype, np.float32)) for x in xs)
        t, x, count = t.swapaxes(-1, -2) if attrs["transposed"] else t, b.copy(), t.shape[-1]
        upwards = attrs["upper"] is not attrs["transposed"]
        with np.errstate(all="ignore"):
            for i in range(count - 1, -1, -1) if upwards else range(count):
                if not attrs["unit"]:
                    x[..., i, :] /= t[..., i, i, None]
                rest = slice(0, i) if upwards else slice(i + 1, count)
                x[..., rest, :] -= t[..., rest, i, None] * x[..., i, None, :]
        return [x.astype(xs[1].dtype)]

    def cost(self, node: Node) -> Cost:
        t, b = node.input_types
        return Cost(prod(b.ints) * b.ints[-2], t.bytes + 2 * b.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        axis = batched(axes, node.types[0].rank)
        return None if axis is None else (axis,)


triangular_solve = register(TriangularSolve())


def columns_of(name: str, a: TensorType, b: TensorType) -> bool:
    """Whether ``b`` is a vector for each matrix ``a``, as PyTorch's ``solve`` decides; else it is matrices. Raises
    Mismatch if it is neither."""
    require_square(name, a)
    require_kind(name, b.dtype, "float")
    if b.dtype is not a.dtype:
        raise Mismatch(f"`{name}` of {a} and {b}", f"use `cast` to give both {a.dtype} or {b.dtype}", "E0204")
    vectors = b.rank == 1 or (b.rank == a.rank - 1 and b.shape == a.shape[:-1])
    if b.rank < 1 or b.shape[-1 if vectors else -2] != a.shape[-1]:
        help = f"the right side has {a.shape[-1]} numbers, or rows [..., {a.shape[-1]}, k] for k systems"
        raise Mismatch(f"`{name}` of the matrix {a} and the right side {b}", help, "E0302")
    return vectors


def of_one_batch(call: Call, a: Value, b: Value, vectors: bool) -> tuple[Value, Value]:
    """Both with the same leading axes and in no 16 bits, and vectors as matrices of one column."""
    a, b = computed(call, a), computed(call, b)
    if vectors:
        b = call.emit(reshape, b, shape=(*b.type.shape, 1))
    lead = broadcast([a.type.shape[:-2], b.type.shape[:-2]])

    def expanded(x: Value) -> Value:
        shape = (*lead, *x.type.shape[-2:])
        return x if x.type.shape == shape else call.emit(expand, x, shape=shape)

    return expanded(a), expanded(b)


def without_column(call: Call, x: Value, vectors: bool) -> Value:
    """The vectors of matrices of one column."""
    return call.emit(reshape, x, shape=x.type.shape[:-1]) if vectors else x


class TriangularSolveFunction(Function):
    """triangular_solve(t, b, upper=false, transpose=false, unit=false): the ``x`` with ``t @ x = b``, for a triangle.

    ``t`` is [n, n] or a batch [..., n, n]; only its lower triangle is read, with ``upper`` the upper one. ``b`` is a
    vector [n] for each matrix, or [..., n, k] for k systems; axes before them broadcast. With ``transpose`` it solves
    ``t.T @ x = b``; with ``unit`` the diagonal counts as ones. A zero on the diagonal gives infinities or nan.

    given: x: [B, 4, 4], y: [B, 4]
    >>> triangular_solve(cholesky(x @ transpose(x) + eye(4)), y)
    """

    name = "triangular_solve"

    def build(
        self, call: Call, t: Value, b: Value, upper: bool = False, transpose: bool = False, unit: bool = False
    ) -> Value:
        vectors = columns_of(self.name, t.type, b.type)
        x = call.emit(
            triangular_solve, *of_one_batch(call, t, b, vectors), upper=upper, transposed=transpose, unit=unit
        )
        return as_given(call, without_column(call, x, vectors), b)


function(TriangularSolveFunction())
