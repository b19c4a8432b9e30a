"""Scatters of elements with an index each as GPU kernels: a warp holds neighbouring results in shared memory.

Elements are taken 32 at once, in their order; those of one key among the 32 are combined by pairs. A short line, or one
of many, is read whole by each warp that holds a part of it (``LineScatter``). Long lines are for atomic operations
(``scatter_atomic``); of products, and of sums in f64, the places are sorted by bins of neighbouring keys, one pass of a
radix sort (``row_order``); a block combines up to ``_PART`` elements of a bin, and the results of a bin with more are
combined in order (``BinScatter``). No sort of all digits is needed, and the result is the same in every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.ops.scatter.row_order import Digits, RowDigits, as_signed
from dslc.compiler.codegen.cuda.ops.scatter.scatter_atomic import LAST, MOVED, PLACES, atomic_scatter
from dslc.compiler.codegen.cuda.ops.scatter.scatter_block import BlockScatter
from dslc.compiler.codegen.cuda.ops.scatter.scatter_problem import ScatterProblem
from dslc.compiler.codegen.cuda.ops.scatter.scatter_rows import combining
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.ir import Combine
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.index.ordered import BIN_BYTES, MANY_ELEMENTS, bin_keys, by_bins, by_lines

_AHEAD: Final = 8  # loads of a lane under way
_LEAST_HELD: Final = 128  # keys of a warp
_MOST_WARPS: Final = 4
_BIN_WARPS: Final = 4
_PART: Final = 1 << 14  # elements of a block
_LINE_WARPS: Final = 16 * H200.multiprocessors  # that are busy at once: more warps only read more
_COMPUTED: Final = (DType.F32, DType.F64, DType.I32, DType.I64)


@dataclass(frozen=True)
class Elements:
    """``lines`` times ``length`` elements with ids below ``count``, combined for each id, with an element of x if there
    is ``x``. ``how``: a combination, ``LAST`` or ``PLACES``. ``lost``: what integers become in
    a line with an id that does not exist."""

    dtype: DType
    ids: DType
    how: str
    lines: int
    length: int
    count: int
    x: bool
    lost: int | None

    @property
    def keys(self) -> int:
        return self.lines * self.count

    @property
    def last(self) -> bool:
        """Whether places are held."""
        return self.how in (LAST, PLACES)

    @property
    def itemsize(self) -> int:
        """Bytes that are held for a key."""
        return 4 if self.last else self.dtype.computed.itemsize

    def head(self, held: int) -> str:
        """The constants of all kernels; a warp has ``held`` keys."""
        floats = self.dtype.is_float
        if self.last and not floats:
            text = f"using T = {C_TYPES[MOVED[self.dtype.itemsize]]};\n"
        else:
            how: Combine = "prod" if self.how == "prod" else "max" if self.how == "max" else "min"
            text = combining(self.dtype, "sum" if self.how == "sum" or self.last else how)
        if self.last:
            text += "#undef NEUTRAL\n#define NEUTRAL -1\n"
        filler = "SUM(__uint_as_float(0x7FC00000u))" if floats else "(s.LOST)"
        fills = floats or self.lost is not None
        text += f"using I = {C_TYPES[self.ids]};\nusing HOLD = {'int' if self.last else 'SUM'};\n"
        text += f"#define LAST {int(self.last)}\n#define PLACES {int(self.how == PLACES)}\n"
        text += f"#define FILL(to) {f'store(to, {filler})' if fills else '((void)0)'}\n"
        text += f"#define ARGUMENT_SRC {'' if self.how == PLACES else 'const T *__restrict__ src, '}\n"
        text += f"#define SRC {'y' if self.how == PLACES else 'src'}\n"
        text += f"#define GIVEN_AT(place) {'(place)' if self.last else 'wide(src[place])'}\n"
        text += f"#define ARGUMENT_X {'const T *__restrict__ x, ' if self.x else ''}\n"
        text += f"#define AT_X(i) ({'x + (i)' if self.x else 'y'})\n#define HAS_X {int(self.x)}\n"
        text += f"#define HELD_AT_FIRST(i) {'wide(x[i])' if self.x and not self.last else 'NEUTRAL'}\n"
        return text + constants(HELD=held, BITS=max(1, (held - 1).bit_length()), AHEAD=_AHEAD, FILLS=int(fills))

    def numbers(self, **more: int) -> Numbers:
        return Numbers(LENGTH=self.length, COUNT=self.count, LOST=self.lost or 0, **more)


@dataclass(frozen=True)
class LineScatter(Numbered):
    """``k([src,] ids, [x,] y, numbers)``: each warp goes through all ids of a line."""

    elements: Elements

    @property
    def held(self) -> int:
        """Keys of a warp: a power of 2, or three halves of one."""
        e = self.elements
        wanted = min(e.count, max(_LEAST_HELD, -(-e.keys // _LINE_WARPS)), BIN_BYTES // e.itemsize)
        wanted = -(-e.count // -(-e.count // wanted))
        power = 1 << max(5, (wanted - 1).bit_length())
        return power * 3 // 4 if power >= 64 and wanted <= power * 3 // 4 else power

    @property
    def warps(self) -> int:
        return max(1, min(_MOST_WARPS, BIN_BYTES // (self.held * self.elements.itemsize)))

    @property
    def geometry(self) -> Geometry:
        units = self.elements.lines * -(-self.elements.count // self.held)
        return Geometry((-(-units // self.warps), 1, 1), (32 * self.warps, 1, 1))

    @property
    def numbers(self) -> Numbers:
        return self.elements.numbers(LINES=self.elements.lines)

    @property
    def code(self) -> Code:
        text = self.elements.head(self.held) + self.numbers.text() + constants(THREADS=32 * self.warps)
        return Code("scatter_lines.cu", text)


@dataclass(frozen=True)
class Bins(Digits):
    """The digits of a sort by bins of ``1 << shift`` keys alone, with another for ids that do not exist."""

    shift: int = 0

    @property
    def bins(self) -> int:
        return -(-self.keys // (1 << self.shift))

    @property
    def absent(self) -> int:
        return self.bins << self.shift

    @property
    def first(self) -> int:
        return 1

    def values(self, number: int) -> int:
        return self.bins + 1

    @property
    def bits(self) -> tuple[int, ...]:
        return self.shift, self.bins.bit_length()


@dataclass(frozen=True)
class BinScatter(Numbered):
    """Step 0 to 2: ``k(totals, plan)``, ``k([src,] keys, places, plan, [x,] y, parts)`` and ``k([src,] places, plan,
    parts, [x,] y)``, each with numbers."""

    elements: Elements
    bins: Bins
    step: int

    @property
    def held(self) -> int:
        return int(1 << self.bins.shift) // _BIN_WARPS

    @property
    def geometry(self) -> Geometry:
        threads = 32 * _BIN_WARPS
        units = self.bins.bins + self.bins.all // _PART
        blocks = (1, units, self.bins.bins * self.held * _BIN_WARPS // threads)[self.step]
        return Geometry((blocks, 1, 1), (threads, 1, 1))

    @property
    def numbers(self) -> Numbers:
        return self.elements.numbers(BINS=self.bins.bins, KEYS=self.bins.keys, ALL=self.bins.all)

    @property
    def code(self) -> Code:
        given, sorted_, result = "ARGUMENT_SRC", "const int *__restrict__ places, ", "ARGUMENT_X T *y"
        listed = (
            "const int *__restrict__ totals, int *plan",
            f"{given} const unsigned *__restrict__ keys, {sorted_}const int *__restrict__ plan, {result}, HOLD *parts",
            f"{given} {sorted_}const int *__restrict__ plan, const HOLD *__restrict__ parts, {result}",
        )[self.step]
        text = self.elements.head(self.held) + self.numbers.text() + f"#define ARGUMENTS {listed}\n"
        return Code(
            "scatter_bins.cu", text + constants(THREADS=32 * _BIN_WARPS, PART=_PART) + f"#define STEP {self.step}\n"
        )


def scattered_elements(
    elements: Elements, src: Value | None, ids: Value, x: tuple[Value, ...], out: Value
) -> list[Launch] | None:
    """The launches of a scatter of elements, each with an index; None if other kernels are for it."""
    e, given = elements, () if src is None else (src,)
    if (not e.last and e.dtype.computed not in _COMPUTED) or e.dtype.itemsize not in MOVED:
        return None
    if by_lines(e.lines, e.length, e.count, e.itemsize):
        if e.how == "sum" and e.dtype.computed is DType.F32 and not x and e.count * e.itemsize > BIN_BYTES:
            return [Launch(BlockScatter(e.dtype, e.ids, e.lines, e.length, e.count), (*given, ids), (out,))]
        return [Launch(LineScatter(e), (*given, ids, *x), (out,))]
    if e.length <= MANY_ELEMENTS and not e.last:
        return None  # few elements of a line are combined in one launch, as rows are
    if found := atomic_scatter(ScatterProblem(e.how, e.dtype, out.type.rank - 1, src, ids, x, out, e.lost)):
        return found
    if not by_bins(e.lines, e.length, e.count, e.itemsize):
        return None
    digits = Bins(e.ids, e.lines, e.length, e.count, shift=bin_keys(e.keys, e.itemsize).bit_length() - 1)
    values = digits.values(1)
    counts, totals = Scratch(0, 4 * values * digits.blocks), Scratch(1, 4 * values)
    keys, places = Scratch(2, 4 * digits.all), Scratch(3, 4 * digits.all)
    plan = Scratch(4, 4 * 3 * (digits.bins + 2))
    parts = Scratch(5, max(1, 2 * (digits.all // _PART)) * e.itemsize << digits.shift)
    return [
        Launch(RowDigits(digits, 1, 0), (ids,), (counts,)),
        Launch(RowDigits(digits, 1, 1), (), (counts, totals)),
        Launch(RowDigits(digits, 1, 2), (ids, counts, totals), (keys, places)),
        Launch(BinScatter(e, digits, 0), (totals,), (plan,)),
        Launch(BinScatter(e, digits, 1), (*given, keys, places, plan, *x), (out, parts)),
        *([Launch(BinScatter(e, digits, 2), (*given, places, plan, parts, *x), (out,))] if digits.all > _PART else []),
    ]


def elements_of(
    src: Value, ids: Value, axis: int, count: int, how: str, x: bool, lost: int | None = None
) -> Elements | None:
    """The scatter along the last axis with an index for each element; None if it is another."""
    shape = src.type.ints
    if ids.type.rank != src.type.rank or axis != src.type.rank - 1:
        return None
    dtype = as_signed(src.type.dtype) if how in ("sum", "prod") else src.type.dtype
    lines = prod(shape[:axis])
    return Elements(dtype, as_signed(ids.type.dtype), how, lines, shape[axis], count, x, lost)
