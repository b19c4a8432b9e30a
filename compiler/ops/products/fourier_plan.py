"""How kernels that keep numbers in fast memory compute a discrete Fourier transform, and the roots of unity they read.

A kernel computes a transform of order n in stages of the orders r1, r2, ... with the product n (Stockham's order of
the stages of Cooley and Tukey; Van Loan, Computational Frameworks for the Fast Fourier Transform, 1992). A stage of
order r after stages with the product s multiplies by roots of order s * r, then has transforms of order r:

    y[(j // s) * s * r + j % s + q * s] = sum over p of root(r)^(p * q) * root(s * r)^(p * (j % s)) * x[j + p * n / r]

- An order with small prime factors that fits in fast memory takes one kernel.
- A longer one is n1 * n2: one kernel has the transforms of order n1 and the twiddle factors, the next those of n2.
- An order with another prime factor is a convolution with a chirp (Bluestein 1970), so two transforms of a length with
  small prime factors: with c[n] = exp(sign * pi * i * n^2 / N), result k is c[k] times the sum over n of
  x[n] * c[n] * conj(c[k - n]).
- Real numbers, in pairs, are complex numbers of a transform of half the order, and so are real results: with Z the
  transform of x[2n] + i * x[2n + 1], result k is E + root(N)^k * O, where 2 * E = Z[k] + conj(Z[N / 2 - k]) and
  2 * i * O = Z[k] - conj(Z[N / 2 - k]).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt, prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.products.fourier import root_table

if TYPE_CHECKING:
    Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
    Places: TypeAlias = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]

#: Operations of a prime order for one number: real additions and products, about.
PRIMES: Final = {2: 3, 3: 6, 5: 10, 7: 14, 11: 22, 13: 26}
_MOST_ORDER: Final = 16  # of a stage: its numbers are in registers
_PAIR: Final = 24  # operations that the numbers of a pair take, about
_STAGE: Final = 16  # operations that exchanging a number and its root take as long as, about
MOST_BYTES: Final = 88 << 10  # of the numbers that a kernel keeps; with padding they fit on each GPU
_SECTOR: Final = 32  # bytes that memory moves at least


@dataclass(frozen=True)
class Plan:
    """A transform of order ``count`` of ``given`` numbers to ``outputs`` results.

    ``halved``: "given" or "results", which are real, so that pairs of them are complex numbers of half the order; ""
    for none. ``orders``: those of the stages of one kernel, or of two kernels one after the other.
    """

    count: int
    given: int
    outputs: int
    halved: str
    orders: tuple[tuple[int, ...], ...]

    @property
    def own(self) -> int:
        """The order of the transform of complex numbers."""
        return self.count // 2 if self.halved else self.count

    @property
    def own_sizes(self) -> tuple[int, int]:
        """How many complex numbers that transform has, and how many results."""
        given = {"": self.given, "given": -(-self.given // 2), "results": self.own}[self.halved]
        return given, {"": self.outputs, "given": self.own, "results": -(-self.outputs // 2)}[self.halved]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The order of each kernel's stages."""
        return tuple(prod(each) for each in self.orders)

    @property
    def length(self) -> int:
        """The product of all orders: ``own``, or longer for a convolution with a chirp."""
        return prod(self.lengths)

    @property
    def is_chirped(self) -> bool:
        return self.length != self.own

    @property
    def chirp(self) -> int:
        """The numbers of the chirp."""
        return max(self.own_sizes) if self.is_chirped else 0

    @property
    def operations(self) -> int:
        """Of one transform, about."""
        once = sum(_weight(each) for each in self.orders)
        others = 6 * (3 * self.is_chirped + len(self.orders) - 1)
        return self.length * (once * (1 + self.is_chirped) + others) + (_PAIR * self.own if self.halved else 0)

    def roots(self, sign: int) -> Array:
        """[., 2], real and imaginary parts: the factors before each stage but the first; then those between two
        kernels, or the chirp and the transform of its conjugate over the length; then those of pairs."""
        inner = -1 if self.is_chirped else sign
        parts = [_turns(inner, places, order) for orders in self.orders for places, order in _stage_places(orders)]
        if len(self.orders) == 2:
            n1, n2 = self.lengths
            parts.append(_turns(sign, np.outer(np.arange(n1), np.arange(n2)), self.count))
        if self.is_chirped:
            given, outputs = self.own_sizes
            numbers = np.arange(self.chirp, dtype=np.int64)
            chirp = _turns(sign, numbers * numbers, 2 * self.own)
            conjugate = np.zeros((self.length, 2))
            conjugate[:outputs] = chirp[:outputs]
            conjugate[self.length - given + 1 :] = chirp[1:given][::-1]
            conjugate[:, 1] *= -1
            parts += [chirp, _transform(conjugate, self.orders[0]) / self.length]
        if self.halved:
            parts.append(_turns(sign, np.arange(self.own), self.count))
        return np.concatenate([*parts, np.zeros((0, 2))])


