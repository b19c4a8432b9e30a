"""Sums of products over any strides as one kernel: ``c[z, m, n] = sum over k of a[z, m, k] * b[z, k, n]``.

z, m, n and k are groups of axes. An operand's place is a sum of index times stride; a convolution's window makes
coordinates beside, each a sum of contributions of several axes that may fall outside of the tensor (then the element
counts as 0) or between its elements (the gradient of a strided convolution).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal, TypeAlias

from dslc.compiler.codegen.cuda.cpp import C_TYPES, constants, register, sum_type
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.types import DType

Group: TypeAlias = Literal["z", "m", "n", "k"]
_GROUPS: Final = ("z", "m", "n", "k")
_INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Coordinate:
    """``(start + sum of index * step) / divide`` along a dimension of ``size`` elements, ``stride`` apart."""

    steps: tuple[tuple[str, int], ...]
    start: int
    size: int
    stride: int
    divide: int = 1


@dataclass(frozen=True, slots=True)
class Operand:
    """``strides``: (axis, elements apart); an axis that is not named does not move it."""

    dtype: DType
    elements: int
    strides: tuple[tuple[str, int], ...]
    coordinates: tuple[Coordinate, ...] = ()

    def stride(self, axis: str) -> int:
        """How far neighbours along an axis are apart, where they are inside."""
        linear = dict(self.strides).get(axis, 0)
        return linear + sum(dict(c.steps).get(axis, 0) * c.stride // c.divide for c in self.coordinates)


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block computes: rows x columns, of which a thread takes tall x wide, in steps of ``depth``."""

    rows: int
    cols: int
    tall: int
    wide: int
    depth: int

    @property
    def threads(self) -> int:
        return self.rows // self.tall * (self.cols // self.wide)


#: Tiles and the share of the arithmetic rate that each reaches, about: a small one reads shared memory more often.
_TILES: Final = (
    (Tile(128, 128, 8, 8, 8), 1.0),
    (Tile(64, 128, 8, 8, 8), 0.9),
    (Tile(64, 64, 4, 8, 16), 0.75),
    (Tile(32, 64, 4, 4, 16), 0.5),
    (Tile(16, 128, 4, 4, 16), 0.45),
    (Tile(32, 32, 4, 4, 16), 0.4),
)
_BLOCKS: Final = 2 * 132  # at work at a time on the largest device; a constant, so that the bits do not depend on it
_LEAST_DEPTH: Final = 128  # products a part, when a sum is divided
_PARTS: Final = 64  # of a divided sum, at most


