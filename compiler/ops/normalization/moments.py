"""Shared by the normalisations: moments over axes, their gradient, their composition, and type rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslc.compiler.ir.function import Call, Shape
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.sizes import Size, product
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.constants.constant import constant as like
from dslc.compiler.ops.elementwise.arithmetic import add, mul, sub
from dslc.compiler.ops.elementwise.powers import rsqrt
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.random.init import constant
from dslc.compiler.ops.reduction.reduce import mean as mean_over
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_HALF = (DType.F16, DType.BF16)


def statistics_dtype(op: str, x: TensorType, others: Sequence[TensorType]) -> DType:
    """The dtype of weights and statistics: x's own, or f32 if x has 16 bits. Raises Mismatch E0204."""
    if not x.dtype.is_float:
        raise Mismatch(f"`{op}` needs a float tensor, not {x.dtype}", 'convert it: `cast(x, "float")`', "E0204")
    dtype = others[0].dtype
    if any(t.dtype is not dtype for t in others) or not (dtype is x.dtype or (dtype is DType.F32 and x.dtype in _HALF)):
        raise Mismatch(f"`{op}` of {x} with weights of {others[0].dtype}", "give all the same dtype", "E0204")
    return dtype


def require_vectors(op: str, size: Size, vectors: Sequence[TensorType]) -> None:
    """Raises Mismatch E0302 unless each of ``vectors`` is ``[size]``, E0308 if the size is 0."""
    if size == 0:
        raise Mismatch(f"`{op}` over an axis of size 0", "give that axis at least one element", "E0308")
    for t in vectors:
        if t.shape != (size,):
            raise Mismatch(f"`{op}` needs weights of [{size}], got {t}", None, "E0302")


def scale_and_shift(call: Call, x: Value, shape: Shape, affine: bool = True, bias: bool = True) -> tuple[Value, Value]:
    """``weight``, learnt from 1 on if ``affine``, and ``bias``, learnt from 0 on if both are set: else these constants.
    Vectors; the parameters have the ``shape``."""
    found = []
    for name, start, learnt in (("weight", 1.0, affine), ("bias", 0.0, affine and bias)):
        if learnt:
            value = call.param(name, shape, constant(start))
            found.append(value if len(shape) == 1 else call.emit(reshape, value, shape=(product(shape),)))
        else:
            found.append(call.full(start, x.type.dtype, (product(shape),)))
    return found[0], found[1]


def check_eps(op: str, eps: float, *, above_zero: bool = False) -> None:
    """Raises Mismatch E0209 unless PyTorch accepts this ``eps``: finite, >= 0, or > 0 if ``above_zero`` (batchnorm)."""
    if not 0 <= eps < math.inf or (above_zero and not eps):
        limit = "above 0" if above_zero else "of at least 0"
        raise Mismatch(f"`eps` of `{op}` is {eps:g}", f"a small number {limit}, for instance 1e-5", "E0209")


def moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and biased variance over ``axes``, which stay with size 1, in x's dtype; two passes avoid cancellation.

    The mean is computed from distances to a first element, which are exact for a large common offset (Chan, Golub and
    LeVeque 1983: shifted data). The variance corrects for the rounding of the mean."""
    first = x[tuple(slice(0, 1) if a in axes else slice(None) for a in range(x.ndim))]
    shift = np.mean(x - first, axis=axes, keepdims=True)
    mean = first + shift
    lost = shift - (mean - first)
    square = np.mean(np.square(x - mean), axis=axes, keepdims=True) - np.square(lost)
    return mean, np.maximum(square, x.dtype.type(0))


def normalised(b: Builder, x: Value, axes: tuple[int, ...], eps: float, *, centred: bool = True) -> Value:
    """x less its mean over ``axes`` (unless it is not ``centred``), divided by its root mean square, as ops that have
    gradients of every order."""
    if centred:
        x = b(sub, x, b(mean_over, x, over=axes, keep=True))
    square = b(mean_over, b(mul, x, x), over=axes, keep=True)
    return b(mul, x, b(rsqrt, b(add, square, like(b, eps, x))))


def along(b: Builder, v: Value, axis: int, rank: int) -> Value:
    """A vector reshaped to lie along an axis of a tensor of this rank."""
    return b(reshape, v, shape=(*v.type.shape, *(1,) * (rank - 1 - axis)))


def through_moments(g: Array, xhat: Array, invstd: Array, axes: tuple[int, ...]) -> Array:
    """The gradient in x of ``xhat = (x - mean) * invstd``, from ``g``, the gradient in xhat (Ioffe and Szegedy 2015).

    ``invstd`` broadcasts against x; mean and variance are over ``axes``.
    """
    shared = np.mean(g, axis=axes, keepdims=True)
    sloped = np.mean(g * xhat, axis=axes, keepdims=True)
    result: Array = (g - shared - xhat * sloped) * invstd
    return result
