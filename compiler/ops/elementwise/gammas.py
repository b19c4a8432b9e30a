"""lgamma, digamma and polygamma: the logarithm of the gamma function and its derivatives.

lgamma for x from 0.5: below 10, ``lgamma(x) = lgamma(z) + log((x - 1) * ... * (x - n))`` with z = x - n from 1.5 to
2.5, where ``lgamma(2 + t) = t * p(t)``: so it is right to the last digits near its zeros at 1 and 2. ``p`` interpolates
at Chebyshev nodes, with a relative error of 2e-17. From 10 on it is Stirling's series. Below 0.5 it is
``log(pi / |sin(pi * x)|) - lgamma(1 - x)``. In f32, Stirling's series begins at 4, and each series has fewer terms.

polygamma for x > 0: below m = 10 + 2n, the terms ``n! / (x + k)^(n + 1)`` for k < m; and the derivative of Stirling's
series at x, or at x + m (Abramowitz and Stegun 1964, 6.4.6 and 6.4.11), which is right to 1e-17. The terms are added as
one fraction, unless it would leave the range of f32. Else it is that of 1 - x and a derivative of the cotangent
(6.4.7).

Sines and cosines of pi * x are Taylor's polynomials of x less the nearest integer, so no argument is reduced twice.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Mismatch, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, Unary, mul, only
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_FAR: Final = 10.0  # Stirling's series begins here
_MOST: Final = 20  # derivatives: 21! and what it is multiplied by are far from the end of f32
_LOW: Final = -(2.0**60)  # an integer, as all floats below are; an infinity has no nearest integer
_MOST_IN_FRACTION: Final = 1  # derivatives: (23! / 11!)^2 is far below the greatest f32, (27! / 13!)^3 above it
#: Bernoulli's numbers B2, B4, ..., B16.
_BERNOULLI: Final = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
#: lgamma(2 + t) / t by rising powers of t from -0.5 to 0.5; the second one with an error of 1e-9.
_NEAR: Final = (
    0.42278433509846713, 0.3224670334241132, -0.06735230105319563, 0.02058080842778338, -0.007385551028935545,
    0.002890510330865901, -0.0011927539009983087, 0.0005096695196526673, -0.00022315497746292723,
    9.945761692157133e-05, -4.4923727564247656e-05, 2.050601970174762e-05, -9.45628851510172e-06,
    4.3828545383846665e-06, -1.9743106888421067e-06, 9.242852225162277e-07, -5.811277768921246e-07,
    2.7475390051909663e-07,
)  # fmt: skip


_NEAR_F32: Final = (
    0.42278433509846713, 0.3224670180454995, -0.06735229409087408, 0.0205816254365885, -0.007385920884783578,
    0.00287886868374075, -0.0011874848136699278, 0.0005702512502829781, -0.00025056202146086636,
)  # fmt: skip


@dataclass(frozen=True)
class _Terms:
    """Where Stirling's series of lgamma begins, how many terms it has and the sine, and the polynomial before it."""

    far: float
    series: int
    sine: int
    near: tuple[float, ...]


_TERMS: Final = _Terms(_FAR, len(_BERNOULLI), 12, _NEAR)
_TERMS_F32: Final = _Terms(4.0, 4, 7, _NEAR_F32)


def _polynomial(coefficients: Sequence[float], x: Expr) -> Expr:
    found = tree.as_expr(coefficients[-1])
    for c in coefficients[-2::-1]:
        found = found * x + c
    return found


def _rest(x: Expr) -> Expr:
    """x less the nearest integer, exactly."""
    return x - tree.call("round", x)


def _series(first: int, terms: int) -> list[float]:
    """sin(pi * x) / x by powers of x^2 for ``first`` 1, cos(pi * x) for 0."""
    return [(-1) ** k * math.pi ** (2 * k + first) / math.factorial(2 * k + first) for k in range(terms)]


def _cot(x: Expr) -> Expr:
    """cot(pi * x), right to the last digits also at its zeros."""
    rest = _rest(x)
    size = tree.call("abs", rest)
    near = size < 0.25
    t = tree.select(near, size, 0.5 - size)
    square = t * t
    sine, cosine = t * _polynomial(_series(1, 9), square), _polynomial(_series(0, 10), square)
    found = tree.select(near, cosine, sine) / tree.select(near, sine, cosine)
    return tree.select(rest < 0, -found, found)


def _cotangent(n: int) -> list[float]:
    """The derivative number n of cot(x) by rising powers of c = cot(x): that of c is ``-(1 + c^2)``."""
    found = [0.0, 1.0]
    for _ in range(n):
        slope = [-k * c for k, c in enumerate(found)][1:]
        found = [a + b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return found


def _power(x: Expr, n: int) -> Expr:
    found = x
    for _ in range(n - 1):
        found = found * x
    return found


class _OfGamma(Elementwise):
    """A function whose derivative is a polygamma function of the same x."""

    arity = 1
    accepts = "float"
    wide = "exponent"
    needs: ClassVar[tuple[frozenset[str], ...]] = (frozenset({"x0"}),)

    @abstractmethod
    def order(self, attrs: Attrs) -> int:
        """The polygamma function that is the derivative."""

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        dtype = DType.F64 if xs[0].dtype == np.float64 else DType.F32
        return tree.evaluate(self.scalar_of(dtype, attrs, tree.argument(0)), xs)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(mul, only(dys), b(polygamma, node.inputs[0], n=self.order(node.attrs))),)


