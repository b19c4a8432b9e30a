"""Scatters of elements with an index each by atomic operations on integers, in any order with the same result.

The last of equal indices is the greatest place. Maxima and minima are those of integers in the same order. Floats are
added as integers, in units that the greatest exponent of their sum decides: an element is rounded to 2^-31 or less of
the greatest one, so a sum is at least as exact as one in f32. If all elements have exponents of a range in which none
is rounded, as most tensors of 16 bits, the kernels find that out and add them in one go instead of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.ops.scatter.scatter_problem import ScatterProblem
from dslc.compiler.codegen.cuda.ops.scatter.scatter_rows import combining
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.ir import Combine
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.index.ordered import by_atomics

LAST: Final = "last"  # the last element of a key replaces what is there
PLACES: Final = "places"  # the result is the last place of a key, i32, -1 for none

_THREADS: Final = 256
_EACH: Final = 4  # elements of a thread
_SUM_BITS: Final = 62  # of sums, without their sign
_DIGITS: Final = 24  # of an f32
ZEROS: Final = {DType.BF16: 16, DType.F16: 13}  # the last digits of an f32 that was cast from these
_MOST_SPANS: Final = 512  # blocks that look for the range of exponents, about four per multiprocessor of an H200
_LEAST_SPAN: Final = 16  # elements of a thread of such a block
MOVED: Final = {1: DType.I8, 2: DType.I16, 4: DType.I32, 8: DType.I64}  # for elements that are only moved


class Kind(IntEnum):
    """What the scratch memory holds for each key: ``KIND`` of ``scatter_atomic.cu``."""

    PLACE = 0  # the place of the last element
    MAX = 1
    MIN = 2
    INTEGER_SUM = 3
    FLOAT_SUM = 4


class Step(IntEnum):
    """The launches, as ``STEP`` of ``scatter_atomic.cu``. They run in the order BEGIN, COMBINE, (TOPS, ADD,) FINISH;
    TOPS and ADD are for sums of floats and return at once if COMBINE could add all elements exactly."""

    BEGIN = 0  # what is held at first; of floats also the range of their exponents
    COMBINE = 1  # combines elements; of floats that cannot be added exactly, their exponents
    ADD = 2  # adds floats in units of the greatest exponent of their key
    FINISH = 3  # writes the results
    TOPS = 4  # moves the greatest exponents to memory of their own, and sets the sums to 0


_KINDS: Final = {LAST: Kind.PLACE, PLACES: Kind.PLACE, "max": Kind.MAX, "min": Kind.MIN}


def sum_shift(length: int) -> int:
    """The bits below the last one of the greatest element, of a sum of ``length`` elements."""
    return _SUM_BITS - _DIGITS - length.bit_length()


@dataclass(frozen=True)
class AtomicScatter(Numbered):
    """BEGIN: ``k([x,] held, lost)``; COMBINE: ``k([src,] ids, held, lost)``; FINISH: ``k([src,] held, lost, [x,] y)``.
    For sums of floats BEGIN: ``k(src, held, lost, spans)``; COMBINE: ``k(src, ids, held, lost, spans)``; TOPS:
    ``k(spans, held, tops)``; ADD: ``k(src, ids, tops, spans, held)``; FINISH: ``k(held, tops, lost, spans, y)``. Each
    with numbers. ``src`` and ``ids`` [outer, length, inner]; ``x``, ``y``, ``held`` and ``tops`` [outer, count, inner];
    ``lost`` [outer, inner]: whether a line has an id that does not exist; ``spans``: see the CUDA source."""

    dtype: DType
    ids: DType
    how: str
    outer: int
    length: int
    inner: int
    count: int
    x: bool
    lost: int | None
    step: Step

    @property
    def kind(self) -> Kind:
        return _KINDS.get(self.how, Kind.FLOAT_SUM if self.dtype.is_float else Kind.INTEGER_SUM)

    @property
    def held(self) -> DType:
        """The integers that are held for keys."""
        if self.kind is Kind.PLACE:
            return DType.I32
        is_wide = self.kind is Kind.FLOAT_SUM or self.dtype.computed.itemsize == DType.I64.itemsize
        return DType.I64 if is_wide else DType.I32

    @property
    def keys(self) -> int:
        return self.outer * self.count * self.inner

    @property
    def all(self) -> int:
        return self.outer * self.length * self.inner

    @property
    def lines(self) -> int:
        return self.outer * self.inner

    @property
    def spans(self) -> int:
        """Blocks that look for the range of exponents; 0 if there is none to look for."""
        return min(_MOST_SPANS, -(-self.all // (_THREADS * _LEAST_SPAN))) if self.kind is Kind.FLOAT_SUM else 0

    @property
    def geometry(self) -> Geometry:
        each = self.all if self.step in (Step.COMBINE, Step.ADD) else self.keys
        blocks = -(-each // (_THREADS * _EACH))
        if self.step is Step.TOPS:
            blocks = min(blocks, _MOST_SPANS)  # each loops over keys: mostly there is nothing to do
        return Geometry((max(blocks, self.spans if self.step is Step.BEGIN else 0), 1, 1), (_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        numbers = Numbers(KEYS=self.keys, ALL=self.all, LINES=self.lines, COUNT=self.count, LOST=self.lost or 0)
        for name, size in (("LENGTH", self.length), ("INNER", self.inner), ("RESULTS", self.count * self.inner)):
            numbers.divisor(name, size)
        numbers.add("SHIFT", sum_shift(self.length))
        numbers.add("SPANS", self.spans)
        return numbers

    @property
    def code(self) -> Code:
        floats, moved, kind = self.dtype.is_float, self.kind is Kind.PLACE, self.kind
        how: Combine = "max" if self.how == "max" else "min" if self.how == "min" else "sum"
        dtype = MOVED[self.dtype.itemsize] if moved and not floats else self.dtype
        if moved and not floats:
            text = f"using T = {C_TYPES[dtype]};\nusing SUM = int;\n"
        else:
            text = combining(dtype, how)
        wide = self.held is DType.I64
        text += f"using I = {C_TYPES[self.ids]};\nusing HOLD = {C_TYPES[self.held]};\n"
        text += f"using UNSIGNED = unsigned{' long long' if wide else ''};\n"
        text += f"constexpr HOLD HOLD_MOST = {'0x7FFFFFFFFFFFFFFFll' if wide else '0x7FFFFFFF'};\n"
        filler = "SUM(__uint_as_float(0x7FC00000u))" if floats else "(s.LOST)"
        fills = floats or self.lost is not None
        text += f"#define FILL(to) {f'store(to, {filler})' if fills else '((void)0)'}\n"
        text += f"#define OLD(key) {'x[key]' if self.x else 'T{}'}\n"
        first = {Kind.PLACE: "-1", Kind.MAX: "in_order({})", Kind.MIN: "in_order({})"}.get(kind, "0")
        text += f"#define FIRST_HELD(key) {first.format('wide(x[key])' if self.x else 'NEUTRAL')}\n"
        text += f"#define ARGUMENTS {self._arguments}\n"
        for name, number in (("KIND", kind), ("STEP", self.step), ("IS_FLOAT", floats), ("PLACES", self.how == PLACES)):
            text += f"#define {name} {int(number)}\n"
        sizes = constants(THREADS=_THREADS, EACH=_EACH, FILLS=int(fills), ZEROS=ZEROS.get(self.dtype, 0))
        return Code("scatter_atomic.cu", text + self.numbers.text() + sizes)

    @property
    def _arguments(self) -> str:
        """The kernel's pointers."""
        moved, ends = self.kind is Kind.PLACE, self.step is Step.FINISH
        const = "const " if ends else ""
        src = "" if self.how == PLACES else "const T *__restrict__ src"
        x = "const T *__restrict__ x" if self.x else ""
        held, lost, ids = f"{const}HOLD *__restrict__ held", f"{const}int *lost", "const I *__restrict__ ids"
        if self.kind is Kind.FLOAT_SUM:
            spans, tops = "int *__restrict__ spans", "int *__restrict__ tops"
            listed = {
                Step.BEGIN: [src, held, lost, spans],
                Step.COMBINE: [src, ids, held, lost, spans],
                Step.TOPS: [f"const {spans}", held, tops],
                Step.ADD: [src, ids, f"const {tops}", f"const {spans}", held],
                Step.FINISH: [held, f"const {tops}", lost, f"const {spans}", "T *__restrict__ y"],
            }[self.step]
        elif self.step is Step.BEGIN:
            listed = [x if self.kind in (Kind.MAX, Kind.MIN) else "", held, lost]
        elif ends:
            listed = [src if moved else "", held, lost, x if moved else "", "T *__restrict__ y"]
        else:
            listed = ["" if moved else src, ids, held, lost]
        return ", ".join(each for each in listed if each)


