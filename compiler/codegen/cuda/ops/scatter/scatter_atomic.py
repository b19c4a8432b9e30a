"""Scatters of elements with an index each by atomic operations on integers, in any order with the same result.

The last of equal indices is the greatest place. Maxima and minima are those of integers in the same order. Floats are
added as integers, in units that the greatest exponent of their sum decides: an element is rounded to 2^-31 or less of
the greatest one, so a sum is at least as exact as one in f32. If all elements have exponents of a range in which none
is rounded, as most tensors of 16 bits, the kernels find that out and add them in one go instead of two.
"""

from __future__ import annotations

from dataclasses import dataclass
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
_FLOAT_SUMS: Final = 4  # the number of the kind "sums of floats"; ``_KINDS`` has the others
_LAST_STEP: Final = 3
_BETWEEN: Final = 4  # the step between the two passes over the elements of a sum of floats
_KINDS: Final = {LAST: 0, PLACES: 0, "max": 1, "min": 2}
_SUM_BITS: Final = 62  # of sums, without their sign
_DIGITS: Final = 24  # of an f32
ZEROS: Final = {DType.BF16: 16, DType.F16: 13}  # the last digits of an f32 that was cast from these
_MOST_SPANS: Final = 512  # blocks that look for the range of exponents, about four per multiprocessor of an H200
_LEAST_SPAN: Final = 16  # elements of a thread of such a block
MOVED: Final = {1: DType.I8, 2: DType.I16, 4: DType.I32, 8: DType.I64}  # for elements that are only moved


def sum_shift(length: int) -> int:
    """The bits below the last one of the greatest element, of a sum of ``length`` elements."""
    return _SUM_BITS - _DIGITS - length.bit_length()


@dataclass(frozen=True)
class AtomicScatter(Numbered):
    """Step 0: ``k([x,] held, lost)``; 1: ``k([src,] ids, held, lost)``; 3: ``k([src,] held, lost, [x,] y)``. For sums
    of floats step 0: ``k(src, held, lost, spans)``; 1: ``k(src, ids, held, lost, spans)``; 4: ``k(held, tops, spans)``;
    2: ``k(src, ids, tops, spans, held)``; 3: ``k(held, tops, lost, spans, y)``. Each with numbers."""

    dtype: DType
    ids: DType
    how: str
    outer: int
    length: int
    inner: int
    count: int
    x: bool
    lost: int | None
    step: int

    @property
    def kind(self) -> int:
        return _KINDS.get(self.how, _FLOAT_SUMS if self.dtype.is_float else _FLOAT_SUMS - 1)

    @property
    def held(self) -> DType:
        """The integers that are held for keys."""
        if self.kind == 0:
            return DType.I32
        return (
            DType.I64 if self.kind == _FLOAT_SUMS or self.dtype.computed.itemsize == DType.I64.itemsize else DType.I32
        )

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
        return min(_MOST_SPANS, -(-self.all // (_THREADS * _LEAST_SPAN))) if self.kind == _FLOAT_SUMS else 0

    @property
    def geometry(self) -> Geometry:
        each = self.all if self.step in (1, 2) else self.keys
        blocks = -(-each // (_THREADS * _EACH))
        if self.step == _BETWEEN:
            blocks = min(blocks, _MOST_SPANS)  # which go through all keys: there is mostly nothing to do
        return Geometry((max(blocks, 0 if self.step else self.spans), 1, 1), (_THREADS, 1, 1))

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
        floats, moved, kind = self.dtype.is_float, self.kind == 0, self.kind
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
        first = {0: "-1", 1: "in_order({})", 2: "in_order({})"}.get(kind, "0")
        text += f"#define FIRST_HELD(key) {first.format('wide(x[key])' if self.x else 'NEUTRAL')}\n"
        text += f"#define ARGUMENTS {self._arguments}\n"
        for name, number in (("KIND", kind), ("STEP", self.step), ("IS_FLOAT", floats), ("PLACES", self.how == PLACES)):
            text += f"#define {name} {int(number)}\n"
        sizes = constants(THREADS=_THREADS, EACH=_EACH, FILLS=int(fills), ZEROS=ZEROS.get(self.dtype, 0))
        return Code("scatter_atomic.cu", text + self.numbers.text() + sizes)

    @property
    def _arguments(self) -> str:
        """The kernel's pointers."""
        moved, ends = self.kind == 0, self.step == _LAST_STEP
        const = "const " if ends else ""
        src = "" if self.how == PLACES else "const T *__restrict__ src"
        x = "const T *__restrict__ x" if self.x else ""
        held, lost, ids = f"{const}HOLD *__restrict__ held", f"{const}int *lost", "const I *__restrict__ ids"
        if self.kind == _FLOAT_SUMS:
            spans, tops = "int *__restrict__ spans", "int *__restrict__ tops"
            listed = {
                0: [src, held, lost, spans],
                1: [src, ids, held, lost, spans],
                _BETWEEN: [f"const {spans}", held, tops],
                2: [src, ids, f"const {tops}", f"const {spans}", held],
                _LAST_STEP: [held, f"const {tops}", lost, f"const {spans}", "T *__restrict__ y"],
            }[self.step]
        elif self.step == 0:
            listed = [x if self.kind in (1, 2) else "", held, lost]
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
    steps = [
        AtomicScatter(*problem.dtypes, problem.how, *problem.sizes, bool(x), problem.lost, step) for step in range(5)
    ]
    first, kind = steps[0], steps[0].kind
    held, spoilt = Scratch(0, first.keys * first.held.itemsize), Scratch(1, 4 * first.lines)
    given = () if src is None else (src,)
    if kind == _FLOAT_SUMS:
        tops, spans = Scratch(2, 4 * first.keys), Scratch(3, 4 * (2 * first.spans + 1))
        return [
            Launch(steps[0], given, (held, spoilt, spans)),
            Launch(steps[1], (*given, ids), (held, spoilt, spans)),
            Launch(steps[_BETWEEN], (spans,), (held, tops)),
            Launch(steps[2], (*given, ids, tops, spans), (held,)),
            Launch(steps[_LAST_STEP], (held, tops, spoilt, spans), (out,)),
        ]
    moved = kind == 0
    return [
        Launch(steps[0], x if kind in (1, 2) else (), (held, spoilt)),
        Launch(steps[1], (*(() if moved else given), ids), (held, spoilt)),
        Launch(steps[_LAST_STEP], (*(given if moved else ()), held, spoilt, *(x if moved else ())), (out,)),
    ]
