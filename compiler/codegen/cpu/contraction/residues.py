"""Elements of a strided convolution's input, in classes by the remainder of their index divided by the stride."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dslc.compiler.codegen.cpu.contraction.layouts import Window


@dataclass(frozen=True, slots=True)
class ResidueClass:
    """Elements ``residue + stride*i`` of x along an axis, i < ``count``. Each takes part in ``taps`` windows: it is at
    kernel position ``first + step*t`` of window ``start + i - back*t``."""

    residue: int
    count: int
    taps: int = 0
    first: int = 0
    step: int = 1
    start: int = 0
    back: int = 0

    @property
    def least(self) -> int:
        """The smallest index of a window that an element takes part in, possibly outside of y; ``most`` is the
        largest."""
        return self.start - self.back * (self.taps - 1)

    @property
    def most(self) -> int:
        return self.start + self.count - 1


def residue_classes(w: Window) -> list[ResidueClass]:
    """The classes of all residues along one axis that an element has."""
    common = math.gcd(w.stride, w.dilation)
    step = w.stride // common
    found = []
    for residue in range(min(w.stride, w.size)):
        count = -(-(w.size - residue) // w.stride)
        first = next((k for k in range(min(w.k, step)) if (residue + w.pad - k * w.dilation) % w.stride == 0), None)
        if first is None:
            found.append(ResidueClass(residue, count))
            continue
        start = (residue + w.pad - first * w.dilation) // w.stride
        found.append(ResidueClass(residue, count, -(-(w.k - first) // step), first, step, start, w.dilation // common))
    return found
