"""The help for sizes that differ only because a division of a dim rounds: a multiple to declare.

``[B, 8, H, W]`` and ``[B, 8, 2*((H + 1)//2), 2*((W + 1)//2)]``, as of a U-Net, are equal for multiples of 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from dslc.compiler.check.values import Static
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import Dim, FloorDiv, Poly, Size, floor_div, of_dim, product

_MOST: Final = 512  # of a multiple


def to_equal(pairs: Iterable[tuple[Size, Size]]) -> str | None:
    """The help that makes the two sizes of each pair equal; None if no multiples of dims do."""
    found: dict[Dim, list[tuple[Size, Size]]] = {}
    for a, b in pairs:
        dims = {dim for size in (a, b) if isinstance(size, Poly) for dim in size.dims}
        if len(dims) != 1:
            return None
        found.setdefault(dims.pop(), []).append((a, b))
    forms = [_declared(dim, each, dim.name if len(found) > 1 else "") for dim, each in found.items()]
    said = ", and ".join(form for form in forms if form is not None)
    return f"they are equal if {said}" if said and None not in forms else None


def of_tensors(values: Sequence[Static]) -> str | None:
    """The same for the last axes of the tensors among some values, and in lists, where sizes with dims differ."""
    tensors = [x for each in values for x in (each if isinstance(each, list) else [each]) if isinstance(x, Value)]
    shapes = [x.type.shape[::-1] for x in tensors]
    pairs = [pair for before, after in pairwise(shapes) for pair in zip(before, after)]
    return to_equal((a, b) for a, b in reversed(pairs) if a != b and isinstance(a, Poly) and isinstance(b, Poly))


def _declared(dim: Dim, pairs: Sequence[tuple[Size, Size]], end: str) -> str | None:
    """What the dim must be for all pairs to be equal, in words. ``end``: of the new dim's name."""
    period = math.lcm(*(_period(size) for pair in pairs for size in pair))
    for step in range(2, min(period, _MOST) + 1):
        for rest in range(step) if period % step == 0 else ():
            low, high = max(-((rest - dim.low) // step), 1), (dim.high - rest) // step
            name = ("K" if dim.name != "K" else "N") + end
            each = of_dim(Dim(name, 1, 2, 1)) * step + rest
            if low <= high and all(_with(a, each) == _with(b, each) for a, b in pairs):
                usual = min(max((dim.default - rest) // step, low), high)
                return f"`{dim.name}` is `{each}`, with `dim {name} in {low}..{high} = {usual}`"
    return None


def _period(size: Size) -> int:
    """Two values of the dim that are so far apart leave the same rests in all divisions of the size."""
    quotients = [a for atoms, _ in size.terms for a in atoms] if isinstance(size, Poly) else []
    return math.lcm(*(a.divisor * _period(a.value) for a in quotients if isinstance(a, FloorDiv)))


def _with(size: Size, value: Size) -> Size:
    """The size with this value in the place of its only dim."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for atoms, coefficient in size.terms:
        factors = [value if isinstance(a, Dim) else floor_div(_with(a.value, value), a.divisor) for a in atoms]
        total = total + coefficient * product(tuple(factors))
    return total
