"""Chooses how to compute a transform by modelled time: whole matrices, folded ones, or several stages.

Stages are the split of Cooley and Tukey (1965). A transform of order n = n1 * n2 is n2 transforms of order n1, a
product with twiddle factors, and n1 transforms of order n2. Those of order n1 are one product with a matrix; those of
order n2 are split again if that is faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt
from typing import Final

from dslc.compiler.cost import Machine, kernel_seconds, seconds
from dslc.compiler.ir.graph import Input, Kind, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.products.linear import matmul

#: Another way than whole matrices is taken if it has less than this part of their time. On an H200 the model was up to
#: 11 % too short for stages, and up to 11 % too long for a product (benchmarks/results/ops.md, Transforms).
SURE: Final = 0.8
#: The order up to which the matrix of a whole transform is stored. A longer one is gathered from a table in each run.
MOST_STORED: Final = 64
#: Rows and columns of the least tile of a GPU's products of many operations (``cuda/contraction/tile_tables.py``).
_TILE: Final = 32
_TWIDDLE: Final = 6  # operations of a product of complex numbers


@dataclass(frozen=True)
class Shape:
    """A transform of order ``count`` along the middle axis of [batch, inputs * given, inner]: ``given`` elements, of
    real numbers or, with ``inputs`` 2, of the real and then the imaginary parts. It gives a tensor [batch, outputs,
    inner] for each of ``parts``, 0 for real and 1 for imaginary ones. That of a split is longer than ``outputs``, if
    its first order does not divide them."""

    count: int
    batch: int
    inputs: int
    given: int
    inner: int
    parts: tuple[int, ...]
    outputs: int

    def first(self, order: int) -> tuple[int, int]:
        """The elements that each transform of the first stage of this order has, and the number of these transforms."""
        rest = self.count // order
        return -(-self.given // rest), rest

    def second(self, order: int) -> Shape:
        """The transforms that follow a first stage of this order."""
        rest = self.count // order
        return replace(
            self, count=rest, inputs=2, given=rest, inner=self.inner * order, outputs=-(-self.outputs // order)
        )


@dataclass(frozen=True)
class Way:
    """The orders of the first stages of a transform; the last stage has the rest. There are none for one product with
    the whole matrix, or with parts of it if ``folded``. ``seconds``: modelled time."""

    orders: tuple[int, ...]
    seconds: float
    folded: bool = False


class Ways:
    """The fastest ways on a machine for numbers of a dtype."""

    def __init__(self, machine: Machine, dtype: DType) -> None:
        self._machine, self._dtype = machine, dtype
        self._known: dict[Shape, Way] = {}

    def whole(self, shape: Shape) -> float:
        """Seconds of products with the matrices of a whole transform, which has no inner elements."""
        results = shape.batch * shape.outputs
        one = self.product((shape.batch, shape.given), (shape.given, shape.outputs))
        time = shape.inputs * len(shape.parts) * one
        if shape.inputs == 2:
            time += len(shape.parts) * self.moving(results)  # sums of two products
        return time + (2 * self.moving(shape.given * shape.outputs) if shape.count > MOST_STORED else 0.0)

    def folded(self, shape: Shape) -> Way | None:
        """Seconds of products with parts of these matrices, which are symmetric, and of the sums before and after;
        None for a short one."""
        half = shape.count // 2
        if shape.count <= MOST_STORED:
            return None
        given = half if shape.given == shape.count else shape.given
        outputs, products = min(shape.outputs, half + 1), shape.inputs * len(shape.parts)
        time = products * self.product((shape.batch, given), (given, outputs)) + 2 * self.moving(given * outputs)
        if given < shape.given:  # both halves and the first element, then sums and differences
            halves = 2 * self.moving(shape.batch * given) + self.moving(shape.batch)
            time += shape.inputs * halves + products * self._adding(shape.batch * given, 2)
        if outputs < shape.outputs or shape.inputs == 2:
            time += len(shape.parts) * 2 * self._adding(shape.batch * shape.outputs, shape.inputs)
        return Way((), time, folded=True)

    def _adding(self, elements: int, inputs: int) -> float:
        return kernel_seconds("elements", (1 + inputs) * elements * self._dtype.itemsize, elements, self._machine)

    def several(self, shape: Shape) -> Way | None:
        """The fastest way of several stages, with the copies before and after them; None for a prime number."""
        found = self._split(shape)
        if found is None:
            return None
        time = found.seconds
        if shape.inputs == 2:
            time += self.moving(2 * shape.batch * shape.given)
        if shape.outputs % found.orders[0]:
            time += len(shape.parts) * self.moving(shape.batch * shape.outputs)
        return replace(found, seconds=time)

    def moving(self, elements: int) -> float:
        """Seconds to read and write so many elements."""
        return kernel_seconds("copies", 2 * elements * self._dtype.itemsize, 0, self._machine)

    def product(self, left: tuple[int, ...], right: tuple[int, ...], *, swapped: bool = False) -> float:
        """Seconds of a product of matrices; ``swapped``: the last axes of the left one. A GPU computes whole tiles of
        each matrix: 1281 products [205, 818] by [818, 2] take 16 times as long as their operations."""
        if self._machine.device.multiprocessors:
            *batch, rows, inner = left
            left = (*batch, rows, _whole(inner)) if swapped else (*batch, _whole(rows), inner)
            right = (*right[:-1], _whole(right[-1]))
        a, b = (_tensor(self._dtype, shape) for shape in (left, right))
        return seconds(Builder().node(matmul, a, b, transpose_a=swapped, transpose_b=False), self._machine)

    def _split(self, shape: Shape) -> Way | None:
        """The fastest way of several stages alone."""
        found: Way | None = None
        for order in _divisors(shape.count):
            rest = self._best(shape.second(order))
            time = self._first(shape, order) + rest.seconds
            if found is None or time < found.seconds:
                found = Way((order, *rest.orders), time)
        return found

    def _best(self, shape: Shape) -> Way:
        """One product, or several stages if they are faster."""
        if shape not in self._known:
            rows = shape.inputs * shape.given
            one = self.product((shape.outputs, rows), (shape.batch, rows, shape.inner))
            whole = Way((), len(shape.parts) * one)
            split = self._split(shape)
            self._known[shape] = whole if split is None or whole.seconds <= split.seconds else split
        return self._known[shape]

    def _first(self, shape: Shape, order: int) -> float:
        """Seconds of the first stage, with the twiddle factors after it."""
        (given, rest), outer = shape.first(order), shape.batch * shape.inner
        rows, numbers = shape.inputs * given, 2 * shape.count * outer
        if shape.inner == 1:
            time = self.product((shape.batch, rows, rest), (rows, 2 * order), swapped=True)
        else:
            time = self.product((2 * order, rows), (shape.batch, rows, rest * shape.inner))
        moved = 2 * numbers * self._dtype.itemsize
        time += kernel_seconds("elements", moved, _TWIDDLE * numbers // 2, self._machine)
        return time + (self.moving(rows * rest * outer) if given * rest > shape.given else 0.0)


def _whole(size: int) -> int:
    """The rows or columns of the tiles that compute so many."""
    return -(-size // _TILE) * _TILE


def _divisors(count: int) -> list[int]:
    """Those between 1 and ``count``."""
    small = [d for d in range(2, isqrt(count) + 1) if count % d == 0]
    return sorted({*small, *(count // d for d in small)})


def _tensor(dtype: DType, shape: tuple[int, ...]) -> Value:
    return Input("", Kind.DATA, TensorType(dtype, shape)).value