def atomic_scatter(problem: ScatterProblem) -> list[Launch] | None:
    """The launches of a scatter; None if other kernels are for it."""
    outer, length, inner, count = problem.sizes
    src, ids, x, out = problem.source, problem.ids, problem.x, problem.out
    if not by_atomics(problem.how, problem.dtype, outer * max(length, count) * inner):
        return None
    parts = *problem.dtypes, problem.how, *problem.sizes, bool(x), problem.lost
    spec = {step: AtomicScatter(*parts, step) for step in Step}
    first = spec[Step.BEGIN]
    held, spoilt = Scratch(0, first.keys * first.held.itemsize), Scratch(1, 4 * first.lines)
    given = () if src is None else (src,)
    if first.kind is Kind.FLOAT_SUM:
        tops, spans = Scratch(2, 4 * first.keys), Scratch(3, 4 * (2 * first.spans + 1))
        return [
            Launch(spec[Step.BEGIN], given, (held, spoilt, spans)),
            Launch(spec[Step.COMBINE], (*given, ids), (held, spoilt, spans)),
            Launch(spec[Step.TOPS], (spans,), (held, tops)),
            Launch(spec[Step.ADD], (*given, ids, tops, spans), (held,)),
            Launch(spec[Step.FINISH], (held, tops, spoilt, spans), (out,)),
        ]
    moved = first.kind is Kind.PLACE
    return [
        Launch(spec[Step.BEGIN], x if first.kind in (Kind.MAX, Kind.MIN) else (), (held, spoilt)),
        Launch(spec[Step.COMBINE], (*(() if moved else given), ids), (held, spoilt)),
        Launch(spec[Step.FINISH], (*(given if moved else ()), held, spoilt, *(x if moved else ())), (out,)),
    ]
