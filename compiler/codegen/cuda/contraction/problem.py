"""Addresses of a contraction's elements: ``c[z, m, n] = sum over k of a[z, m, k] * b[z, k, n]``.

z, m, n and k are groups of axes. An operand's address is its start plus the sum of index times stride. An element
outside a convolution's window counts as 0. The set of axes is part of the code; sizes, strides and windows are kernel
arguments, so one kernel serves all problems of a form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal, TypeAlias

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Numbers, constants
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.types import DType, TensorType

Group: TypeAlias = Literal["z", "m", "n", "k"]
Axes: TypeAlias = Sequence[tuple[str, int]]
GROUPS: Final[tuple[Group, ...]] = ("z", "m", "n", "k")
_NO_STRIDE: Final = 2**62
_INLINE: Final = "__device__ __forceinline__"


@dataclass(frozen=True, slots=True)
class Window:
    """A coordinate ``start + sum of index * step``, which is inside if it is at least 0 and below ``size``."""

    steps: tuple[tuple[str, int], ...]
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Operand:
    """``strides``: (axis, distance in elements); other axes do not move the operand. ``start``: the address at all
    indices 0. Elements outside any of the windows count as 0."""

    dtype: DType
    elements: int
    strides: tuple[tuple[str, int], ...]
    windows: tuple[Window, ...] = ()
    start: int = 0

    def along(self, axes: Collection[str]) -> Operand:
        """The operand without the strides of other axes."""
        windows = tuple(replace(w, steps=tuple(s for s in w.steps if s[0] in axes)) for w in self.windows)
        return replace(self, strides=tuple(s for s in self.strides if s[0] in axes), windows=windows)


def operand(t: TensorType, strides: Mapping[str, int], windows: Sequence[Window] = (), start: int = 0) -> Operand:
    """A whole tensor as an operand."""
    return Operand(t.dtype, prod(t.ints), tuple(strides.items()), tuple(windows), start)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis as one operand sees it: its size, its stride, and its step in each window's coordinate."""

    size: int
    stride: int
    steps: tuple[int, ...]


def seen(operand: Operand, axes: Axes) -> list[Axis]:
    """A group's axes as an operand sees them, with adjacent axes merged if the operand allows it."""
    strides, windows = dict(operand.strides), [dict(w.steps) for w in operand.windows]
    found: list[Axis] = []
    for name, size in axes:
        axis = Axis(size, strides.get(name, 0), tuple(w.get(name, 0) for w in windows))
        if found and found[-1].stride == axis.stride * size and found[-1].steps == tuple(s * size for s in axis.steps):
            axis = replace(axis, size=found.pop().size * size)
        found.append(axis)
    return found


@dataclass(frozen=True)
class Problem:
    """``axes``: the (name, size) of each group's axes, z, m, n, k; names are unique. ``c`` has no windows.

    If ``split`` > 1, the sum is split: part p goes to ``c + p * c.elements``, in the dtype of sums.
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
        """Values of k per part of the sum, a multiple of ``depth``."""
        return -(-self.count("k") // (self.split * depth)) * depth

    def along_k(self, side: Literal["m", "n"]) -> bool:
        """Whether neighbours in memory are neighbours along k rather than along the side, by each group's last axis."""
        operand = self.a if side == "m" else self.b
        return _last(operand, self.sizes("k")) <= _last(operand, self.sizes(side))

    def dense_along_m(self) -> bool:
        """Whether c's elements are closer in memory along m than along n."""
        return _least(self.c, self.sizes("m")) < _least(self.c, self.sizes("n"))

    def turned(self) -> Problem:
        """The transposed problem: m and n swapped, and so a and b."""
        z, m, n, k = self.axes
        return replace(self, axes=(z, n, m, k), a=self.b, b=self.a)

    def runs(self, name: Literal["a", "b", "c"], group: Group, length: int) -> bool:
        """Whether runs of ``length`` neighbours along a group are contiguous in memory and aligned to ``length``."""
        operand: Operand = getattr(self, name)
        others = [x for g in GROUPS if g != group for x in seen(operand, self.sizes(g)) if x.size != 1]
        own = [x for x in seen(operand, self.sizes(group)) if x.size != 1]
        if not own or own[-1].stride != 1 or any(own[-1].steps) or own[-1].size % length:
            return False
        return all(x % length == 0 for x in (operand.start, *(x.stride for x in (*own[:-1], *others))))

    def text(self, depth: int, epilogue: Callable[[Numbers], str] = lambda numbers: "") -> tuple[str, Numbers]:
        """The types A, B, C, the address functions of the kernels, and their scalar arguments. ``epilogue``: returns
        the source of further functions, given the numbers."""
        most = max(self.a.elements, self.b.elements, self.c.elements * self.split)
        index = "i32" if most <= I32_PADDED_ELEMENTS else "i64"
        numbers = Numbers(M=self.count("m"), N=self.count("n"), K=self.count("k"), PART=self.part(depth))
        numbers.add("TOTAL", self.c.elements, index)
        finders = [
            _finders("a", self.a, self, "m", numbers, index),
            _finders("b", self.b, self, "n", numbers, index),
            _address(self, numbers, index),
            epilogue(numbers),
        ]
        lines = [
            *(f"using {n} = {C_TYPES[o.dtype]};\n" for n, o in (("A", self.a), ("B", self.b), ("C", self.c))),
            f"using INDEX = {'int' if index == 'i32' else 'long long'};\n",
            constants(DEPTH=depth, A_ALONG_K=int(self.along_k("m")), B_ALONG_K=int(self.along_k("n"))),
            numbers.text(),
            *finders,
        ]
        return "".join(lines), numbers


