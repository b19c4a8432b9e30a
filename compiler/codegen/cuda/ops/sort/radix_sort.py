"""Lines sorted by digits: a block sorts a tile; a line of several tiles is sorted in passes over all of them.

A pass sorts by 8 bits and keeps the order of equal ones, so equal elements keep theirs. The digits of a tile are ranked
as in Merrill and Garland, "Single-pass parallel prefix scan with decoupled look-back" (2016) and Adinets and Merrill,
"Onesweep" (2022), but with a launch for the sums over tiles: no block waits for another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.ops.sort.lines import Lines, Places
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.types import DType

_BLOCK_THREADS: Final = 256
_BLOCK_WARPS: Final = _BLOCK_THREADS // 32
_DIGITS: Final = 256
_DIGIT_BITS: Final = 8
_KEYS: Final = {1: "unsigned short", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}  # by bytes
#: The bits of infinity: a number without its sign is greater than that if it is nan.
_INFINITY: Final = {DType.F64: 0x7FF << 52, DType.F32: 0xFF << 23, DType.BF16: 0xFF << 7, DType.F16: 0x1F << 10}


def largest_tile(dtype: DType) -> int:
    """Elements that a block sorts at most: those of which it has 33 KiB of shared memory at most."""
    return 2048 if dtype.itemsize == 8 else 4096


@dataclass(frozen=True)
class _Tiled(Numbered):
    """A kernel with a block for each tile of contiguous lines. ``placed``: it reads the elements' places."""

    lines: Lines
    tile: int
    placed: bool

    @property
    def tiles(self) -> int:
        """Tiles of a line."""
        return -(-self.lines.count // self.tile)

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.lines.all * self.tiles, 1, 1), (_BLOCK_THREADS, 1, 1))

    def head(self, numbers: Numbers, **more: int) -> str:
        dtype = self.lines.dtype
        text = f"#define GIVEN_PLACES {int(self.placed)}\nusing T = {C_TYPES[dtype]};\n"
        text += f"using KEY = {_KEYS[dtype.itemsize]};\nconstexpr KEY INFINITY_BITS = {_INFINITY.get(dtype, 0)};\n"
        text += constants(ITEMS=self.tile // _BLOCK_THREADS, LARGEST=int(self.lines.descending))
        signed = not dtype.is_float and not dtype.is_unsigned
        return text + constants(IS_FLOAT=int(dtype.is_float), IS_SIGNED=int(signed), **more) + numbers.text()


@dataclass(frozen=True)
class SortBlock(_Tiled):
    """``k(x, [from,] values, places, numbers)``: the first ``keep`` elements of each tile, in order."""

    keep: int

    @property
    def numbers(self) -> Numbers:
        return Numbers(COUNT=self.lines.count, KEEP=self.keep)

    @property
    def code(self) -> Code:
        return Code("sort_block.cu", self.head(self.numbers))


@dataclass(frozen=True)
class SortDigits(_Tiled):
    """A step of a pass by the digit that begins at bit ``shift``. 0: ``k(x, counts, numbers)``; 1: ``k(counts, totals,
    numbers)``; 2: ``k(x, [from,] counts, totals, values, places, numbers)``."""

    shift: int
    step: int

    @property
    def geometry(self) -> Geometry:
        blocks = self.lines.all * (_DIGITS // _BLOCK_WARPS if self.step == 1 else self.tiles)
        return Geometry((blocks, 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        return Numbers(COUNT=self.lines.count, SHIFT=self.shift)

    @property
    def code(self) -> Code:
        return Code("sort_digits.cu", f"#define STEP {self.step}\n" + self.head(self.numbers))


def tile_of(lines: Lines) -> int:
    """The tile for lines: a power of 2, no longer than a line needs."""
    return min(largest_tile(lines.dtype), max(2 * _BLOCK_THREADS, 1 << (lines.count - 1).bit_length()))


def first_of_tiles(lines: Lines, keep: int, x: Places, found: Places) -> Launch:
    """The first ``keep`` elements of each tile of contiguous lines, of all tiles of a line one after the other."""
    return Launch(SortBlock(lines, tile_of(lines), len(x) > 1, keep), x, found)


def radix_sorted(lines: Lines, x: Places, found: Places, free: int) -> list[Launch]:
    """Sorts contiguous lines; scratch memory from block ``free`` on."""
    tile = tile_of(lines)
    if lines.count <= tile:
        return [first_of_tiles(lines, lines.count, x, found)]
    passes = 8 * lines.dtype.itemsize // _DIGIT_BITS
    digits = lines.all * _DIGITS
    totals, counts = Scratch(free, 4 * digits), Scratch(free + 1, 4 * digits * -(-lines.count // tile))
    places = [found, lines.held(free + 2)]  # the last pass writes to the former
    launches = []
    for number in range(passes):
        step = SortDigits(lines, tile, len(x) > 1, number * _DIGIT_BITS, 2)
        target = places[(passes - 1 - number) % 2]
        count, add = replace(step, placed=False, step=0), replace(step, placed=False, step=1)
        launches.append(Launch(count, x[:1], (counts,)))
        launches.append(Launch(add, (), (counts, totals)))
        launches.append(Launch(step, (*x, counts, totals), target))
        x = target
    return launches
