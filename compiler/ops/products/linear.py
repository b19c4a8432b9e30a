"""matmul, and the linear layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.function import Call, Function, Init, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, broadcast, register
from dslc.compiler.ir.sizes import Poly, Size, product, to_fix
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, dtype_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, add, only, require_kind
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.broadcast import sum_to
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


#: Rows of a product up to which it takes as long as memory gives its weights, as in the generation of text: passes and
#: targets have kernels of their own for these.
FEW_ROWS: Final = 8


class Matmul(Op):
    """matmul(a, b): the matrix product over the last two axes; leading axes broadcast as in numpy.

    Attributes ``transpose_a``, ``transpose_b``: swap the last two axes of that side first. Both have rank >= 2. With
    the attribute ``dtype``, f32, which the compiler adds, a product of 16-bit factors is not rounded to their dtype.
    """

    name = "matmul"
    kernel_kind = "product"
    needs = (frozenset({"x0", "x1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        a, b = types
        assert a.rank >= 2 and b.rank >= 2, "matmul of tensors with fewer than two axes"
        if a.dtype is not b.dtype:
            raise Mismatch(f"`matmul` of {a.dtype} and {b.dtype}", "convert one side with `cast`", "E0204")
        require_kind("matmul", a.dtype, "float")
        rows, left = _matrix(a, bool_attr(attrs, "transpose_a"))
        right, columns = _matrix(b, bool_attr(attrs, "transpose_b"))
        if left != right:
            help = f"transpose the right side: {b} has {columns} columns" if left == columns else None
            raise Mismatch(f"left has {left} columns, right has {right} rows", help)
        dtype = dtype_attr(attrs) if "dtype" in attrs else a.dtype
        assert dtype is a.dtype or (dtype is DType.F32 and a.dtype.is_half), f"a product of {a.dtype} in {dtype}"
        return (TensorType(dtype, (*broadcast([a.shape[:-2], b.shape[:-2]]), rows, columns)),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        left, right = node.inputs
        ta, tb = bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")
        dy = only(dys)
        if ta:
            d_left = b(matmul, right, dy, transpose_a=tb, transpose_b=True)
        else:
            d_left = b(matmul, dy, right, transpose_a=False, transpose_b=not tb)
        if right.type.rank == 2 and left.type.rank > 2 and not ta:
            # one product over all rows, not one per matrix of the batch followed by a sum
            left, dy = _flat(left, b), _flat(dy, b)
        if tb:
            d_right = b(matmul, dy, left, transpose_a=True, transpose_b=ta)
        else:
            d_right = b(matmul, left, dy, transpose_a=not ta, transpose_b=False)
        return [
            d if d.type.shape == v.type.shape else b(sum_to, d, shape=v.type.shape)
            for d, v in zip((d_left, d_right), node.inputs)
        ]

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        a, b = (x.astype(np.float32) if x.dtype == np.float16 else x for x in xs) if "dtype" in attrs else xs
        right = b.swapaxes(-1, -2) if attrs["transpose_b"] else b
        if b.ndim == 2 and a.ndim > 2 and not attrs["transpose_a"]:
            y = a.reshape(math.prod(a.shape[:-1]), a.shape[-1]) @ right  # one call of BLAS
            return [y.reshape(*a.shape[:-1], y.shape[-1])]
        return [np.matmul(a.swapaxes(-1, -2) if attrs["transpose_a"] else a, right)]

    def cost(self, node: Node) -> Cost:
        a = node.input_types[0]
        inner = a.ints[-2] if bool_attr(node.attrs, "transpose_a") else a.ints[-1]
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(2 * math.prod(node.types[0].ints) * inner, moved)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        rank = node.types[0].rank
        found: set[int] = set()
        for side, (axis, t) in enumerate(zip(axes, node.input_types)):
            if axis is None:
                continue
            if axis < t.rank - 2:
                found.add(axis + rank - t.rank)
                continue
            # rows of the left side and columns of the right are independent; the inner axis is summed over
            is_row = (axis == t.rank - 2) is not bool_attr(node.attrs, ("transpose_a", "transpose_b")[side])
            if is_row is not (side == 0):
                return None
            found.add(rank - 2 + side)
        return None if len(found) > 1 else (found.pop() if found else None,)


def _matrix(t: TensorType, swapped: bool) -> tuple[Size, Size]:
    rows, columns = t.shape[-2:]
    return (columns, rows) if swapped else (rows, columns)


def _flat(x: Value, b: Builder) -> Value:
    """All axes but the last as one."""
    return b(reshape, x, shape=(product(x.type.shape[:-1]), x.type.shape[-1]))


matmul = register(Matmul())


class MatmulFunction(Function):
    """matmul(a, b): the matrix product, written ``a @ b``; leading axes broadcast, a side with one axis is a vector.

    given: x: [B, 8], w: [8, 3]
    >>> x @ w
    """

    name = "matmul"

    def build(self, call: Call, a: Value, b: Value) -> Value:
        if not a.type.rank or not b.type.rank:
            raise Mismatch("`@` of a tensor without axes", "use `*`")
        left = a if a.type.rank > 1 else call.emit(reshape, a, shape=(1, *a.type.shape))
        right = b if b.type.rank > 1 else call.emit(reshape, b, shape=(*b.type.shape, 1))
        y = call.emit(matmul, left, right, transpose_a=False, transpose_b=False)
        shape = y.type.shape
        if a.type.rank == 1:
            shape = (*shape[:-2], shape[-1])
        if b.type.rank == 1:
            shape = shape[:-1]
        return y if shape == y.type.shape else call.emit(reshape, y, shape=shape)


class Linear(Function):
    """linear(x, out, bias=true, init=none, bias_init=none): ``x @ weight.T + bias`` over the last axis, to ``out``
    features.

    Parameters ``weight`` [out, in] and ``bias`` [out], both uniform in +-1/sqrt(in) as in PyTorch unless ``init`` and
    ``bias_init`` say how to initialise them.

    given: x: [B, 8]
    >>> x |> linear(4)
    """

    name = "linear"

    def build(
        self,
        call: Call,
        x: Value,
        out: Size,
        bias: bool = True,
        init: Init | None = None,
        bias_init: Init | None = None,
    ) -> Value:
        if not x.type.rank:
            raise Mismatch("`linear` of a tensor without axes", "its last axis holds the features")
        features = x.type.shape[-1]
        if isinstance(features, Poly) or isinstance(out, Poly):
            why = f"the weight of `linear` would be [{out}, {features}], which depends on a dim"
            raise Mismatch(why, to_fix(features if isinstance(features, Poly) else out), "E0307")
        if features < 1 or out < 1:
            raise Mismatch(f"`linear` from {features} to {out} features", "both must be at least 1", "E0308")
        limit = 1.0 / math.sqrt(features)
        usual = Init("uniform", (-limit, limit))
        weight = call.param("weight", (out, features), usual if init is None else init)
        rows = x if x.type.rank > 1 else call.emit(reshape, x, shape=(1, features))
        y = call.emit(matmul, rows, weight, transpose_a=False, transpose_b=True)
        if x.type.rank == 1:
            y = call.emit(reshape, y, shape=(out,))
        return call.emit(add, y, call.param("bias", (out,), bias_init or usual)) if bias else y


function(MatmulFunction())
function(Linear())
