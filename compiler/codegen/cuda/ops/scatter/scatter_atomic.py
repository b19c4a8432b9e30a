"""Scatters of elements with an index each by atomic operations on integers, in any order with the same result.

The last of equal indices is the greatest place. Maxima and minima are those of integers in the same order. Floats are
added as integers, in units that the greatest exponent of their sum decides: an element is rounded to 2^-31 or less of
the greatest one, so a sum is at least as exact as one in f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.ops.scatter.scatter_rows import combining
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.ir import Combine
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.index.ordered import by_atomics

LAST: Final = "last"  # the last element of a key replaces what is there
PLACES: Final = "places"  # the result is the last place of a key, i32, -1 for none

_THREADS: Final = 256
_EACH: Final = 4  # elements of a thread
_FLOAT_SUMS: Final = 4  # the kind of scatter
_KINDS: Final = {LAST: 0, PLACES: 0, "max": 1, "min": 2}
_SUM_BITS: Final = 62  # of sums, without their sign
_DIGITS: Final = 24  # of an f32
MOVED: Final = {1: DType.I8, 2: DType.I16, 4: DType.I32, 8: DType.I64}  # for elements that are only moved


@dataclass(frozen=True)
class AtomicScatter(Numbered):
    """Step 0: ``k([x,] held, tops, lost)``; 1 and 2: ``k([src,] ids, held, tops, lost)``; 3: ``k([src,] held, tops,
    lost, [x,] y)``, each with numbers; ``tops`` for sums of floats alone."""

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
    def geometry(self) -> Geometry:
        each = self.all if self.step in (1, 2) else self.keys
        return Geometry((-(-each // (_THREADS * _EACH)), 1, 1), (_THREADS, 1, 1))

    @property
    def _numbers(self) -> Numbers:
        numbers = Numbers(KEYS=self.keys, ALL=self.all, LINES=self.lines, COUNT=self.count, LOST=self.lost or 0)
        for name, size in (("LENGTH", self.length), ("INNER", self.inner), ("RESULTS", self.count * self.inner)):
            numbers.divisor(name, size)
        numbers.add("SHIFT", _SUM_BITS - _DIGITS - self.length.bit_length())
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
        const = "const " if self.step == len(("held", "first", "second")) else ""
        held = f"{const}HOLD *__restrict__ held, " + (f"{const}int *tops, " if kind == _FLOAT_SUMS else "")
        held += f"{const}int *lost"
        src = "" if self.how == PLACES else "const T *__restrict__ src, "
        x = "const T *__restrict__ x, " if self.x else ""
        listed = (f"{x if kind in (1, 2) else ''}{held}", f"{src if kind else ''}const I *__restrict__ ids, {held}")
        last = f"{src if kind == 0 else ''}{held}, {x if kind == 0 else ''}T *__restrict__ y"
        text += f"#define ARGUMENTS {last if const else listed[min(self.step, 1)]}\n"
        for name, number in (("KIND", kind), ("STEP", self.step), ("IS_FLOAT", floats), ("PLACES", self.how == PLACES)):
            text += f"#define {name} {int(number)}\n"
        sizes = constants(THREADS=_THREADS, EACH=_EACH, FILLS=int(fills))
        return Code("scatter_atomic.cu", text + self._numbers.text() + sizes)


def atomic_scatter(
    dtypes: tuple[DType, DType], how: str, sizes: tuple[int, int, int, int], lost: int | None,
    src: Value | None, ids: Value, x: tuple[Value, ...], out: Value,
) -> list[Launch] | None:  # fmt: skip
    """The launches of a scatter along the middle axis; None if other kernels are for it. ``dtypes``: of the elements
    and the ids; ``sizes``: outer, length, inner and count."""
    outer, length, inner, count = sizes
    if not by_atomics(how, dtypes[0], outer * max(length, count) * inner):
        return None
    steps = [AtomicScatter(*dtypes, how, *sizes, bool(x), lost, step) for step in range(4)]
    first, kind = steps[0], steps[0].kind
    held = [Scratch(0, first.keys * first.held.itemsize), Scratch(1, 4 * first.lines)]
    if kind == _FLOAT_SUMS:
        held.insert(1, Scratch(2, 4 * first.keys))
    given = () if src is None else (src,)
    moved = kind == 0
    return [
        Launch(steps[0], x if kind in (1, 2) else (), tuple(held)),
        Launch(steps[1], (*(() if moved else given), ids), tuple(held)),
        *([Launch(steps[2], (*given, ids), tuple(held))] if kind == _FLOAT_SUMS else []),
        Launch(steps[3], (*(given if moved else ()), *held, *(x if moved else ())), (out,)),
    ]
