"""Where the elements of a sum of products lie: ``c[z, m, n] = sum over k of a[z, m, k] * b[z, k, n]``.

z, m, n and k are groups of axes. An operand's place is a sum of index times stride; a convolution's window makes
coordinates beside, each a sum of contributions of several axes that may fall outside of the tensor (then the element
counts as 0) or between its elements (the gradient of a strided convolution).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal, TypeAlias

from dslc.compiler.codegen.cuda.cpp import C_TYPES, constants
from dslc.compiler.ir.types import DType

Group: TypeAlias = Literal["z", "m", "n", "k"]
GROUPS: Final[tuple[Group, ...]] = ("z", "m", "n", "k")
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

    def along(self, axes: Collection[str]) -> Operand:
        """Without the strides of other axes."""
        return replace(self, strides=tuple(s for s in self.strides if s[0] in axes))


@dataclass(frozen=True)
class Problem:
    """``axes``: the (name, size) of each group's axes, z, m, n, k; names are unique. ``c`` has strides alone.

    With ``split`` > 1 the sum is divided: part p goes to ``c + p * c.elements``, in the type that sums have.
    """

    axes: tuple[tuple[tuple[str, int], ...], ...]
    a: Operand
    b: Operand
    c: Operand
    split: int = 1

    def sizes(self, group: Group) -> tuple[tuple[str, int], ...]:
        return self.axes[GROUPS.index(group)]

    def count(self, group: Group) -> int:
        return prod(size for _, size in self.sizes(group))

    def part(self, depth: int) -> int:
        """Values of k a part of the sum, a multiple of ``depth``."""
        return -(-self.count("k") // (self.split * depth)) * depth

    def along_k(self, side: Literal["m", "n"]) -> bool:
        """Whether neighbours in memory are neighbours along k, not along the side, by each group's last axis."""
        operand = self.a if side == "m" else self.b
        return _last(operand, self.sizes("k")) <= _last(operand, self.sizes(side))

    def text(self, depth: int) -> str:
        """The types A, B, C, the sizes, and the functions that the kernels find places by."""
        lines = [
            *(f"using {n} = {C_TYPES[o.dtype]};\n" for n, o in (("A", self.a), ("B", self.b), ("C", self.c))),
            f"using INDEX = {self._index()};\n",
            constants(
                M=self.count("m"), N=self.count("n"), K=self.count("k"), SPLIT=self.split, DEPTH=depth,
                PART=self.part(depth), A_ALONG_K=int(self.along_k("m")), B_ALONG_K=int(self.along_k("n")),
            ),
            f"constexpr long long TOTAL = {self.c.elements};\n",
            _finders("a", self.a, self, "m"),
            _finders("b", self.b, self, "n"),
            self._place(),
        ]  # fmt: skip
        return "".join(lines)

    def _index(self) -> str:
        most = max(self.a.elements, self.b.elements, self.c.elements * self.split)
        return "int" if most <= _INT_MAX else "long long"

    def _place(self) -> str:
        text = "__device__ __forceinline__ INDEX c_place(int z, int m, int n) {\n"
        text += "".join(_unravel(g, self.sizes(g)) for g in ("z", "m", "n"))
        return text + f"  return {_sum(f'(INDEX)i_{axis} * {step}' for axis, step in self.c.strides)};\n}}\n"


def turned(axes: dict[Group, Sequence[tuple[str, int]]], a: Operand, b: Operand, c: Operand) -> tuple[Problem, bool]:
    """The problem with ``n`` the side along which c is dense: True when a and b changed places for that."""
    sizes = {g: tuple(axes.get(g, ())) for g in GROUPS}
    present = {axis for group in sizes.values() for axis, _ in group}
    a, b, c = (operand.along(present) for operand in (a, b, c))
    swapped = _least(c, sizes["m"]) < _least(c, sizes["n"])
    if swapped:
        sizes["m"], sizes["n"] = sizes["n"], sizes["m"]
        a, b = b, a
    return Problem(tuple(sizes[g] for g in GROUPS), a, b, c), swapped


def _least(operand: Operand, axes: Sequence[tuple[str, int]]) -> int:
    """The least distance of neighbours along one of the axes; far where they have one element."""
    return min((abs(operand.stride(axis)) or _INT_MAX for axis, size in axes if size > 1), default=_INT_MAX)


def _last(operand: Operand, axes: Sequence[tuple[str, int]]) -> int:
    """The distance of neighbours along the last axis that has several elements."""
    wide = [axis for axis, size in axes if size > 1]
    return abs(operand.stride(wide[-1])) or _INT_MAX if wide else _INT_MAX


def _finders(name: str, operand: Operand, problem: Problem, side: Group) -> str:
    """``Place`` and what makes one of (z, side) and one of k; the place of the two together, -1 for a zero."""
    place = f"Place{name.upper()}"
    count = len(operand.coordinates)
    held = f" int at[{count}];" if count else ""
    text = f"struct {place} {{ INDEX offset;{held} }};\n"
    groups: tuple[Group, ...]
    for function, groups in ((f"{name}_row", ("z", side)), (f"{name}_step", ("k",))):
        text += f"__device__ __forceinline__ {place} {function}({', '.join(f'int {g}' for g in groups)}) {{\n"
        text += "".join(_unravel(g, problem.sizes(g)) for g in groups)
        names = [axis for g in groups for axis, _ in problem.sizes(g)]
        terms = [f"(INDEX)i_{axis} * {step}" for axis, step in operand.strides if axis in names]
        text += f"  {place} p;\n  p.offset = {_sum(terms)};\n"
        for number, c in enumerate(operand.coordinates):
            steps = [f"i_{axis} * {step}" for axis, step in c.steps if axis in names]
            if "k" not in groups and c.start:
                steps.append(f"({c.start})")
            text += f"  p.at[{number}] = {_sum(steps)};\n"
        text += "  return p;\n}\n"
    text += f"__device__ __forceinline__ INDEX {name}_place(const {place} &row, const {place} &step) {{\n"
    text += "  INDEX offset = row.offset + step.offset;\n"
    for number, c in enumerate(operand.coordinates):
        at = f"at{number}"
        text += f"  int {at} = row.at[{number}] + step.at[{number}];\n"
        if c.divide > 1:
            text += f"  if ({at} < 0 || {at} % {c.divide} != 0) return -1;\n  {at} /= {c.divide};\n"
        text += f"  if ((unsigned){at} >= {c.size}u) return -1;\n  offset += (INDEX){at} * {c.stride};\n"
    return text + "  return offset;\n}\n"


def _sum(terms: Iterable[str]) -> str:
    return " + ".join(terms) or "0"


def _unravel(group: str, axes: Sequence[tuple[str, int]]) -> str:
    """``const int i_AXIS = ...;`` of the row-major number that the group's name holds."""
    text, below = "", 1
    for place in range(len(axes) - 1, -1, -1):
        axis, size = axes[place]
        expr = group if below == 1 else f"{group} / {below}"
        text += f"  const int i_{axis} = {expr if place == 0 else f'({expr}) % {size}'};\n"
        below *= size
    return text