def has_small_factors(count: int) -> bool:
    """Whether a number has no other prime factors than ``PRIMES``."""
    for prime in PRIMES:
        count //= prime ** _power(count, prime)
    return count == 1


def root_places(orders: tuple[int, ...]) -> int:
    """How many roots the stages of a kernel read."""
    return prod(orders) - orders[0]


def least_wide(itemsize: int) -> int:
    """Lines next to each other that a kernel reads together where a line's own numbers are apart."""
    return _SECTOR // itemsize


@lru_cache(256)
def plan_of(count: int, given: int, outputs: int, real: str, itemsize: int, is_apart: bool) -> Plan | None:
    """The plan with the fewest operations; None if no kernel has one.

    ``real``: "given" or "results" if these are real, or "". ``itemsize``: the bytes of a part of a number in between.
    ``is_apart``: a line's own numbers are apart in memory.
    """
    whole = MOST_BYTES // (2 * itemsize)
    part = whole // least_wide(itemsize)
    most = part if is_apart else whole
    able: list[Plan] = []
    for halved in ("", real) if real and count % 2 == 0 else ("",):
        empty = Plan(count, given, outputs, halved, ())
        orders = _orders(empty.own)
        if orders is not None and empty.own > most:
            able += [replace(empty, orders=split) for split in (_split(empty.own, part),) if split and not halved]
        elif orders is not None:
            able.append(replace(empty, orders=(orders,)))
        else:
            least = sum(empty.own_sizes) - 1
            sizes = range(least, min(2 * least, most) + 1)
            able += [replace(empty, orders=(found,)) for size in sizes if (found := _orders(size)) is not None]
    return min(able, key=lambda plan: plan.operations, default=None)


def _split(count: int, most: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The stages of two kernels with orders up to ``most``, as equal as can be."""
    for first in range(isqrt(count), 0, -1):
        if count % first == 0:
            if count // first > most:
                return None
            orders = _orders(count // first), _orders(first)
            if orders[0] is not None and orders[1] is not None:
                return orders[0], orders[1]
    return None


def _weight(orders: tuple[int, ...]) -> int:
    """Operations for each number."""
    return sum(_STAGE + _prime_weight(order) for order in orders)


@lru_cache(64)
def _prime_weight(order: int) -> int:
    return sum(weight for prime, weight in PRIMES.items() for _ in range(_power(order, prime)))


def _power(number: int, prime: int) -> int:
    found = 0
    while number % prime == 0:
        number, found = number // prime, found + 1
    return found


@lru_cache(4096)
def _orders(count: int) -> tuple[int, ...] | None:
    """The fewest stages, the greatest of them as small as can be, and first; None for another prime factor."""
    if not has_small_factors(count):
        return None
    stages = 1
    while True:
        able = list(_factored(count, stages, _MOST_ORDER))
        if able:
            return min(able)
        stages += 1


def _factored(count: int, stages: int, most: int) -> Iterator[tuple[int, ...]]:
    """Falling orders up to ``most`` with the product ``count``."""
    if stages == 1:
        if count <= most:
            yield (count,)
        return
    for order in range(min(most, count), 1, -1):
        if count % order == 0 and order**stages >= count:
            for others in _factored(count // order, stages - 1, order):
                yield (order, *others)


def _stage_places(orders: tuple[int, ...]) -> Iterator[tuple[Places, int]]:
    """The exponents of the factors before each stage but the first, and the order of their root."""
    before = orders[0]
    for order in orders[1:]:
        yield np.outer(np.arange(1, order), np.arange(before)), before * order
        before *= order


def _turns(sign: int, places: Places, order: int) -> Array:
    """The roots of this order to these powers, [., 2]; no angle is rounded."""
    found: Array = root_table(order)[places.reshape(-1) % order]
    found[:, 1] *= sign
    return found


def _transform(x: Array, orders: tuple[int, ...]) -> Array:
    """The transform of [n, 2] in stages of these orders. Only additions and products in a fixed order, whose results
    are those of IEEE 754 on every machine."""
    count, before = len(x), 1
    for order in orders:
        lines = count // order
        turn = _turns(-1, np.outer(np.arange(order), np.arange(lines) % before), before * order).reshape(
            order, lines, 2
        )
        parts = _times(x.reshape(order, lines, 2), turn)
        powers = _turns(-1, np.outer(np.arange(order), np.arange(order)), order).reshape(order, order, 2)
        sums = np.zeros((order, lines, 2))
        for place in range(order):
            sums = sums + _times(np.broadcast_to(parts[place], sums.shape), powers[:, place, None, :])
        x = sums.reshape(order, lines // before, before, 2).transpose(1, 0, 2, 3).reshape(count, 2)
        before *= order
    return x


def _times(x: Array, y: Array) -> Array:
    re = x[..., 0] * y[..., 0] - x[..., 1] * y[..., 1]
    im = x[..., 0] * y[..., 1] + x[..., 1] * y[..., 0]
    return np.stack([re, im], axis=-1)
