"""Random ops: dropout, rand, randn, bernoulli, and initial values of parameters. All use Philox (philox.py)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.base.words import of_percentage
from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.special import choose
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import dtype_attr, float_attr, shape_attr
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, only, require_kind
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.random.philox import halves, normal, uniform, words
from dslc.compiler.ops.random.quantile import normal_probability, normal_quantile
from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

ALL = 1 << 16  # thresholds of dropout are 16 bits


def _scalars(xs: Sequence[Array], attrs: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """The index of the tensor's first element in the whole batch, and key, seed and step for philox."""
    seed, step, row = (int(x.reshape(())) for x in xs)
    return row * int(attrs["row_elements"]), {"key": int(attrs["key"]), "seed": seed, "step": step}


def _check_scalars(types: Sequence[TensorType]) -> None:
    assert all(t == TensorType(DType.I64, ()) for t in types), "seed, step and row are i64 scalars"


def _own_rows(node: Node, axis: int | None) -> tuple[int | None, ...] | None:
    """Draws follow the rows of the batch only if axis 0 is the batch axis."""
    if node.attrs["row_elements"] == 0:
        return (None,) if axis is None else None
    return (0,) if axis in (0, None) else None


def kept_share(node: Node) -> tuple[int, float]:
    """For a dropout: the least 16-bit draw of a kept element, and the factor of kept elements in f32 (f64 for f64)."""
    least = math.floor(float_attr(node.attrs, "p") * ALL + 0.5)
    inner = np.float64 if node.types[0].dtype is DType.F64 else np.float32
    return least, 0.0 if least == ALL else float(inner(ALL) / inner(ALL - least))