@dataclass(frozen=True)
class Contract:
    """The kernel ``k(a, b, c)``. ``axes``: group -> (name, size) of its axes, whose names are unique.

    ``c`` has strides alone. With ``split`` > 1 the sum is divided: part p goes to ``c + p * c.elements``, in the type
    that sums have.
    """

    axes: tuple[tuple[Group, tuple[tuple[str, int], ...]], ...]
    a: Operand
    b: Operand
    c: Operand
    tile: Tile
    split: int = 1
    file: str = "contract.cu"

    def sizes(self, group: Group) -> tuple[tuple[str, int], ...]:
        return dict(self.axes)[group]

    def count(self, group: Group) -> int:
        return prod(size for _, size in self.sizes(group))

    @property
    def part(self) -> int:
        """Values of k a part of the sum."""
        step = self.tile.depth
        return -(-self.count("k") // (self.split * step)) * step

    @property
    def geometry(self) -> Geometry:
        grid = (
            _up(self.count("m"), self.tile.rows),
            _up(self.count("n"), self.tile.cols),
            self.count("z") * self.split,
        )
        return Geometry(grid, (self.tile.threads, 1, 1))

    def head(self) -> str:
        t = self.tile
        lines = [
            *(f"using {n} = {C_TYPES[o.dtype]};\n" for n, o in (("A", self.a), ("B", self.b), ("C", self.c))),
            f"using SUM = {C_TYPES[sum_type(self.a.dtype)]};\n",
            f"using INDEX = {_index(self)};\n",
            constants(
                M=self.count("m"), N=self.count("n"), K=self.count("k"), ROWS=t.rows, COLS=t.cols, TALL=t.tall,
                WIDE=t.wide, DEPTH=t.depth, SPLIT=self.split, PART=self.part,
                A_ALONG_K=int(_along_k(self.a, self.sizes("m"), self.sizes("k"))),
                B_ALONG_K=int(_along_k(self.b, self.sizes("n"), self.sizes("k"))),
            ),
            f"constexpr long long TOTAL = {self.c.elements};\n",
            self._operand("a", self.a, "m"),
            self._operand("b", self.b, "n"),
            self._place(),
        ]  # fmt: skip
        return "".join(lines)

    def _operand(self, name: str, operand: Operand, side: Group) -> str:
        """``Place``, and the functions that make one of (z, side) and of k and load what the two say."""
        place = f"Place{name.upper()}"
        count = len(operand.coordinates)
        held = f" int at[{count}];" if count else ""
        text = f"struct {place} {{ INDEX offset;{held} }};\n"
        for function, groups in ((f"{name}_row", ("z", side)), (f"{name}_step", ("k",))):
            arguments = ", ".join(f"int {g}" for g in groups)
            text += f"__device__ __forceinline__ {place} {function}({arguments}) {{\n"
            text += "".join(_unravel(g, self.sizes(g)) for g in groups)  # type: ignore[arg-type]
            names = [axis for g in groups for axis, _ in self.sizes(g)]  # type: ignore[arg-type]
            terms = [(f"(INDEX){axis} * {step}") for axis, step in operand.strides if axis in names]
            text += f"  {place} p;\n  p.offset = {' + '.join(terms) or '0'};\n"
            for number, c in enumerate(operand.coordinates):
                steps = [f"{axis} * {step}" for axis, step in c.steps if axis in names]
                if "k" not in groups and c.start:
                    steps.append(f"({c.start})")
                text += f"  p.at[{number}] = {' + '.join(steps) or '0'};\n"
            text += "  return p;\n}\n"
        wide, source = C_TYPES[sum_type(operand.dtype)], f"const {name.upper()} *__restrict__ from"
        text += f"__device__ __forceinline__ {wide} {name}_load({source}, const {place} &row, const {place} &step) {{\n"
        text += "  INDEX offset = row.offset + step.offset;\n"
        for number, c in enumerate(operand.coordinates):
            at = f"at{number}"
            text += f"  int {at} = row.at[{number}] + step.at[{number}];\n"
            if c.divide > 1:
                text += f"  if ({at} < 0 || {at} % {c.divide} != 0) return 0;\n  {at} /= {c.divide};\n"
            text += f"  if ((unsigned){at} >= {c.size}u) return 0;\n  offset += (INDEX){at} * {c.stride};\n"
        return text + "  return wide(from[offset]);\n}\n"

    def _place(self) -> str:
        text = "__device__ __forceinline__ INDEX c_place(int z, int m, int n) {\n"
        text += "".join(_unravel(g, self.sizes(g)) for g in ("z", "m", "n"))
        terms = [f"(INDEX){axis} * {step}" for axis, step in self.c.strides]
        return text + f"  return {' + '.join(terms) or '0'};\n}}\n"


register(Contract)


def contract(axes: dict[Group, Sequence[tuple[str, int]]], a: Operand, b: Operand, c: Operand) -> tuple[Contract, bool]:
    """The kernel with its tile and its division of the sum chosen. ``n`` becomes the side along which c is dense: True
    when a and b changed places for that."""
    sizes = {g: tuple(axes.get(g, ())) for g in _GROUPS}
    present = {axis for group in sizes.values() for axis, _ in group}
    a, b, c = (_along(operand, present) for operand in (a, b, c))
    swapped = _innermost(c, sizes["m"]) < _innermost(c, sizes["n"])
    if swapped:
        sizes["m"], sizes["n"] = sizes["n"], sizes["m"]
        a, b = b, a
    named = tuple((g, sizes[g]) for g in _GROUPS)
    m, n, k, z = (prod(s for _, s in sizes[g]) for g in ("m", "n", "k", "z"))

    def plan(tile: Tile) -> tuple[int, int]:
        """How many parts the sum is cut into, and the time in products of a thread block that follow each other."""
        blocks = _up(m, tile.rows) * _up(n, tile.cols) * z
        split = max(1, min(_BLOCKS // blocks, k // _LEAST_DEPTH, _PARTS))
        return split, _up(blocks * split, _BLOCKS) * _up(k, split) * tile.rows * tile.cols

    tiles = _TILES[2:] if a.dtype is DType.F64 else _TILES  # shared memory and registers for twice the bytes
    chosen, _ = min(tiles, key=lambda t: plan(t[0])[1] / t[1])
    split = plan(chosen)[0]
    made = Contract(named, a, b, c, chosen, split)  # type: ignore[arg-type]
    if split > 1:
        made = replace(made, split=_up(k, made.part), c=replace(c, dtype=sum_type(c.dtype)))
    return made, swapped


def _along(operand: Operand, axes: Collection[str]) -> Operand:
    """Without the strides of axes that there are not."""
    return replace(operand, strides=tuple(s for s in operand.strides if s[0] in axes))


def _up(count: int, size: int) -> int:
    return -(-count // size)


def _innermost(operand: Operand, axes: Sequence[tuple[str, int]]) -> int:
    """The least distance of neighbours along one of the axes; far where they have one element."""
    return min((abs(operand.stride(axis)) or _INT_MAX for axis, size in axes if size > 1), default=_INT_MAX)


def _along_k(operand: Operand, side: Sequence[tuple[str, int]], k: Sequence[tuple[str, int]]) -> bool:
    """Whether neighbours in memory are neighbours along k; neighbouring threads take those of a group's last axis."""

    def last(axes: Sequence[tuple[str, int]]) -> int:
        wide = [axis for axis, size in axes if size > 1]
        return abs(operand.stride(wide[-1])) or _INT_MAX if wide else _INT_MAX

    return last(k) <= last(side)


def _index(spec: Contract) -> str:
    return "int" if max(spec.a.elements, spec.b.elements, spec.c.elements * spec.split) <= _INT_MAX else "long long"


def _unravel(group: str, axes: Sequence[tuple[str, int]]) -> str:
    """``const int AXIS = ...;`` of the row-major number that the group's name holds."""
    text, below = "", 1
    for place in range(len(axes) - 1, -1, -1):
        axis, size = axes[place]
        expr = group if below == 1 else f"{group} / {below}"
        text += f"  const int {axis} = {expr if place == 0 else f'({expr}) % {size}'};\n"
        below *= size
    return text
