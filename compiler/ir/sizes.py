"""Sizes: ints, or polynomials over the dims of a file, so that one check holds for every batch size.

A ``Size`` is an int or a ``Poly``; arithmetic on either returns the simplest form, and equal sizes are equal objects.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Dim:
    """A dim declared in the file: ``dim B in low..high = default``."""

    name: str
    low: int
    high: int
    default: int

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """``value // divisor`` if the division is not known to be exact."""

    value: Poly
    divisor: int

    def __str__(self) -> str:
        [(atoms, coefficient), *others] = self.value.terms
        is_name = not others and coefficient == 1 and len(atoms) == 1 and isinstance(atoms[0], Dim)
        return f"{self.value}//{self.divisor}" if is_name else f"({self.value})//{self.divisor}"


class SizeLimit(ValueError):
    """A size exceeded MAX_WEIGHT parts, or a coefficient exceeded 128 bits; the text says which."""


#: largest number of names, terms and divisions in one size, including those inside divisions
MAX_WEIGHT: Final = 512

Atom: TypeAlias = Dim | FloorDiv
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Poly:
    """A sum of coefficients times products of atoms; ``terms`` are sorted, have nonzero coefficients, and are not
    constant."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        """The size in the language, where `*` and `//` are evaluated from left to right."""
        text = ""
        for atoms, coefficient in self.terms:
            size = abs(coefficient)
            factors = [str(size)] if size != 1 or not atoms else []
            alone = len(atoms) == 1 and size == 1 and (bool(text) or coefficient > 0)
            factors += [str(a) if alone or isinstance(a, Dim) else f"({a})" for a in atoms]
            sign = "-" if coefficient < 0 else "+" if text else ""
            text += (f" {sign} " if text else sign) + "*".join(factors)
        return text

    def __add__(self, other: Size) -> Size:
        return _combine(_terms(self) + _terms(other))

    __radd__ = __add__

    def __neg__(self) -> Size:
        return _combine([(a, -c) for a, c in self.terms])

    def __sub__(self, other: Size) -> Size:
        return _combine(_terms(self) + [(a, -c) for a, c in _terms(other)])

    def __rsub__(self, other: Size) -> Size:
        return _combine(_terms(other) + [(a, -c) for a, c in self.terms])

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, Poly) and len(self.terms) * len(other.terms) > MAX_WEIGHT:
            raise SizeLimit(f"a size of more than {MAX_WEIGHT} terms")
        return _combine([(tuple(sorted(a + b, key=str)), c * d) for a, c in self.terms for b, d in _terms(other)])

    __rmul__ = __mul__

    @property
    def dims(self) -> frozenset[Dim]:
        found: set[Dim] = set()
        for atoms, _ in self.terms:
            for atom in atoms:
                found |= {atom} if isinstance(atom, Dim) else atom.value.dims
        return frozenset(found)


Size: TypeAlias = int | Poly


def of_dim(dim: Dim) -> Size:
    """The size that is this dim's value; an int if the dim has one possible value."""
    return dim.low if dim.low == dim.high else Poly((((dim,), 1),))


def _terms(size: Size) -> list[tuple[Monomial, int]]:
    return list(size.terms) if isinstance(size, Poly) else [((), size)]


def _combine(terms: list[tuple[Monomial, int]]) -> Size:
    total: dict[Monomial, int] = {}
    for atoms, coefficient in terms:
        total[atoms] = total.get(atoms, 0) + coefficient
    kept = sorted(((a, c) for a, c in total.items() if c), key=lambda t: (-len(t[0]), [str(a) for a in t[0]]))
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    if any(abs(c) >> 128 for _, c in kept):
        raise SizeLimit("a size beyond 2^128")
    if len(kept) > MAX_WEIGHT or sum(_weight(atom) for atoms, _ in kept for atom in atoms) > MAX_WEIGHT:
        raise SizeLimit(f"a size of more than {MAX_WEIGHT} parts")
    return Poly(tuple(kept))


def _weight(atom: Atom) -> int:
    """The number of parts of an atom; the recursion is bounded, since inner sizes were weighed when they were
    created."""
    if isinstance(atom, Dim):
        return 1
    return 1 + len(atom.value.terms) + sum(_weight(inner) for atoms, _ in atom.value.terms for inner in atoms)


def to_multiple(value: Size, divisor: Size) -> str | None:
    """The help for a size with dims that a number does not divide; None for others."""
    if isinstance(value, int) or not isinstance(divisor, int):
        return None
    return f"declare a multiple: `dim K in 1..64` and `{divisor}*K` for the size {value}"


def to_exact(size: Size) -> str | None:
    """The help for a size that holds a quotient of a dim, rounded down; None for others."""
    for atoms, _ in size.terms if isinstance(size, Poly) else ():
        for atom in atoms:
            if isinstance(atom, FloorDiv) and len(atom.value.dims) == 1:
                [dim] = atom.value.dims
                return f"`{atom}` rounds down; {to_multiple(of_dim(dim), atom.divisor)}"
    return None


