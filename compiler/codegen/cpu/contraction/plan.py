"""Chooses the kernels of a contraction: which side is broadcast, which fills vectors, what is packed, what is split.

The choice depends only on sizes and strides. The time model counts vector products including their waste, and elements
that must be packed or scattered, in units of one vector instruction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dslc.compiler.codegen.cpu.contraction.axes import Axis, best_width
from dslc.compiler.codegen.cpu.contraction.dot import Dot
from dslc.compiler.codegen.cpu.contraction.kernel import Contraction
from dslc.compiler.codegen.cpu.contraction.layouts import row_major, strided
from dslc.compiler.codegen.cpu.contraction.pack import Combine, Place
from dslc.compiler.codegen.cpu.contraction.panels import Pack
from dslc.compiler.codegen.cpu.contraction.steps import Step
from dslc.compiler.codegen.cpu.llvm.writer import lanes_of
from dslc.compiler.ir.types import DType

# The model of time, in vector instructions.
COPIED: Final = 0.15  # per element of a panel whose lanes are contiguous in the source
_TURNED: Final = 0.6  # per element of a panel that is transposed in registers
_PICKED: Final = 2.0  # per element of a panel that is gathered one by one
_STORED_ACROSS: Final = 0.7  # per result of a vector that is stored one by one, where rows of c are adjacent
_STORED_APART: Final = 2.0  # per such result elsewhere
_ACROSS: Final = 6.0  # to add the lanes of a vector
_PACKING: Final = 2000  # to begin a kernel that packs
_BROADCAST: Final = 0.1  # to broadcast an element of the left side, which serves all vectors of a tile's row
_TILE_ROWS: Final = 6  # most rows of a tile, whose sums are in registers
_TILE_VECTORS: Final = 4  # most vectors per row of a tile
#: Independent sums that keep a core busy: a multiply-add takes 4 cycles, and a core begins two in each (AVX2, Zen 4).
_FREE_SUMS: Final = 8
_DOT_TILE: Final = 4  # rows, and columns, of a tile of dot products
_DOT_ROWS: Final = 48  # rows from which on dot products read them from a far cache, once per tile of columns
_DOT_ROWS_COST: Final = 1.5  # factor of their time
_SPLIT_UNITS: Final = 8  # units below which the sum is split
_SPLIT_WORK: Final = 1 << 16  # fewest vector products that are worth a split
_FAR_BYTES: Final = 2048  # bytes between inner indices of an unpacked side, from which on few cache sets hold them
_REREAD_FAR_BYTES: Final = 512  # the same if at least ``_MANY_ROWS`` rows read that side
_MANY_ROWS: Final = 512
_FAR_DEPTH: Final = 128  # fewest inner indices for which such distances matter
_FAR_COST: Final = 1.08  # factor of the time, for the side that fills vectors
_FAR_ROWS_COST: Final = 1.5  # for the side that is broadcast: of a cache line, a tile needs few elements
_NEAR_BYTES: Final = 1024  # bytes between inner indices of a broadcast side from which on units copy their part of it
_NEAR_ROWS: Final = 24  # fewest rows, and fewest lanes of the other side, that are worth these copies


@dataclass(frozen=True)
class Problem:
    """``c[batch, left, right] = sum over inner of a[batch, left, inner] * b[batch, inner, right]``; sizes at least 1.

    ``a``, ``b``, ``c``: names of the arguments. ``size``: elements of c. ``k_block``: block size of the sum;
    ``widest``: most vectors per packed panel. Both decide which data stays in the nearest cache. ``packed_block``: the
    block size if b is packed, and a is read in order or, of f32, copied by units; 0: ``k_block``.
    """

    dtype: DType
    batch: tuple[Axis, ...]
    left: tuple[Axis, ...]
    right: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    size: int
    starts: tuple[int, int, int] = (0, 0, 0)
    a: str = "in0"
    b: str = "in1"
    c: str = "out0"
    k_block: int = 512
    widest: int = 4
    packed_block: int = 0


class Scratch:
    """The names and sizes of a node's scratch blocks."""

    def __init__(self) -> None:
        self.bytes: list[int] = []

    def take(self, dtype: DType, elements: int) -> str:
        self.bytes.append(dtype.itemsize * elements)
        return f"tmp{len(self.bytes) - 1}"


def lower(problem: Problem, scratch: Scratch) -> list[Step]:
    """The kernels of a problem, in order."""
    turned = replace(
        problem,
        batch=_swapped(problem.batch),
        left=_swapped(problem.right),
        right=_swapped(problem.left),
        inner=_swapped(problem.inner),
        starts=(problem.starts[1], problem.starts[0], problem.starts[2]),
        a=problem.b,
        b=problem.a,
    )
    found = [c for p in (problem, turned) for c in candidates(p)]
    best = min(found, key=lambda c: c.time)
    dot = _dot(problem)
    if dot is not None and _dot_time(dot) < best.time:
        return [Step(dot, (problem.a, problem.b, problem.c))]
    return best.steps(scratch)


