"""Writes transforms of small orders in CUDA C++, each number in registers of its own.

An order a * b takes b transforms of order a, twiddle factors, and a transforms of order b. A prime order takes sums and
differences of opposite numbers: cosines are even, and sines are odd.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dslc.compiler.ir.types import DType
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.products.fourier import unit_root

#: The names of a real and an imaginary part.
_Number: TypeAlias = tuple[str, str]
_FACTORS: Final = {
    4: (2, 2),
    6: (2, 3),
    8: (2, 4),
    9: (3, 3),
    10: (2, 5),
    12: (3, 4),
    14: (2, 7),
    15: (3, 5),
    16: (4, 4),
}


def butterfly(order: int, sign: int, dtype: DType) -> str:
    """The function ``butterfly(Complex (&v)[order])``: the transform in place."""
    text = _Text(sign, "f" if dtype is DType.F32 else "")
    found = text.transform([(f"v[{i}].re", f"v[{i}].im") for i in range(order)])
    lines = [*text.lines, *(f"v[{i}] = {{{re}, {im}}};" for i, (re, im) in enumerate(found))]
    body = "".join(f"  {line}\n" for line in lines)
    return f"__device__ __forceinline__ void butterfly(Complex (&v)[{order}]) {{\n{body}}}\n"


@dataclass
class _Text:
    """The lines that compute a transform; ``suffix``: of numbers in the code."""

    sign: int
    suffix: str
    lines: list[str] = field(default_factory=list)

    def transform(self, x: list[_Number]) -> list[_Number]:
        count = len(x)
        if count == 1:
            return x
        if count == 2:
            return [self._both("+", *x), self._both("-", *x)]
        if count not in _FACTORS:
            return self._of_prime(x)
        a, b = _FACTORS[count]
        parts = [self.transform(x[column::b]) for column in range(b)]
        turned = [[self._turned(parts[j][i], i * j, count) for j in range(b)] for i in range(a)]
        rows = [self.transform(row) for row in turned]
        return [rows[k % a][k // a] for k in range(count)]

    def _of_prime(self, x: list[_Number]) -> list[_Number]:
        count, half = len(x), len(x) // 2
        sums = [self._both("+", x[j], x[count - j]) for j in range(1, half + 1)]
        apart = [self._both("-", x[j], x[count - j]) for j in range(1, half + 1)]
        total = x[0]
        for each in sums:
            total = self._both("+", total, each)
        first, last = [total], list[_Number]()
        for k in range(1, half + 1):
            roots = [unit_root(j * k % count, count) for j in range(1, half + 1)]
            even = self._sum(sums, [c for c, _ in roots], x[0])
            re, im = self._sum(apart, [self.sign * s for _, s in roots], None)
            first.append((self._is(f"{even[0]} - {im}"), self._is(f"{even[1]} + {re}")))
            last.append((self._is(f"{even[0]} + {im}"), self._is(f"{even[1]} - {re}")))
        return [*first, *reversed(last)]

    def _sum(self, x: list[_Number], weights: list[float], start: _Number | None) -> _Number:
        found = []
        for part in range(2):
            at = None if start is None else start[part]
            for each, weight in zip(x, weights, strict=True):
                factor = self._literal(weight)
                at = self._is(f"{each[part]} * {factor}" if at is None else f"fused({each[part]}, {factor}, {at})")
            assert at is not None
            found.append(at)
        return found[0], found[1]

    def _turned(self, x: _Number, place: int, order: int) -> _Number:
        """Times a power of the root of this order; quarter turns take no products."""
        re, im = x
        if 4 * place % order == 0:
            turn = self.sign * (4 * place // order) % 4
            first, last = (re, im) if turn % 2 == 0 else (im, re)
            return self._is(f"-{first}") if turn in (1, 2) else first, self._is(f"-{last}") if turn > 1 else last
        cosine, sine = unit_root(place % order, order)
        c, s = self._literal(cosine), self._literal(self.sign * sine)
        return self._is(f"fused({re}, {c}, -({im} * {s}))"), self._is(f"fused({re}, {s}, {im} * {c})")

    def _both(self, how: str, x: _Number, y: _Number) -> _Number:
        return self._is(f"{x[0]} {how} {y[0]}"), self._is(f"{x[1]} {how} {y[1]}")

    def _is(self, expression: str) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"const SUM {name} = {expression};")
        return name

    def _literal(self, number: float) -> str:
        held = float(np.float32(number)) if self.suffix else number
        return f"({held.hex()}{self.suffix})"