def ceil_div(count: int, size: int) -> int:
    """``count / size``, rounded up: the number of pieces of a size that hold so many."""
    return -(-count // size)


def exact_div(value: Size, divisor: Size) -> Size | None:
    """``value / divisor`` if it is exact for every value of the dims, else None."""
    if divisor == 0:
        return None
    if isinstance(value, int) and isinstance(divisor, int):
        return value // divisor if value % divisor == 0 else None
    if value == divisor:
        return 1
    divisor_terms = _terms(divisor)
    if len(divisor_terms) != 1:
        return None
    [(atoms, coefficient)] = divisor_terms
    quotient: list[tuple[Monomial, int]] = []
    for have, c in _terms(value):
        left = list(have)
        for atom in atoms:
            if atom not in left:
                return None
            left.remove(atom)
        if c % coefficient:
            return None
        quotient.append((tuple(left), c // coefficient))
    return _combine(quotient)


def floor_div(value: Size, divisor: int) -> Size:
    """``value // divisor`` for a positive divisor, in one form for equal quotients: ``(H - 3)//2 + 1`` is
    ``(H - 1)//2``, ``H//2//2`` is ``H//4``, and ``-(-H//2)`` is ``(H + 1)//2``."""
    if isinstance(value, int):
        return value // divisor
    # extract what is divisible: (4*B + 3) // 4 = B + 0; the constant that stays is 0 <= c < divisor
    whole: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for atoms, c in value.terms:
        left = c % divisor if c > 0 or not atoms else -(-c % divisor)
        whole.append((atoms, (c - left) // divisor))
        rest.append((atoms, left))
    inner = _combine(rest)
    return _combine([*whole, *_terms(inner // divisor if isinstance(inner, int) else _floor(inner, divisor))])


def _floor(value: Poly, divisor: int) -> Size:
    """The quotient of a polynomial without divisible parts."""
    if value.terms[0][1] < 0:  # the first term of a dividend is positive: floor(-v / d) = -floor((v + d - 1) / d)
        return -floor_div(divisor - 1 - value, divisor)
    common = math.gcd(divisor, *(c for atoms, c in value.terms if atoms))
    if common > 1:  # floor((2*H + 1) / 4) = floor(H / 2)
        return floor_div(_combine([(a, c // common) for a, c in value.terms]), divisor // common)
    atoms, coefficient = value.terms[0]
    rest = value - Poly((value.terms[0],))
    if coefficient == 1 and len(atoms) == 1 and isinstance(atoms[0], FloorDiv) and isinstance(rest, int):
        atom = atoms[0]  # floor((floor(v / a) + c) / d) = floor((v + a*c) / (a*d))
        return floor_div(atom.value + atom.divisor * rest, atom.divisor * divisor)
    return Poly((((FloorDiv(value, divisor),), 1),))


def bounds(size: Size) -> tuple[int, int]:
    """No value of the size is smaller or larger, for all values of the dims (as if each term had its own dims)."""
    if isinstance(size, int):
        return size, size
    low, high = _bounds_of_terms(size)
    if any(isinstance(atom, FloorDiv) for atoms, _ in size.terms for atom in atoms):
        with suppress(SizeLimit):  # quotients that do not combine within the limits: the terms' bounds hold
            low, high = max(low, _least(size)), min(high, -_least(-size))
    return low, high


def _bounds_of_terms(size: Poly) -> tuple[int, int]:
    low = high = 0
    for atoms, coefficient in size.terms:
        a = b = 1
        for atom in atoms:
            if isinstance(atom, Dim):
                c, d = atom.low, atom.high
            else:
                c, d = (v // atom.divisor for v in bounds(atom.value))
            products = (a * c, a * d, b * c, b * d)
            a, b = min(products), max(products)
        low += min(a * coefficient, b * coefficient)
        high += max(a * coefficient, b * coefficient)
    return low, high


def _least(size: Size) -> int:
    """A lower bound that knows how a quotient depends on its dividend: ``T - T//2`` is at least ``T/2``. Each term
    ``c * (v // d)`` is replaced by ``c*v/d`` or, for a positive c, by ``c*(v - d + 1)/d``, which are not greater."""
    scale = 1
    while isinstance(size, Poly):
        found = next((t for t in size.terms if len(t[0]) == 1 and isinstance(t[0][0], FloorDiv)), None)
        if found is None:
            return -(-_bounds_of_terms(size)[0] // scale)
        (atom,), coefficient = found
        assert isinstance(atom, FloorDiv)
        dividend = atom.value - (atom.divisor - 1 if coefficient > 0 else 0)
        size = (size - Poly((found,))) * atom.divisor + dividend * coefficient
        scale *= atom.divisor
    return -(-size // scale)


def bind(size: Size, values: Mapping[str, int]) -> int:
    """The int value of this size for these values of the dims (KeyError for a dim without a value)."""
    if isinstance(size, int):
        return size
    total = 0
    for atoms, coefficient in size.terms:
        product = coefficient
        for atom in atoms:
            product *= values[atom.name] if isinstance(atom, Dim) else bind(atom.value, values) // atom.divisor
        total += product
    return total


def product(sizes: tuple[Size, ...]) -> Size:
    """The product of sizes; 1 for an empty tuple."""
    return math.prod(sizes)


def to_fix(size: Size) -> str:
    """The help for a size that the build chooses, where the source must say it."""
    dims = sorted(size.dims, key=lambda dim: dim.name) if isinstance(size, Poly) else []
    shown = " and ".join(f"`dim {dim.name} = {dim.default}`" for dim in dims[:2])
    return f"the build chooses this size; fix it, which makes it an int: {shown}"


def to_reach(size: Size, least: int) -> str | None:
    """The declaration of a dim with which a size is always at least ``least``; None for a size of no dim or several, or
    if no value suffices."""
    dims = list(size.dims) if isinstance(size, Poly) else []
    if len(dims) != 1:
        return None
    [dim] = dims

    def suffices(value: int) -> bool:
        return bind(size, {dim.name: value}) >= least

    if not suffices(dim.high):
        return None
    low = dim.low + bisect_left(range(dim.low, dim.high), True, key=suffices)
    return f"dim {dim.name} in {low}..{dim.high} = {max(low, dim.default)}"
