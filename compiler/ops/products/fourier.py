"""fourier: a discrete Fourier transform in real arithmetic, whole or in parts. The pass ``transforms`` computes it by
kernels of whole transforms or by products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import float_attr, int_attr, str_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, neg, require_kind
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

    Roots: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


#: Values of the attribute ``parts`` -> the real parts, 0, and the imaginary ones, 1.
PARTS: Final = {"re": (0,), "im": (1,), "both": (0, 1)}
#: Values of the attribute ``twice`` -> that of the gradient.
_OTHER: Final = {"": "", "given": "results", "results": "given"}


def unit_root(number: int, count: int) -> tuple[float, float]:
    """The cosine and the sine of ``number / count`` of a turn; those of quarter turns are exact."""
    quarter, rest = divmod(4 * number, count)
    angle = math.pi / 2 * rest / count
    c, s = math.cos(angle), math.sin(angle)
    return [(c, s), (-s, c), (-c, -s), (s, -c)][quarter % 4]


def given_of(node: Node) -> int:
    """The elements of each input along the axis of a transform."""
    return node.input_types[0].ints[int_attr(node.attrs, "axis")]


def shares(count: int, size: int) -> tuple[float, ...]:
    """How often each of the first numbers of a transform counts by ``twice``."""
    return tuple(1.0 if 2 * k in (0, count) else 2.0 for k in range(size))


def _along(numbers: Sequence[float], axis: int, rank: int) -> Array:
    return np.array(numbers).reshape(-1, *(1,) * (rank - 1 - axis))


@lru_cache(64)
def root_table(count: int) -> Roots:
    """All powers of the root of unity of this order, [count, 2]: cosines and sines."""
    return np.array([unit_root(number, count) for number in range(count)])


class Fourier(Op):
    """fourier(re[, im]): the transform of order ``count`` along ``axis``: result k is the sum of ``scale * (re + i *
    im)[n] * exp(sign * 2 * pi * i * n * k / count)``.

    Attributes: ``axis``, counted from 0; ``sign`` 1 or -1; ``outputs``, how many results there are, from the first;
    ``parts``, which parts of the results: "re", "im", or "both". Without ``im`` the input is real. An input shorter
    than ``count`` counts as followed by zeros. ``twice``: "given" or "results", of which all count twice but number 0
    and, of an even count, the middle one, since those after it, their conjugates, are left out; or "". The gradient is
    a transform with the other sign, of as many results as there are inputs.
    """

    name = "fourier"
    kernel_kind = "product"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, count, outputs = types[0], int_attr(attrs, "count"), int_attr(attrs, "outputs")
        require_kind(self.name, x.dtype, "float")
        float_attr(attrs, "scale")
        assert len(types) in (1, 2) and all(t == x for t in types) and int_attr(attrs, "sign") in (1, -1)
        axis = int_attr(attrs, "axis")
        given = x.shape[axis]
        assert isinstance(given, int) and 1 <= given <= count and 1 <= outputs <= count and axis >= 0
        assert attrs["twice"] in _OTHER
        found = TensorType(x.dtype, (*x.shape[:axis], outputs, *x.shape[axis + 1 :]))
        return (found,) * len(PARTS[str_attr(attrs, "parts")])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        twice = _OTHER[str_attr(node.attrs, "twice")]
        sign = -int_attr(node.attrs, "sign")
        attrs = {**node.attrs, "sign": sign, "outputs": given_of(node), "twice": twice}
        given = [dy for dy in dys if dy is not None]
        inputs, imaginary = len(node.inputs), dys[0] is None or node.attrs["parts"] == "im"
        if not imaginary:
            return b.node(fourier, *given, **{**attrs, "parts": "re" if inputs == 1 else "both"}).outputs
        found = b.node(fourier, *given, **{**attrs, "parts": "im" if inputs == 1 else "both"}).outputs  # times i
        return (b(neg, found[-1]), *found[:-1])

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        count, outputs, axis = (int(attrs[name]) for name in ("count", "outputs", "axis"))
        z = xs[0].astype(np.complex128)
        with np.errstate(all="ignore"):
            if len(xs) == 2:
                z.imag = xs[1]
            if attrs["twice"] == "given":
                z = z * _along(shares(count, z.shape[axis]), axis, z.ndim)
            y = np.fft.fft(z, count, axis) if attrs["sign"] < 0 else np.fft.ifft(z, count, axis) * count
            y = y[(slice(None),) * axis + (slice(outputs),)] * float(attrs["scale"])
            if attrs["twice"] == "results":
                y = y * _along(shares(count, outputs), axis, y.ndim)
            return [part.astype(xs[0].dtype) for part in ((y.real, y.imag)[i] for i in PARTS[attrs["parts"]])]

    def cost(self, node: Node) -> Cost:
        """Arithmetic of a product with a matrix."""
        results = sum(math.prod(t.ints) for t in node.types)
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(2 * results * len(node.inputs) * given_of(node), moved)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        if len(set(axes)) > 1 or axes[0] == int_attr(node.attrs, "axis"):
            return None
        return (axes[0],) * len(node.types)


fourier = register(Fourier())
