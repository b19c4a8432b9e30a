"""Products of a convolution in parts that leave out multiplications with zeros.

- What a stride leaves out: elements of the input are in classes by the remainder of their index divided by the stride.
  The gradient of each class is a product of its own.
- What a border leaves out, which is then not copied either. Along an axis, the windows fall into bands: those of a band
  meet the image by the same taps. For each choice of a band per axis, a kernel multiplies the taps that are met;
  together they write the whole result. All read one packed copy of the other operand, whose order is that of the whole
  product. For the gradient of the weight, taps and windows change their places.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, NamedTuple

from dslc.compiler.codegen.cpu.contraction.layouts import Image, Window, row_major
from dslc.compiler.codegen.cpu.contraction.pack import Pad
from dslc.compiler.codegen.cpu.contraction.plan import COPIED, Candidate, Problem, Scratch, candidates, lower, merged
from dslc.compiler.codegen.cpu.contraction.steps import Step, Steps

_MOST: Final = 32  # kernels of a product
#: Factor of the time of a part's product, which reads each panel for few pixels. On maps of 9x9 to 65x65, of 64 to 512
#: channels, parts took 1.0 to 1.6 times the share of the whole's time that the model says (Xeon, AVX-512).
_APART: Final = 1.3
_BEGUN: Final = 16_000  # time to begin a kernel, for which all threads wait: about 3 microseconds


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


def placed(p: Problem, lines: Sequence[int], pixels: int, batch: int, channels: int, name: str) -> Problem:
    """The class with a dense result, [batch, groups, channels, *count], in scratch memory of that name."""
    [groups], [image, *axes], [channel] = p.batch, p.left, p.right
    return replace(
        p,
        batch=(replace(groups, c=channels * pixels),),
        left=(
            replace(image, c=groups.size * channels * pixels),
            *(replace(x, c=line) for x, line in zip(axes, lines)),
        ),
        right=(replace(channel, c=pixels),),
        size=batch * groups.size * channels * pixels,
        starts=(*p.starts[:2], 0),
        c=name,
    )


class Band(NamedTuple):
    """``results`` indices of the result from ``first`` on, which meet ``taps`` indices of the sum from ``tap`` on."""

    first: int
    results: int
    tap: int
    taps: int


def bands(count: int, taps: int, start: int, move: int, step: int, size: int) -> list[Band]:
    """The bands of ``count`` results: result i meets by index j of the sum the place ``start + i*move + j*step``, if
    that is in 0..size-1. Some may meet nothing. A long line with few bands takes no longer than a short one."""

    def met(i: int) -> tuple[int, int]:
        """The first index of the sum that meets a place, and the one after the last. They only rise or fall with i."""
        at = start + i * move
        before, after = (at, at - size) if step < 0 else (size - 1 - at, -1 - at)
        return max(0, after // abs(step) + 1), min(taps, before // abs(step) + 1)

    def band(first: int) -> Band:
        here = tap, stop = met(first)
        end = bisect_left(range(count), True, first, key=lambda i: met(i) != here)
        return Band(first, end - first, *((tap, stop - tap) if tap < stop else (0, 0)))

    found: list[Band] = []
    first = 0
    while first < count:
        found.append(band(first))
        first += found[-1].results
    return found


@dataclass(frozen=True)
class Part:
    """A part of a problem's results: the problem of these, with the axes of the sum in the same order as the whole has
    them, and the first index of each in the whole."""

    problem: Problem
    first: tuple[int, ...]


def choices(axes: Sequence[Sequence[Band]]) -> list[tuple[Band, ...]]:
    """A band of each axis, for each part; none if a part would meet nothing, if there are too many, or only one."""
    found = list(product(*axes))
    return found if 1 < len(found) <= _MOST and all(b.taps for axis in axes for b in axis) else []


def of_input(
    part: Callable[[str, Image, Sequence[int], Sequence[Band]], Part],
    space: Sequence[Window],
    axes: Sequence[tuple[int, int, int, int]],
    image: Image,
    bordered: tuple[str, Sequence[Step], Image],
    scratch: Scratch,
) -> Steps:
    """A product with the input of a convolution, x, of these strides. ``bordered``: the name of x with its border, what
    copies it, and its strides. ``axes``: along each, results, indices of the sum, and how far each moves in x.
    ``part``: the product for one band of each, where the first pixel that is met has these coordinates."""
    name, border, x = bordered
    begin = [-s.pad for s in space]
    met = choices([bands(*axis[:2], at, *axis[2:], s.size) for s, at, axis in zip(space, begin, axes)])
    whole = part(name, x, [0] * len(axes), [Band(0, results, 0, taps) for results, taps, _, _ in axes])
    return lowered(whole.problem, border, [part("in0", image, begin, here) for here in met], scratch)


def lowered(whole: Problem, before: Sequence[Step], parts: Sequence[Part], scratch: Scratch) -> Steps:
    """The kernels of a problem: of its parts, if they take less time than the whole and the copy ``before`` it, which
    the parts do not need. The whole has one axis ``right``; ``scratch`` has the blocks of the copy."""
    found = _apart(whole, before, parts) if before else None
    return found or Steps((*before, *lower(whole, scratch)), tuple(scratch.bytes))


def _apart(whole: Problem, before: Sequence[Step], parts: Sequence[Part]) -> Steps | None:
    packing = [c for c in candidates(whole) if c.panel]
    if not parts or not packing:
        return None
    [candidate] = packing
    problems = [_of_panels(whole, candidate, part) for part in parts]
    time = candidate.packing + sum(_BEGUN + _APART * Candidate(p, candidate.panel).product for p in problems)
    copied = sum(step.kernel.elements for step in before if isinstance(step.kernel, Pad))
    if time >= candidate.time + COPIED * copied:
        return None
    pack, scratch = candidate.pack, Scratch()
    b = scratch.take(whole.dtype, pack.elements)
    steps = [Step(pack, (whole.b, b))]
    for problem in problems:
        kernel = Candidate(problem, candidate.panel).kernel
        steps.append(Step(replace(kernel, panel_depth=pack.depth), (problem.a, b, problem.c)))
    return Steps(tuple(steps), tuple(scratch.bytes))


def _of_panels(whole: Problem, candidate: Candidate, part: Part) -> Problem:
    """The problem of a part, with the strides of the whole's panels."""
    p, lines = part.problem, [n * candidate.panel for n in row_major([x.size for x in whole.inner])]
    inner = tuple(replace(x, b=line) for x, line in zip(p.inner, lines, strict=True))
    start = sum(n * line for n, line in zip(part.first, lines))
    return replace(
        p,
        batch=candidate.panel_batch(tuple(x for x in p.batch if x.size > 1)),
        left=merged(p.left),
        inner=merged(inner),
        starts=(p.starts[0], start, p.starts[2]),
    )
