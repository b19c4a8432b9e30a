"""einsum of one or several tensors: composed of diagonals, transpose, reshape, matmul and sums."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, bounds, product, to_fix
from dslc.compiler.ops.elementwise.arithmetic import mul
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.reduction.reduce import sum_
from dslc.compiler.ops.shape.slicing import piece
from dslc.compiler.ops.shape.views import reshape, transpose

_PATTERN: Final = re.compile(r"[A-Za-z\s]*(,[A-Za-z\s]*)*->[A-Za-z\s]*", re.ASCII)
_HELP: Final = 'for instance "bij,bjk->bik"'
_MOST: Final = 10  # operands: the search for an order looks at 3^n pairs of sets of them

#: A pair of orders, or the number of an operand.
Order: TypeAlias = "int | tuple[Order, Order]"


def parse(pattern: str) -> tuple[tuple[str, ...], str]:
    """The letters of the operands and of the result; raises Mismatch."""
    if _PATTERN.fullmatch(pattern) is None:
        help = "`...` is not in the language: write a letter for each axis" if "..." in pattern else _HELP
        raise Mismatch(f"{pattern!r} is not a pattern of operands and a result", help)
    given, _, out = "".join(pattern.split()).partition("->")
    twice = sorted({c for c in out if out.count(c) > 1})
    if twice:
        help = "each axis of the result needs a different letter; `unsqueeze(x, -1) * eye(n)` makes diagonal matrices"
        raise Mismatch(f"`{twice[0]}` occurs twice in {out!r}", help)
    lost = [c for c in out if c not in given]
    if lost:
        raise Mismatch(f"`{lost[0]}` of the result is not an axis of an operand", _HELP)
    return tuple(given.split(",")), out


def _sizes(letters: str, x: Value, known: dict[str, Size]) -> None:
    """Adds the sizes of ``x`` by letter; raises Mismatch E0302."""
    if len(letters) != x.type.rank:
        raise Mismatch(f"{letters!r} names {len(letters)} axes, {x.type} has {x.type.rank}", _HELP, "E0302")
    for letter, size in zip(letters, x.type.shape):
        if known.setdefault(letter, size) != size:
            help = "a letter has one size"
            if letters.count(letter) > 1:
                help += f"; {letters!r} takes the diagonal of {x.type}, whose axes must be equal"
            raise Mismatch(f"`{letter}` is {known[letter]} and {size}", help, "E0302")


@dataclass(frozen=True)
class _Factor:
    """A tensor and the letters of its axes."""

    x: Value
    letters: str

    def diagonal(self, call: Call) -> _Factor:
        """Axes of the same letter become one: every (n + 1)-th element of the two joined axes. Raises Mismatch."""
        twice = next((c for c in self.letters if self.letters.count(c) > 1), None)
        if twice is None:
            return self
        first, last = self.letters.index(twice), self.letters.rindex(twice)
        rest = [i for i in range(len(self.letters)) if i not in (first, last)]
        size = self.x.type.shape[first]
        if not isinstance(size, int):
            raise Mismatch(f"a diagonal of {self.x.type}", to_fix(size), "E0303")
        x = call.emit(transpose, self.x, perm=(*rest, first, last))
        x = call.emit(reshape, x, shape=(*x.type.shape[:-2], size * size))
        x = piece(call, x, len(rest), 0, size * size, size + 1)
        return _Factor(x, "".join(self.letters[i] for i in rest) + twice).diagonal(call)

    def only(self, call: Call, wanted: str) -> _Factor:
        """Summed over the axes whose letter is not wanted."""
        over = tuple(i for i, c in enumerate(self.letters) if c not in wanted)
        x = call.emit(sum_, self.x, over=over, keep=False) if over else self.x
        return _Factor(x, "".join(c for c in self.letters if c in wanted))

    def arranged(self, call: Call, order: str, shape: Sequence[Size]) -> Value:
        """Transposed to this order of letters, then reshaped to this shape."""
        x = self.x
        if self.letters != order:
            x = call.emit(transpose, x, perm=tuple(self.letters.index(c) for c in order))
        return x if x.type.shape == tuple(shape) else call.emit(reshape, x, shape=tuple(shape))


@dataclass(frozen=True)
class _Product:
    """Factors that are multiplied two by two, then summed over all letters but those of ``out``."""

    call: Call
    factors: tuple[_Factor, ...]
    out: str
    sizes: dict[str, Size]

    def shape(self, letters: str) -> tuple[Size, ...]:
        return tuple(self.sizes[c] for c in letters)

    def wanted(self, others: Sequence[str]) -> str:
        """The letters of the result and of other factors."""
        return "".join([*others, self.out])

    @cached_property
    def order(self) -> Order:
        """The order with the fewest multiplications, of all there are. A dim counts with its greatest size."""
        count = len(self.factors)
        weights = {c: bounds(n)[1] for c, n in self.sizes.items()}
        held = [
            frozenset().union(*(f.letters for i, f in enumerate(self.factors) if s >> i & 1)) for s in range(1 << count)
        ]
        whole = (1 << count) - 1
        left = [held[s] & (held[whole ^ s] | set(self.out)) for s in range(1 << count)]
        best: dict[int, tuple[int, Order]] = {1 << i: (0, i) for i in range(count)}
        for s in range(1, whole + 1):
            if s in best:
                continue
            part, found = (s - 1) & s, None
            while part:
                other = s ^ part
                if part & (s & -s):  # each pair once: the half with the first factor is the left one
                    work = math.prod(weights[c] for c in left[part] | left[other])
                    cost = best[part][0] + best[other][0] + work
                    if found is None or cost < found[0]:
                        found = cost, (best[part][1], best[other][1])
                part = (part - 1) & s
            assert found is not None
            best[s] = found
        return best[whole][1]

    def value(self) -> Value:
        """The result."""
        y = self._of(self.order, ())
        return y.arranged(self.call, self.out, self.shape(self.out))

    def _of(self, order: Order, others: tuple[str, ...]) -> _Factor:
        """The product of the factors in an order; ``others``: the letters of those that are not in it."""
        if isinstance(order, int):
            return self.factors[order].only(self.call, self.wanted(others))
        left, right = order
        letters = ["".join(self.factors[i].letters for i in _numbers(part)) for part in order]
        a = self._of(left, (*others, letters[1]))
        b = self._of(right, (*others, a.letters))
        return self._pair(a, b, self.wanted(others))

    def _pair(self, a: _Factor, b: _Factor, wanted: str) -> _Factor:
        """One matrix product over the common letters that are not wanted."""
        call, left, right, shape = self.call, a.letters, b.letters, self.shape
        batch = "".join(c for c in left if c in right and c in wanted)
        summed = "".join(c for c in left if c in right and c not in wanted)
        rows = "".join(c for c in left if c not in right)
        columns = "".join(c for c in right if c not in left)
        lead = shape(batch)
        inner, down, across = (product(shape(letters)) for letters in (summed, rows, columns))
        if summed:
            x = a.arranged(call, batch + rows + summed, (*lead, down, inner))
            if right.startswith(batch + columns):  # the product does the transpose
                y = b.arranged(call, batch + columns + summed, (*lead, across, inner))
                z = call.emit(matmul, x, y, transpose_a=False, transpose_b=True)
            else:
                y = b.arranged(call, batch + summed + columns, (*lead, inner, across))
                z = call.emit(matmul, x, y, transpose_a=False, transpose_b=False)
        else:
            x = a.arranged(call, batch + rows, (*lead, down, 1))
            y = b.arranged(call, batch + columns, (*lead, 1, across))
            z = call.emit(mul, x, y)
        found = batch + rows + columns
        return _Factor(z if z.type.shape == shape(found) else call.emit(reshape, z, shape=shape(found)), found)


def _numbers(order: Order) -> list[int]:
    return [order] if isinstance(order, int) else [*_numbers(order[0]), *_numbers(order[1])]


class Einsum(Function):
    """einsum(pattern, a, b=none, ...): the sum of products of tensors, described by a pattern of letters as in numpy.

    Each letter is an axis; letters missing in the result are summed over. Of one tensor it makes transposes, sums, and
    diagonals where a letter stands twice: "ii->i", and "ii->" is the trace. Two tensors become one matrix product over
    their common letters, with transposes and reshapes if needed. Of three to ten tensors, two are multiplied at a time
    in the order with the fewest multiplications of all orders; a dim counts with its greatest size.

    given: x: [B, 4, 8], y: [B, 2, 8], z: [4, 4]
    >>> einsum("bij,bkj->bik", x, y)
    >>> einsum("bij,bkj,il->bkl", x, y, z)
    >>> einsum("ii->i", z)
    """

    name = "einsum"

    def build(self, call: Call, pattern: str, a: Value, b: Value | None = None, *more: Value) -> Value:
        given, out = parse(pattern)
        xs = [a, *([] if b is None else [b]), *more]
        if len(xs) != len(given):
            why = f"{pattern!r} describes {len(given)} operands, there are {len(xs)}"
            raise Mismatch(why, "one group of letters for each tensor", "E0302")
        if len(xs) > _MOST:
            raise Mismatch(f"`einsum` of {len(xs)} tensors", f"at most {_MOST}: write several calls", "E0209")
        if any(x.type.dtype is not a.type.dtype for x in xs) or not a.type.dtype.is_float:
            listed = " and ".join(str(x.type) for x in xs)
            raise Mismatch(f"`einsum` of {listed}", 'it takes float tensors: `cast(x, "float")`', "E0204")
        sizes: dict[str, Size] = {}
        for letters, x in zip(given, xs):
            _sizes(letters, x, sizes)
        factors = tuple(_Factor(x, letters).diagonal(call) for letters, x in zip(given, xs))
        return _Product(call, factors, out, sizes).value()


function(Einsum())