def _dot(p: Problem) -> Dot | None:
    """The problem as dot products, with vectors along the sum, if both sides are contiguous along it; else None."""
    batch, left, right, inner = (merged(axes) for axes in (p.batch, p.left, p.right, p.inner))
    if not len(left) == len(right) == len(inner) == 1 or (inner[0].a, inner[0].b) != (1, 1):
        return None
    return Dot(p.dtype, tuple(x for x in batch if x.size > 1), left[0], right[0], inner[0].size, p.starts)


def _dot_time(dot: Dot) -> float:
    elements = math.prod(x.size for x in dot.batch) * dot.rows.size * dot.columns.size
    loads = 1 / min(_DOT_TILE, dot.rows.size) + 1 / _DOT_TILE  # vectors loaded per product
    read = _DOT_ROWS_COST if dot.rows.size >= _DOT_ROWS else max(1.0, loads)
    return elements * (-(-dot.depth // dot.vector) * read + _ACROSS)


def _swapped(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(x.swapped() for x in axes)


def merged(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Drops axes of size 1 and merges neighbours if all operands allow it; at least one axis."""
    found: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if found:
            old = found[-1]
            if (old.a, old.b, old.c) == (axis.a * axis.size, axis.b * axis.size, axis.c * axis.size):
                found[-1] = replace(axis, size=old.size * axis.size)
                continue
        found.append(axis)
    return tuple(found) or (Axis(1),)


@dataclass(frozen=True)
class Candidate:
    """A kernel choice whose vectors lie along the right side. ``panel``: lanes of a packed panel; 0: unpacked."""

    problem: Problem
    panel: int

    @property
    def pack(self) -> Pack:
        """The kernel that packs b."""
        p = self.problem
        [lane] = p.right
        batch = strided([(x.size, x.b) for x in p.batch if x.b])
        inner = strided([(x.size, x.b) for x in p.inner]) or ((1, 1),)
        return Pack(p.dtype, batch, (lane.size, lane.b), inner, p.starts[1], self.panel)

    @property
    def _far(self) -> bool:
        """Whether inner indices of a are far apart, for many of them."""
        p = self.problem
        return p.inner[-1].a * p.dtype.itemsize >= _NEAR_BYTES and p.inner[-1].size >= _FAR_DEPTH

    @property
    def near(self) -> bool:
        """Whether units copy their part of a."""
        p = self.problem
        plain = self.panel > 0 and p.packed_block > 0 and len(p.left) == len(p.inner) == 1
        return plain and self._far and p.left[0].a == 1 and min(p.left[0].size, p.right[-1].size) >= _NEAR_ROWS

    @property
    def k_block(self) -> int:
        """The block size of the sum."""
        p = self.problem
        if self.near:
            return p.packed_block * DType.F32.itemsize // p.dtype.itemsize
        return p.packed_block if self.panel and p.packed_block and not self._far else p.k_block

    @property
    def time(self) -> float:
        return self.product + self.packing

    @property
    def packing(self) -> float:
        """The time to pack b; 0 if it is not packed."""
        if not self.panel:
            return 0.0
        pack, half = self.pack, lanes_of(self.problem.dtype) // 2
        turned = pack.inner[-1][1] == 1 and pack.inner[-1][0] >= half
        each = COPIED if pack.lanes[1] == 1 else _TURNED if turned else _PICKED
        return pack.elements * each + _PACKING

    @property
    def product(self) -> float:
        """The time of the product alone."""
        p = self.problem
        vector = lanes_of(p.dtype)
        rows = math.prod(x.size for x in (*p.batch, *p.left))
        lanes = math.prod(x.size for x in p.right[:-1]) * -(-p.right[-1].size // vector)
        depth = math.prod(x.size for x in p.inner)
        width = min(_TILE_VECTORS, -(-p.right[-1].size // vector))
        sums = min(p.left[-1].size * (p.left[-2].size if len(p.left) > 1 else 1), _TILE_ROWS) * width
        waiting = max(1.0, _FREE_SUMS / sums)  # with fewer independent sums, each multiply-add waits for the last one
        total = rows * lanes * depth * waiting * (1 + _BROADCAST / width)
        far = _FAR_BYTES if rows < _MANY_ROWS else _REREAD_FAR_BYTES
        if not self.panel and p.inner[-1].b * p.dtype.itemsize >= far and depth >= _FAR_DEPTH:
            total *= _FAR_COST
        if self.near:
            total += rows * depth * COPIED
        elif p.inner[-1].a * p.dtype.itemsize >= _FAR_BYTES and min(depth, self.k_block) >= _FAR_DEPTH:
            total *= _FAR_ROWS_COST
        written = rows * math.prod(x.size for x in p.right)
        if p.right[-1].c != 1:
            again = 2 * -(-depth // self.k_block) - 1  # each later block reads and writes the result again
            total += written * again * (_STORED_ACROSS if p.left[-1].c == 1 else _STORED_APART)
        return total

    @property
    def kernel(self) -> Contraction:
        """The kernel of the product, with b's strides as the problem has them."""
        p = self.problem
        batch = tuple(x for x in p.batch if x.size > 1)
        return Contraction(p.dtype, batch, p.left, p.right, p.inner, p.starts, self.panel, self.k_block, near=self.near)

    def panel_batch(self, batch: Sequence[Axis]) -> tuple[Axis, ...]:
        """Axes of size above 1 with the strides that b's panels have along them."""
        pack = self.pack
        lines = row_major([x.size for x in batch if x.b])
        strides = iter(n * pack.panels * pack.depth * self.panel for n in lines)
        return tuple(replace(x, b=next(strides)) if x.b else x for x in batch)

    def steps(self, scratch: Scratch) -> list[Step]:
        p, b, found = self.problem, self.problem.b, []
        whole = self.kernel
        if self.panel:
            pack = self.pack
            b = scratch.take(p.dtype, pack.elements)
            found.append(Step(pack, (p.b, b)))
            inner = tuple(replace(x, b=n * self.panel) for x, n in zip(p.inner, row_major([x.size for x in p.inner])))
            starts = (p.starts[0], 0, p.starts[2])
            whole = replace(whole, batch=self.panel_batch(whole.batch), inner=merged(inner), starts=starts)
        parts = self._part_count(whole)
        if parts == 1:
            return [*found, Step(whole, (p.a, b, p.c))]
        first = whole.inner[0]
        size = first.size // parts
        kernel, add = self._apart(whole, parts)
        split = Axis(parts, first.a * size, first.b * size, add.count)
        kernel = replace(kernel, batch=(split, *kernel.batch), inner=(replace(first, size=size), *whole.inner[1:]))
        part = scratch.take(p.dtype, parts * add.count)
        if self.panel:  # the panel's depth is that of all parts
            kernel = replace(kernel, panel_depth=whole.depth)
        return [*found, Step(kernel, (p.a, b, part)), Step(add, (part, p.c))]

    def _apart(self, whole: Contraction, parts: int) -> tuple[Contraction, Combine | Place]:
        """The kernel of a part of the sum, and the kernel that adds the parts. If the result is a class of an image's
        pixels, the pixels of other classes stay as they are."""
        p, axes = self.problem, whole.result
        if math.prod(x.size for x in axes) == p.size:
            return whole, Combine(p.dtype, parts, p.size)
        to = strided([(x.size, x.c) for x in axes]) or ((1, 1),)
        return whole.dense(), Place(p.dtype, parts, to, whole.starts[2])

    def _part_count(self, whole: Contraction) -> int:
        """The number of parts of the first inner axis that are summed separately, for enough tasks."""
        units = whole.fewest_units
        work = self.problem.size * whole.depth // whole.vector
        if units >= _SPLIT_UNITS or work < _SPLIT_WORK or whole.depth < 64 * whole.vector:
            return 1
        size = whole.inner[0].size
        enough = -(-_SPLIT_UNITS // units)
        return next((n for n in range(min(enough, size), min(2 * _SPLIT_UNITS, size) + 1) if size % n == 0), 1)


def candidates(p: Problem) -> list[Candidate]:
    """The kernel choices for this problem with vectors along its right side."""
    vector = lanes_of(p.dtype)
    found = []
    right = merged(p.right)
    base = replace(p, batch=tuple(x for x in p.batch if x.size > 1), left=merged(p.left), inner=merged(p.inner))
    if right[-1].b == 1:
        batch, lanes = _split_lanes(right, vector)
        found.append(Candidate(replace(base, batch=(*base.batch, *batch), right=lanes), 0))
    if right[-1].b != 1 or len(right) == 1:
        panel = min(p.widest, best_width(right[-1].size, vector)) * vector
        found.append(Candidate(replace(base, batch=(*base.batch, *right[:-1]), right=right[-1:]), panel))
    return found


def _split_lanes(right: Sequence[Axis], vector: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Axes that form separate units, and those of a tile: the last, and some points of the one before if it is
    short."""
    *outer, last = right
    fit = _TILE_VECTORS // -(-last.size // vector)
    if not outer or fit < 2:
        return tuple(outer), (last,)
    near = outer.pop()
    count = next(n for n in range(min(fit, near.size), 0, -1) if near.size % n == 0)
    if count < near.size:
        outer.append(Axis(near.size // count, near.a * count, near.b * count, near.c * count))
    return tuple(outer), (replace(near, size=count), last) if count > 1 else (last,)