def problem(axes: Mapping[Group, Axes], a: Operand, b: Operand, c: Operand) -> Problem:
    """The problem, with operands reduced to the strides of its axes."""
    sizes = tuple(tuple(axes.get(g, ())) for g in GROUPS)
    present = {axis for group in sizes for axis, _ in group}
    return Problem(sizes, a.along(present), b.along(present), c.along(present))


def _least(operand: Operand, axes: Axes) -> int:
    """The smallest distance of neighbours along one of the axes; ``_NO_STRIDE`` if each has one element."""
    return min((abs(x.stride) or _NO_STRIDE for x in seen(operand, axes) if x.size > 1), default=_NO_STRIDE)


def _last(operand: Operand, axes: Axes) -> int:
    """The distance of neighbours along the last axis whose size is not 1."""
    wide = [x.stride for x in seen(operand, axes) if x.size != 1]
    return abs(wide[-1]) or _NO_STRIDE if wide else _NO_STRIDE


def _finders(name: str, operand: Operand, given: Problem, side: Group, numbers: Numbers, index: str) -> str:
    """``Place``, the functions that compute one for (z, side) and one for k, and the address of the two combined; -1
    for a zero."""
    place = f"Place{name.upper()}"
    held = f" int at[{len(operand.windows)}];" if operand.windows else ""
    text = f"struct {place} {{ INDEX offset;{held} }};\n"
    groups: tuple[Group, ...]
    for function, groups in (("row", ("z", side)), ("step", ("k",))):
        first = [numbers.add(f"{name}_start", operand.start, index)] if function == "row" else []
        lines, offset = _offset(name, operand, given, groups, numbers, index)
        text += f"{_INLINE} {place} {name}_{function}(const Numbers &s{''.join(f', int {g}' for g in groups)}) {{\n"
        text += f"{lines}  {place} p;\n  p.offset = {_sum_text([*first, *offset])};\n"
        for number, window in enumerate(operand.windows):
            steps = [numbers.add(f"{name}_from{number}", window.start)] if function == "row" else []
            for g in groups:
                for position, axis in enumerate(seen(operand, given.sizes(g))):
                    if axis.steps[number]:
                        step = numbers.add(f"{name}_{g}{position}_step{number}", axis.steps[number])
                        steps.append(f"{g}{position} * {step}")
            text += f"  p.at[{number}] = {_sum_text(steps)};\n"
        text += "  return p;\n}\n"
    text += f"{_INLINE} INDEX {name}_place(const Numbers &s, const {place} &row, const {place} &step) {{\n"
    for number, window in enumerate(operand.windows):
        size = numbers.add(f"{name}_size{number}", window.size)
        text += f"  if ((unsigned)(row.at[{number}] + step.at[{number}]) >= (unsigned){size}) return -1;\n"
    return text + "  return row.offset + step.offset;\n}\n"


def _address(given: Problem, numbers: Numbers, index: str) -> str:
    lines, terms = _offset("c", given.c, given, ("z", "m", "n"), numbers, index)
    text = f"{_INLINE} INDEX c_place(const Numbers &s, int z, int m, int n) {{\n{lines}"
    return text + f"  return {_sum_text([numbers.add('c_start', given.c.start, index), *terms])};\n}}\n"


def _offset(
    name: str, operand: Operand, given: Problem, groups: Iterable[Group], numbers: Numbers, index: str
) -> tuple[str, list[str]]:
    """Emits ``const int m0 = ...;`` for each axis of the groups, from the row-major index ``m``; also returns the
    address terms."""
    text, terms = "", []
    for g in groups:
        axes, left = seen(operand, given.sizes(g)), str(g)
        for position in range(len(axes) - 1, 0, -1):
            size, magic, shift = numbers.divisor(f"{name}_{g}{position}_size", axes[position].size)
            above = f"{g}_{position}"
            text += f"  const int {above} = quotient({left}, {magic}, {shift}), "
            text += f"{g}{position} = {left} - {above} * {size};\n"
            left = above
        text += f"  const int {g}0 = {left};\n" if axes else ""
        for position, axis in enumerate(axes):
            if axis.stride == 1:
                terms.append(f"{g}{position}")
            elif axis.stride:
                stride = numbers.add(f"{name}_{g}{position}_stride", axis.stride, index)
                terms.append(f"(INDEX){g}{position} * {stride}")
    return text, terms


def _sum_text(terms: Sequence[str]) -> str:
    return " + ".join(terms) or "0"