class Dropout(Op):
    """dropout(x, seed, step, row): each element is 0 with probability ``p``, else divided by ``1 - p``.

    Attributes ``p``, ``key`` and ``row_elements``. With r = p * 65536 rounded to the nearest integer, an element is
    kept if its 16 random bits are >= r, and multiplied by 65536 / (65536 - r) in f32 (f64 for f64). Outside training it
    is the identity.
    """

    name = "dropout"
    mirror = True
    random = True
    inplace = ((0, 0),)
    needs = (frozenset({"x1", "x2", "x3"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        require_kind("dropout", types[0].dtype, "float")
        _check_scalars(types[1:])
        p = float_attr(attrs, "p")
        if not 0 <= p <= 1:
            raise Mismatch(f"`dropout` with probability {p:g}", of_percentage(p) or "p lies between 0 and 1", "E0209")
        return (types[0],)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return b(dropout, only(dys), *node.inputs[1:], **node.attrs), None, None, None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x = xs[0]
        threshold = math.floor(float(attrs["p"]) * ALL + 0.5)
        if threshold == 0:
            return [x]
        if threshold == ALL:
            return [np.zeros_like(x)]
        start, numbers = _scalars(xs[1:], attrs)
        kept = halves(start, x.size, **numbers).reshape(x.shape) >= threshold
        scale = x.dtype.type(ALL) / x.dtype.type(ALL - threshold)
        with np.errstate(over="ignore"):
            return [choose(kept, np.asarray(x * scale), np.zeros((), x.dtype))]

    def cost(self, node: Node) -> Cost:
        # ten rounds of about ten operations serve eight elements
        moved = node.types[0].bytes
        return Cost(14 * (moved // node.types[0].dtype.itemsize), 2 * moved + 24)

    def in_eval(self, node: Node, b: Builder) -> Sequence[Value] | None:
        return (node.inputs[0],)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _own_rows(node, axes[0])


class Dropped(Elementwise):
    """dropped(x, factors): ``x * factors``, and 0 where the factor is 0, whatever ``x`` is there: a ``dropout`` whose
    factors, 0 or ``1 / (1 - p)``, were drawn before. Outside training it is ``x``."""

    name = "dropped"
    arity = 2
    accepts = "float"
    needs = (frozenset({"x1"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.select(xs[1] > 0, xs[0] * xs[1], 0)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return choose(xs[1] > 0, np.asarray(xs[0] * xs[1]), np.zeros((), xs[0].dtype))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return b(dropped, only(dys), node.inputs[1]), None

    def in_eval(self, node: Node, b: Builder) -> Sequence[Value] | None:
        return (node.inputs[0],)


class Source(Op):
    """A random tensor of the attributes ``shape`` and ``dtype``, drawn in f32; inputs seed, step, row."""

    random = True

    @abstractmethod
    def draw(self, start: int, count: int, numbers: Mapping[str, int]) -> Array:
        """f32 values of the elements ``start``, ``start + 1``, ..."""

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        _check_scalars(types)
        assert dtype_attr(attrs).is_float
        return (TensorType(dtype_attr(attrs), shape_attr(attrs)),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return None, None, None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        shape = tuple(attrs["shape"])
        start, numbers = _scalars(xs, attrs)
        values = self.draw(start, math.prod(shape), numbers)
        return [values.reshape(shape).astype(numpy_dtype(attrs["dtype"]), copy=False)]

    def cost(self, node: Node) -> Cost:
        return Cost(40 * (node.types[0].bytes // node.types[0].dtype.itemsize), node.types[0].bytes + 24)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _own_rows(node, None)


class Rand(Source):
    """rand(seed, step, row): numbers uniform in [0, 1), multiples of 2^-24."""

    name = "rand"
    mirror = True

    def draw(self, start: int, count: int, numbers: Mapping[str, int]) -> Array:
        return uniform(words(start, count, **numbers))


class Randn(Source):
    """randn(seed, step, row): standard normal numbers."""

    name = "randn"
    mirror = True

    def draw(self, start: int, count: int, numbers: Mapping[str, int]) -> Array:
        return normal(start, count, **numbers)


class Initial(Op):
    """A parameter's initial value, from the scalar seed alone; attributes ``key``, ``shape``, ``dtype``, numbers."""

    @abstractmethod
    def draw(self, count: int, numbers: Mapping[str, int], attrs: Mapping[str, Any]) -> Array:
        """f32 values of the elements 0, 1, ..."""

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        _check_scalars(types)
        assert dtype_attr(attrs).is_float
        return (TensorType(dtype_attr(attrs), shape_attr(attrs)),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        shape = tuple(attrs["shape"])
        numbers = {"key": int(attrs["key"]), "seed": int(xs[0].reshape(())), "step": 0}
        values = self.draw(math.prod(shape), numbers, attrs)
        return [values.reshape(shape).astype(numpy_dtype(attrs["dtype"]), copy=False)]

    def cost(self, node: Node) -> Cost:
        return Cost(40 * (node.types[0].bytes // node.types[0].dtype.itemsize), node.types[0].bytes + 8)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (None,)


class InitUniform(Initial):
    """init_uniform(seed): ``low + (high - low) * u`` in f32, u uniform in [0, 1), attributes ``low`` and ``high``."""

    name = "init_uniform"

    def draw(self, count: int, numbers: Mapping[str, int], attrs: Mapping[str, Any]) -> Array:
        low, high = np.float32(attrs["low"]), np.float32(attrs["high"])
        return low + (high - low) * uniform(words(0, count, **numbers))


class InitNormal(Initial):
    """init_normal(seed): ``mean + std * z`` in f32, z standard normal, attributes ``mean`` and ``std``."""

    name = "init_normal"

    def draw(self, count: int, numbers: Mapping[str, int], attrs: Mapping[str, Any]) -> Array:
        return np.float32(attrs["mean"]) + np.float32(attrs["std"]) * normal(0, count, **numbers)


class InitTruncNormal(Initial):
    """init_trunc_normal(seed): ``mean + std * z``, z standard normal, truncated so that the result is in ``a..b``.

    z is the normal quantile of ``P(a) + (P(b) - P(a)) * u`` with u uniform in (0, 1), P the cumulative distribution;
    computed in f64, rounded once to f32. Attributes ``mean``, ``std``, ``a``, ``b``.
    """

    name = "init_trunc_normal"

    def draw(self, count: int, numbers: Mapping[str, int], attrs: Mapping[str, Any]) -> Array:
        mean, std, a, b = (float(attrs[name]) for name in ("mean", "std", "a", "b"))
        if std == 0:
            return np.full(count, mean, np.float32)
        # u is the centre of one of 2^24 equal intervals, so never 0 or 1
        u = uniform(words(0, count, **numbers)).astype(np.float64) + 2.0**-25
        low, high = (normal_probability((bound - mean) / std) for bound in (a, b))
        z = normal_quantile(low + (high - low) * u)
        return np.clip(mean + std * z, a, b).astype(np.float32)


dropout = register(Dropout())
dropped = register(Dropped())
rand = register(Rand())
randn = register(Randn())
init_uniform = register(InitUniform())
init_normal = register(InitNormal())
init_trunc_normal = register(InitTruncNormal())
