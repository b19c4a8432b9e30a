"""Gradient clipping: by the global norm (Pascanu, Mikolov and Bengio 2013), or elementwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, mul
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_EPS = 1e-6  # as in PyTorch: a norm of 0 gives the coefficient 1, not nan


class GlobalNorm(Op):
    """global_norm(*grads): the square root of the sum of squares of all elements of all inputs, a scalar.

    f32 for 16-bit inputs, else the widest float among the inputs.
    """

    name = "global_norm"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        dtypes = {t.dtype for t in types}
        assert dtypes and all(d.is_float for d in dtypes), f"global_norm of {sorted(map(str, dtypes))}"
        widest = next((d for d in (DType.FLOAT, DType.F64) if d in dtypes), DType.F32)
        return (TensorType(widest, ()),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("clipping by the norm of gradients has no gradient itself")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        inner = np.result_type(np.float32, *(x.dtype for x in xs))
        with np.errstate(all="ignore"):
            squares = np.array([np.sum(np.square(x, dtype=inner)) for x in xs], inner)
            return (np.asarray(np.sqrt(np.sum(squares))),)

    def cost(self, node: Node) -> Cost:
        elements = sum(prod(t.ints) for t in node.input_types)
        return Cost(2 * elements, sum(t.bytes for t in (*node.input_types, *node.types)))


class ClipCoefficient(Elementwise):
    """clip_coefficient(norm): ``min(1, max_norm / (norm + 1e-6))``, and 0 for a norm that is not finite.

    In a gradient with a nan or an infinity the finite elements become 0 and the others stay not finite, so the update
    detects exactly those. Attribute ``max_norm``.
    """

    name = "clip_coefficient"
    arity = 1
    accepts = "float"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        bound = attrs["max_norm"]
        assert isinstance(bound, float)
        scaled = tree.call("min", 1.0, tree.call("div", bound, xs[0] + _EPS))
        return tree.select(xs[0] < float("inf"), scaled, 0.0)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        inner = xs[0].dtype.type
        scaled = np.minimum(inner(1), inner(attrs["max_norm"]) / (xs[0] + inner(_EPS)))
        return np.where(xs[0] < np.inf, scaled, inner(0))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        raise NoGradient("clipping by the norm of gradients has no gradient itself")


class ClipGradient(Elementwise):
    """clip_gradient(g): ``g`` clamped to ``-limit..limit``; non-finite elements stay, so that the update detects them.

    Attribute ``limit``, above 0.
    """

    name = "clip_gradient"
    arity = 1
    accepts = "float"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        limit = attrs["limit"]
        assert isinstance(limit, float)
        held = tree.call("min", tree.call("max", xs[0], -limit), limit)
        return tree.select(tree.call("abs", xs[0]) < float("inf"), held, xs[0])

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        limit = xs[0].dtype.type(attrs["limit"])
        return np.where(np.isfinite(xs[0]), np.clip(xs[0], -limit, limit), xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        raise NoGradient("clipping of gradients has no gradient itself")


global_norm = register(GlobalNorm())
clip_gradient = register(ClipGradient())
clip_coefficient = register(ClipCoefficient())


def check_limit(name: str, limit: float) -> None:
    """Raises Mismatch E0209 unless ``limit``, of ``clip_norm`` or ``clip_value``, is a finite number above 0."""
    if not 0 < limit < float("inf"):
        raise Mismatch(f"`{name}` is {limit:g}", f"a number above 0, such as `{name}=1.0`", "E0209")


def clip_by_global_norm(b: Builder, grads: Sequence[Value], max_norm: float) -> list[Value]:
    """The gradients times ``min(1, max_norm / (norm + 1e-6))``, where norm is the norm of all of them together.

    ``max_norm`` was checked with ``check_limit``.
    """
    coefficient = b(clip_coefficient, b(global_norm, *grads), max_norm=float(max_norm))
    by_dtype = {coefficient.type.dtype: coefficient}
    for dtype in dict.fromkeys(g.type.dtype for g in grads):
        if dtype not in by_dtype:
            by_dtype[dtype] = b(cast, coefficient, dtype=dtype)
    return [b(mul, g, by_dtype[g.type.dtype]) for g in grads]


def clip_by_value(b: Builder, grads: Sequence[Value], limit: float) -> list[Value]:
    """Each gradient with its elements clamped to ``-limit..limit``, which was checked with ``check_limit``."""
    return [b(clip_gradient, g, limit=float(limit)) for g in grads]