class Lgamma(_OfGamma):
    """lgamma(x): the logarithm of ``|gamma(x)|``, as of ``(x - 1)!``; its gradient is ``digamma``.

    The logarithms of counts' probabilities have it, such as those of a negative binomial distribution: ``lgamma(x + r)
    - lgamma(r) - lgamma(x + 1) + r * log(r / (r + mu)) + x * log(mu / (r + mu))``. inf at 0 and the negative integers.

    given: x: [B, 8]
    >>> lgamma(x)
    """

    name = "lgamma"

    def order(self, attrs: Attrs) -> int:
        return 0

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return self._tree(xs[0], _TERMS)

    def scalar_of(self, dtype: DType, attrs: Attrs, *xs: Expr) -> Expr:
        return self._tree(xs[0], _TERMS_F32 if dtype is DType.F32 else _TERMS)

    def _tree(self, x: Expr, terms: _Terms) -> Expr:
        x, far_from = tree.call("max", x, _LOW), terms.far
        below = x < 0.5
        y = tree.select(below, 1 - x, x)
        short = tree.call("min", y, far_from)
        steps = tree.call("floor", short - 1.5)
        product = tree.as_expr(1.0)
        for k in range(1, int(far_from - 1.5) + 1):
            product = product * tree.select(steps >= k, short - k, 1)
        t, low = short - (steps + 2), steps < 0
        log = tree.call("log", tree.select(y < far_from, tree.select(low, short, product), y))
        near = t * _polynomial(terms.near, t) + tree.select(low, -log, log)
        inverse = 1 / tree.call("max", y, far_from)
        series = [c / (2 * j * (2 * j - 1)) for j, c in enumerate(_BERNOULLI[: terms.series], 1)]
        far = (y - 0.5) * (log - 1) + (math.log(2 * math.pi) - 1) / 2
        far = far + inverse * _polynomial(series, inverse * inverse)
        found = tree.select(y < far_from, near, far)
        rest = _rest(tree.call("min", x, 0.5))
        share = tree.call("abs", rest) * _polynomial([c / math.pi for c in _series(1, terms.sine)], rest * rest)
        return tree.select(below, -tree.call("log", share) - found, found)


class Polygamma(_OfGamma):
    """polygamma(x, n): the derivative number ``n + 1`` of ``lgamma``.

    ``n`` is 0 for ``digamma``, 1 for the trigamma function, and so on to 20.

    given: x: [B, 8]
    >>> polygamma(softplus(x), 1)
    """

    name = "polygamma"

    def order(self, attrs: Attrs) -> int:
        n = int_attr(attrs, "n") + 1
        if n > _MOST:
            raise Mismatch(f"a gradient needs `polygamma` with n = {n}", f"n is at most {_MOST}", "E0209")
        return n

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        n, x = int_attr(attrs, "n"), xs[0]
        above = x > 0
        y = tree.select(above, x, 1 - x)
        found = self._of_positive(y, n)
        slope = _polynomial(_cotangent(n), _cot(x)) * math.pi ** (n + 1)
        return tree.select(above, found, (-found if n % 2 else found) - slope)

    def _of_positive(self, x: Expr, n: int) -> Expr:
        far = int(_FAR) + 2 * n
        below = x < far
        inverse = 1 / tree.select(below, x + far, x)
        rising = [math.factorial(2 * j + n - 1) / math.factorial(2 * j) / math.factorial(n) for j in range(1, 9)]
        series = [c * r for c, r in zip(_BERNOULLI, rising, strict=True)]
        rest = inverse * (0.5 + inverse * _polynomial(series, inverse * inverse))
        sum_ = tree.select(below, self._terms(tree.call("min", x, far), far, n), 0)
        if n == 0:
            return -tree.call("log", inverse) - rest - sum_
        size = sum_ + _power(inverse, n) * (1 / n + rest)
        return size * (math.factorial(n) if n % 2 else -math.factorial(n))

    def _terms(self, x: Expr, count: int, n: int) -> Expr:
        """The sum of the first terms, without n!."""
        if n > _MOST_IN_FRACTION:
            found = tree.as_expr(0.0)
            for k in range(count):
                found = found + _power(1 / (x + k), n + 1)
            return found
        over, under = tree.as_expr(1.0), _power(x, n + 1)
        for k in range(1, count):
            each = _power(x + k, n + 1)
            over, under = over * each + under, under * each
        return over / under


lgamma = register(Lgamma())
polygamma = register(Polygamma())


class Digamma(Function):
    """digamma(x): the derivative of ``lgamma``, with the gradient ``polygamma(x, 1)``.

    It is infinite at 0 and the negative integers.

    given: x: [B, 8]
    >>> digamma(softplus(x))
    """

    name = "digamma"

    def build(self, call: Call, x: Operand) -> Value:
        return call.emit(polygamma, *call.operands(x), n=0)


class PolygammaFunction(Function):
    __doc__ = Polygamma.__doc__

    name = "polygamma"

    def build(self, call: Call, x: Operand, n: int) -> Value:
        if not 0 <= n <= _MOST:
            raise Mismatch(f"`polygamma` with n = {n}", f"n is from 0 to {_MOST}", "E0209")
        return call.emit(polygamma, *call.operands(x), n=n)


function(Unary(lgamma))
function(Digamma())
function(PolygammaFunction())
