"""Running sums, products, logarithms of sums, and recurrences as GPU kernels: blocks share an axis, in two launches if
it is long.

The first launch combines each chunk of the axis, the second one begins each chunk with those before it (Blelloch 1990).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final, Self

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES, WARP
from dslc.compiler.codegen.cuda.ops.scatter.row_order import as_signed
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import scan
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr, int_tuple

_THREADS: Final = 256
_EACH: Final = 8  # neighbours of a thread
_BLOCKS: Final = 4 * H200.multiprocessors  # of a launch, about
_MIN_COUNT: Final = 64  # elements along an axis before others; fewer are soon walked along
_MIN_ROW: Final = 1024  # elements of a row; a warp walks along fewer
_MANY_LINES: Final = 1 << 16  # that keep the GPU busy with a thread each
_COMBINED: Final = {
    how: f"""using Held = SUM;
#define NEUTRAL SUM({neutral})
#define GIVEN_TENSORS const X *__restrict__ x
#define RESULT(h, i) (h)
__device__ __forceinline__ Held combined(Held before, Held own) {{ return before {sign} own; }}
__device__ __forceinline__ Held up(Held all, int step) {{ return __shfl_up_sync(0xFFFFFFFFu, all, step); }}
"""
    for how, neutral, sign in (("sum", 0, "+"), ("prod", 1, "*"), ("others", 1, "*"))
}
# y -> a * y + b. What is 0 stays so if the factors of many elements overflow together.
_RECURRENCE: Final = """struct Held {
  SUM a, b;
};
#define NEUTRAL Held{SUM(1), SUM(0)}
#define GIVEN_TENSORS const X *__restrict__ a, const X *__restrict__ b
__device__ __forceinline__ Held combined(Held before, Held own) {
  const bool nothing = before.b == 0 && own.a == own.a;
  return {before.a * own.a, nothing ? own.b : fused(own.a, before.b, own.b)};
}
__device__ __forceinline__ Held up(Held all, int step) {
  return {__shfl_up_sync(0xFFFFFFFFu, all.a, step), __shfl_up_sync(0xFFFFFFFFu, all.b, step)};
}
"""
LOGS: Final = ("logs", "logs_grad")
# The greatest element, and the sum of the exponentials of all others relative to it.
_LOGS: Final = """struct Held {
  SUM top, others;
};
#define NEUTRAL Held{SUM(-INFINITE), SUM(0)}
#define GIVEN_TENSORS const X *__restrict__ x
__device__ __forceinline__ Held combined(Held before, Held own) {
  const SUM less = exponential(before.top == own.top ? SUM(0) : -apart(before.top, own.top));
  const bool later = !(own.top <= before.top);
  const SUM large = later ? own.others : before.others, small = later ? before.others : own.others;
  return {greater(before.top, own.top), large + less * (SUM(1) + small)};
}
__device__ __forceinline__ Held up(Held all, int step) {
  return {__shfl_up_sync(0xFFFFFFFFu, all.top, step), __shfl_up_sync(0xFFFFFFFFu, all.others, step)};
}
#define READ(i, first) Held{wide(x[i]), SUM(0)}
#define RESULT(h, i) (h.top + logarithm(h.others))
"""
# The recurrence of its gradient, whose factors are powers of e.
_LOGS_GRADIENT: Final = """#undef GIVEN_TENSORS
#define GIVEN_TENSORS const X *__restrict__ x, const X *__restrict__ y, const X *__restrict__ dy
__device__ __forceinline__ SUM kept(SUM y) { return greater(lesser(y, SUM(MOST)), SUM(-MOST)); }
#define FACTOR(i) exponential(kept(wide(y[i])) - kept(wide(y[REVERSE ? (i) + s.INNER : (i) - s.INNER])))
#define READ(i, first) Held{(first) ? SUM(0) : FACTOR(i), wide(dy[i])}
#define RESULT(h, i) (exponential(lesser(wide(x[i]), SUM(MOST)) - kept(wide(y[i]))) * h.b)
"""
_FUNCTIONS: Final = """#define INFINITE __longlong_as_double(0x7FF0000000000000)
#define MOST {most}
__device__ __forceinline__ {sum} exponential({sum} x) {{ return exp{f}(x); }}
__device__ __forceinline__ {sum} logarithm({sum} x) {{ return log1p{f}(x); }}
__device__ __forceinline__ {sum} apart({sum} x, {sum} y) {{ return fabs{f}(x - y); }}
"""


def logs_text(dtype: DType, how: str) -> str:
    """What ``running.cu`` and ``lines.cu`` combine for ``logs`` and ``logs_grad``; after X, T and SUM."""
    wide = dtype.computed is DType.F64
    most = "__longlong_as_double(0x7FEFFFFFFFFFFFFF)" if wide else "__int_as_float(0x7F7FFFFF)"
    text = _FUNCTIONS.format(sum=C_TYPES[dtype.computed], f="" if wide else "f", most=most)
    return text + (_LOGS if how == "logs" else _RECURRENCE + _LOGS_GRADIENT)


@dataclass(frozen=True)
class AlongAxis(Numbered):
    """A kernel that combines the elements of [outer, count, inner] along ``count``, from the last one on if
    ``reverse``. ``given``: the dtype of what it reads; ``dtype``: of the result; ``how``: what it combines."""

    given: DType
    dtype: DType
    how: str
    reverse: bool
    outer: int
    count: int
    inner: int

    def between_casts(self, given: DType, dtype: DType) -> Self:
        """The same on a tensor of 16-bit floats, and with a result rounded to them; sums stay as they are."""
        return replace(self, given=given, dtype=dtype)


@dataclass(frozen=True)
class Running(AlongAxis):
    """Step 0: ``k(x, totals, numbers)``; step 1: ``k(x, totals, y, numbers)``. x and y are [outer, count, inner];
    totals are [outer, chunks, inner]. ``how``: sum or prod; others for the product of the elements before;
    plain or late for a recurrence of a and b, which are x; logs for the logarithms of running sums of exponentials;
    logs_grad for their gradient from their x, y and dy."""

    step: int

    @property
    def wide(self) -> int:
        """Columns of a block, a power of 2."""
        return min(WARP, 1 << (self.inner - 1).bit_length())

    @property
    def threads(self) -> int:
        """Threads of a block, a power of 2: fewer if they cover the whole axis at once."""
        needed = -(-self.count // _EACH) * self.wide
        return min(_THREADS, max(WARP, 1 << (needed - 1).bit_length()))

    @property
    def tile(self) -> int:
        """Elements along the axis that a block combines at once."""
        return self.threads // self.wide * _EACH

    @property
    def steps(self) -> int:
        """Tiles of a chunk."""
        tiles = -(-self.count // self.tile)
        strips = self.outer * -(-self.inner // self.wide)
        return -(-tiles // min(tiles, max(1, _BLOCKS // strips)))

    @property
    def chunks(self) -> int:
        return -(-self.count // (self.tile * self.steps))

    @property
    def whole(self) -> bool:
        """Whether a thread's neighbours are one word of memory, all of them in range or none."""
        moved = (self.given, self.dtype)[: self.step + 1]
        fits = max(dtype.itemsize for dtype in moved) * _EACH <= LOAD_BYTES
        return self.how in _COMBINED and fits and self.inner == 1 and self.count % _EACH == 0

    @property
    def blocks(self) -> int:
        """Chunks of this step; nothing comes after the last one."""
        return self.chunks - (self.step == 0)

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.outer * self.blocks * -(-self.inner // self.wide), 1, 1), (self.threads, 1, 1))

    @property
    def numbers(self) -> Numbers:
        sizes = {"COUNT": self.count, "INNER": self.inner, "CHUNKS": self.chunks}
        return Numbers(**sizes, BLOCKS=self.blocks, STEPS=self.steps)

    @property
    def code(self) -> Code:
        late = self.how in ("late", "others")
        text = f"using X = {C_TYPES[self.given]};\nusing T = {C_TYPES[self.dtype]};\n"
        text += f"using SUM = {C_TYPES[self.dtype.computed]};\n"
        if self.how in LOGS:
            text += logs_text(self.dtype, self.how)
        elif self.how in ("plain", "late"):
            read = "wide(a[i]) * wide(b[i])" if late else "wide(b[i])"
            text += f"{_RECURRENCE}#define READ(i, first) Held{{wide(a[i]), {read}}}\n"
            text += f"#define RESULT(h, i) ({'h.b + wide(b[i])' if late else 'h.b'})\n"
        else:
            read = "wide(x[i])" if self.dtype.is_float else "SUM(x[i])"
            text += f"{_COMBINED[self.how]}#define READ(i, first) {read}\n"
        listed = ("Held *totals", "const Held *__restrict__ totals, T *__restrict__ result")[self.step]
        text += f"#define ARGUMENTS {listed}\n#define STEP {self.step}\n"
        sizes = {"THREADS": self.threads, "WIDE": self.wide, "EACH": _EACH, "REVERSE": int(self.reverse)}
        text += f"#define WHOLE {int(self.whole)}\n"
        return Code("running.cu", text + self.numbers.text() + constants(**sizes, LATE=int(late)))


@lowers("cumsum", target="cuda")
def cumsum(node: Node) -> list[Launch]:
    return running(node, "sum") or scan.cumsum(node)


@lowers("cumprod", target="cuda")
def cumprod(node: Node) -> list[Launch]:
    return running(node, "prod") or scan.cumprod(node)


@lowers("prod_grad", target="cuda")
def prod_grad(node: Node) -> list[Launch]:
    """The product of the elements before each one, that of those after it, and ``dy`` times both; in one launch a
    thread or a warp goes along each line, if there are many or they are short."""
    [x, dy], over = node.inputs, int_tuple(node.attrs, "over")
    shape, dtype = x.type.ints, x.type.dtype
    if not over or over != tuple(range(over[0], over[-1] + 1)):
        return scan.prod_grad(node)
    sizes = prod(shape[: over[0]]), prod(shape[over[0] : over[-1] + 1]), prod(shape[over[-1] + 1 :])
    sides: list[Launch] = []
    found = [Scratch(number, prod(shape) * dtype.computed.itemsize) for number in range(2)]
    for reverse, held in zip((False, True), found):
        shared = _shared((x,), held, (dtype, dtype.computed), "others", reverse, sizes, 2 + int(reverse))
        if shared is None:
            return scan.prod_grad(node)
        sides += shared
    strides = (sizes[1] * sizes[2], sizes[2], 1)
    side = Access(dtype.computed, strides)
    b = RegionBuilder(sizes, (), [side, side, Access(dtype, (sizes[2], 0, 1))], [Access(dtype, strides)])
    b.row()
    b.store(0, b.let(b.input(0) * b.input(1) * b.input(2), dtype))
    return [*sides, Launch(b.region(), (*found, dy), node.outputs)]


def running(node: Node, how: str, reverse: bool | None = None) -> list[Launch] | None:
    """None for short lines, and for many next to each other. ``reverse``: by default the node's attribute."""
    reverse = bool_attr(node.attrs, "reverse") if reverse is None else reverse
    [y], axis = node.types, int_attr(node.attrs, "axis")
    sizes = prod(y.ints[:axis]), y.ints[axis], prod(y.ints[axis + 1 :])
    dtypes = node.input_types[0].dtype, as_signed(y.dtype)
    return _shared(node.inputs, node.out, dtypes, how, reverse, sizes, 0)


def _shared(
    given: tuple[Value, ...], y: Value | Scratch, dtypes: tuple[DType, DType], how: str, reverse: bool,
    sizes: tuple[int, int, int], scratch: int,
) -> list[Launch] | None:  # fmt: skip
    """``running`` of [outer, count, inner] with a block of scratch memory."""
    outer, count, inner = sizes
    few = outer * inner < _MANY_LINES
    least = _MIN_COUNT if inner > 1 else _MIN_ROW
    if not prod(sizes) or count < least or not few or max(count, inner) >= I32_PADDED_ELEMENTS:
        return None
    first, second = (Running(*dtypes, how, reverse, *sizes, step) for step in range(2))
    words = 1 if how in _COMBINED else 2
    totals = Scratch(scratch, outer * second.chunks * inner * dtypes[1].computed.itemsize * words)
    last = Launch(second, (*given, totals), (y,))
    return [Launch(first, given, (totals,)), last] if second.chunks > 1 else [last]
