"""Scatters of rows as GPU kernels: the rows of each id are put in order, then combined in that order.

Few rows are one launch, whose blocks each have some ids and columns. The places of many rows are sorted by their ids,
a stable sort digit by digit (``row_order``), and then a team of threads combines the rows of an id (``ordered_rows``).
The rows of an id that has many are combined in parts. The order of a sum depends on the number of all rows and the
places of its own alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, Pointers, arguments, constants
from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES
from dslc.compiler.codegen.cuda.ops.scatter.row_order import Argument, Digits, Keyed, as_signed, ordered
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.device_model import H200, STATIC_SHARED_BYTES
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Combine
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.scalar import call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr, optional_int_attr, str_attr
from dslc.compiler.ops.index.ordered import is_for_order

_FEW_THREADS: Final = 256
_BLOCK_THREADS: Final = 128
_FEW_BLOCKS: Final = 4 * H200.multiprocessors
_FEW_IDS: Final = (8, 1024)  # least and most ids of a block
_LONG: Final = 64  # rows of an id; one with more has all teams of a block
_LOADS: Final = 8  # of a thread under way
_SPARSE: Final = (4, 8)  # keys for each row from which most have none; neighbouring keys of a team then
_PART_RANGE: Final = (64, 256)  # least and most rows that one team combines
_COMPUTED: Final = (DType.F32, DType.F64, DType.I32, DType.I64)
_LOWEST: Final = {DType.I32: "(-2147483647 - 1)", DType.I64: "(-9223372036854775807LL - 1)"}
_GREATEST: Final = {DType.I32: "2147483647", DType.I64: "9223372036854775807LL"}


def combining(dtype: DType, how: Combine) -> str:
    """Types T and SUM; ``combined``, and what changes nothing: NEUTRAL."""
    computed, floats = dtype.computed, dtype.is_float
    infinity = "SUM(__uint_as_float(0x7F800000u))"
    limits = (f"-{infinity}", infinity) if floats else (_LOWEST[computed], _GREATEST[computed])
    neutral = {"sum": "SUM(0)", "prod": "SUM(1)", "max": limits[0], "min": limits[1]}[how]
    # of two zeros, 0.0 is greater than -0.0
    two_zeros = {"max": "a == 0 && b == 0 ? a + b : ", "min": "a == 0 && b == 0 ? -(-a - b) : "}
    any = {"sum": "a + b", "prod": "a * b"}
    other = {**any, "max": "greater(a, b)", "min": "lesser(a, b)"}
    whole = {**any, "max": "a > b ? a : b", "min": "a < b ? a : b"}
    found = two_zeros.get(how, "") + other[how] if floats else whole[how]
    return (
        f"using T = {C_TYPES[dtype]};\nusing SUM = {C_TYPES[computed]};\n#define NEUTRAL {neutral}\n"
        f"__device__ __forceinline__ SUM combined(SUM a, SUM b) {{ return {found}; }}\n"
    )


@dataclass(frozen=True)
class Rows(Keyed):
    """``parts`` times ``length`` rows of ``inner`` elements with ids below ``count``, combined for each id, with an
    element of x if there is ``x``. ``lost``: what integers become in a part with an id that does not exist."""

    dtype: DType
    how: Combine
    parts: int
    length: int
    count: int
    inner: int
    x: bool = False
    lost: int | None = None

    @property
    def vector(self) -> int:
        """Elements of a thread."""
        return min(LOAD_BYTES // self.dtype.itemsize, power_of_two(self.inner))

    @property
    def team(self) -> int:
        """Threads of a row, a power of 2."""
        return min(32, 1 << (-(-self.inner // self.vector) - 1).bit_length())

    @property
    def part(self) -> int:
        """A key with more rows is combined in parts of as many."""
        return part_of(self.length)

    @property
    def lines(self) -> int:
        """Most parts of keys that have any: a key begins at twice the number of its first row divided by ``part``."""
        return 2 * self.all // self.part if self.length > self.part else 0

    def head(self, checked: bool = False) -> str:
        """The constants of all kernels; ``checked``: whether ids may be out of range."""
        floats = self.dtype.is_float
        text = combining(self.dtype, self.how)
        text += constants(VEC=self.vector, TEAM=self.team, AHEAD=_LOADS, CHECKED=int(checked), HAS_X=int(self.x))
        text += constants(FILLS=int(floats or self.lost is not None))
        nan = "SUM(__uint_as_float(0x7FC00000u))"
        text += f"#define FILLER {nan if floats else 'SUM(s.LOST)'}\n#define ABSENT {nan if floats else 'SUM(0)'}\n"
        given = ("const T *__restrict__ x, ", "x + (i)") if self.x else ("", "y")
        text += f"#define ARGUMENT_X {given[0]}\n#define AT_X(i) ({given[1]})\n"
        return text + self._weighted()

    def _weighted(self) -> str:
        """The product of an element and the weight of its place."""
        text = constants(WEIGHTED=0, TAPS=1) + "#define ARGUMENT_WEIGHT\n#define WEIGHT nullptr\n"
        return text + "__device__ __forceinline__ SUM weighted(SUM x, SUM) { return x; }\n"

    def numbers(self, **more: int) -> Numbers:
        return Numbers(INNER=self.inner, LOST=self.lost or 0, **more)


@dataclass(frozen=True)
class WeightedRows(Rows):
    """Rows that ``taps`` neighbouring places share, each times the weight of its place, rounded to the rows' dtype."""

    taps: int = 1

    def _weighted(self) -> str:
        product = f"{'__dmul_rn' if self.dtype is DType.F64 else '__fmul_rn'}(x, factor)"
        rounds = self.dtype is not self.dtype.computed
        body = f"T y; store(&y, {product}); return wide(y);" if rounds else f"return {product};"
        text = constants(WEIGHTED=1, TAPS=self.taps)
        text += "#define ARGUMENT_WEIGHT const T *__restrict__ weight,\n#define WEIGHT weight\n"
        return text + f"__device__ __forceinline__ SUM weighted(SUM x, SUM factor) {{ {body} }}\n"


@dataclass(frozen=True)
class RowsFew(Numbered):
    """``k(rows, ids, [x,] y, numbers)``: all of a scatter of few rows."""

    rows: Rows
    ids: DType
    writes: ClassVar[Pointers] = (("T *__restrict__ ", "y"),)

    @property
    def reads(self) -> Pointers:
        rows, x = (("const T *__restrict__ ", name) for name in ("rows", "x"))
        return (rows, ("const I *__restrict__ ", "ids"), *([x] if self.rows.x else []))

    @property
    def held(self) -> int:
        """Ids of a block, a power of 2."""
        least, most = _FEW_IDS
        while most > least and self._shared_bytes(most) > STATIC_SHARED_BYTES:
            most //= 2
        return min(most, max(least, 1 << (-(-self.rows.keys * self._chunks // _FEW_BLOCKS) - 1).bit_length()))

    @property
    def _chunks(self) -> int:
        """The blocks that share the columns of a row: a thread has one vector of it."""
        return max(1, -(-self.rows.inner // (self.rows.team * self.rows.vector)))

    @property
    def most(self) -> int:
        """Places that a block has room for."""
        return max(256, 1 << (self.rows.length - 1).bit_length())

    def _shared_bytes(self, held: int) -> int:
        """Of counts, starts, places, longs, what threads combine, and a few numbers."""
        joined = _FEW_THREADS * self.rows.vector * self.rows.dtype.computed.itemsize
        return 4 * (_FEW_THREADS // 32 + 1) * held + 2 * (self.most + self.most // (_LONG + 1) + 1) + joined + 128

    @property
    def geometry(self) -> Geometry:
        blocks = self.rows.parts * -(-self.rows.count // self.held) * self._chunks
        return Geometry((blocks, 1, 1), (_FEW_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        return self.rows.numbers(LENGTH=self.rows.length, COUNT=self.rows.count)

    @property
    def code(self) -> Code:
        sizes = {"THREADS": _FEW_THREADS, "ROWS": self.held, "BITS": self.held.bit_length() - 1}
        text = f"using I = {C_TYPES[self.ids]};\n" + self.rows.head() + self.numbers.text()
        text += arguments(self.reads, self.writes)
        return Code("rows_few.cu", text + constants(**sizes, MOST=self.most, LONG=_LONG))


@dataclass(frozen=True)
class OrderedRows(Numbered):
    """``k(rows, places, starts, [weight or x,] y, parts, numbers)``: rows at places below ``table``, combined by key or
    to ``parts``."""

    file: ClassVar = "rows_ordered.cu"
    rows: Rows
    table: int
    checked: bool

    @property
    def each(self) -> int:
        """Keys of a team."""
        return _SPARSE[1] if self.rows.keys >= _SPARSE[0] * self.rows.all else 1

    @property
    def geometry(self) -> Geometry:
        across = -(-self.rows.inner // (self.rows.team * self.rows.vector)) * self.rows.team
        threads = (-(-self.rows.keys // self.each) + self.rows.lines) * across
        return Geometry((-(-threads // _BLOCK_THREADS), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        sizes = {"KEYS": self.rows.keys, "LINES": self.rows.lines, "ALL": self.rows.all, "PARTS": self.rows.parts}
        return self.rows.numbers(**sizes, TABLE=self.table)

    @property
    def code(self) -> Code:
        text = self.rows.head(self.checked) + self.numbers.text()
        return Code(self.file, text + constants(THREADS=_BLOCK_THREADS, PART=self.rows.part, EACH=self.each))


@dataclass(frozen=True)
class RowsJoin(OrderedRows):
    """``k(places, starts, parts, [x,] y, numbers)``: combines the parts of keys with many rows."""

    file: ClassVar = "rows_join.cu"

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.rows.lines, 1, 1), (_BLOCK_THREADS, 1, 1))


def part_of(length: int) -> int:
    """The rows that one team combines: about the square root of all rows, so that the parts are as many."""
    least, most = _PART_RANGE
    return min(most, max(least, 1 << (math.isqrt(max(0, length - 1))).bit_length()))


def scattered(rows: Rows, given: Value, ids: Value, x: tuple[Value, ...], out: Value) -> list[Launch] | None:
    """The launches of a scatter of rows that are not none, with few ids or many; None if kernels lack the dtype or the
    numbers."""
    if rows.dtype.computed not in _COMPUTED or max(rows.all, rows.keys + rows.lines, rows.inner) >= I32_ELEMENTS - 1:
        return None
    if not is_for_order(rows.length, rows.count):
        return [Launch(RowsFew(rows, as_signed(ids.type.dtype)), (given, ids, *x), (out,))]
    order = Scratch(0, 4 * rows.all), Scratch(1, 4 * (rows.keys + 1))
    digits = Digits(as_signed(ids.type.dtype), rows.parts, rows.length, rows.count)
    last = combined_rows(rows, given, order, x, out, table=rows.all, checked=False, scratch=2 + digits.scratch)
    return ordered(digits, ids, *order, 2) + last


def combined_rows(
    rows: Rows, given: Value, order: tuple[Argument, Argument], x: tuple[Value, ...], out: Value,
    *, table: int, checked: bool, scratch: int,
) -> list[Launch]:  # fmt: skip
    """The launches that combine rows in an order. ``x``: what they are combined with, or the weights of places.
    ``scratch``: the number of a block of scratch memory."""
    parts = Scratch(scratch, max(1, rows.lines) * rows.inner * rows.dtype.computed.itemsize)
    sums = Launch(OrderedRows(rows, table, checked), (given, *order, *x), (out, parts))
    join = Launch(RowsJoin(rows, table, checked), (*order, parts, *(x if rows.x else ())), (out,))
    return [sums, join] if rows.lines else [sums]


@lowers("scatter_rows_add", target="cuda")
def scatter_rows_add(node: Node) -> list[Launch]:
    (rows, ids), out = node.inputs, node.types[0]
    length, count = prod(ids.type.ints), out.ints[0]
    if not length:
        return pointwise.filled(node, 0)
    spec = Rows(as_signed(rows.type.dtype), "sum", 1, length, count, prod(out.ints[1:]))
    return scattered(spec, rows, ids, (), node.out) or [_scanned(node, length, count)]


@lowers("ordered_rows", target="cuda")
def ordered_rows(node: Node) -> list[Launch] | None:
    (table, places, *_), [out], how = node.input_types, node.types, str_attr(node.attrs, "how")
    parts, lost = int_attr(node.attrs, "parts"), optional_int_attr(node.attrs, "lost")
    if not prod(places.ints):
        return pointwise.filled(node, 0) if how == "sum" else None
    if table.dtype.computed not in _COMPUTED:
        return None
    combine: Combine = "sum" if how == "sum" else "prod" if how == "prod" else "max" if how == "max" else "min"
    dtype = as_signed(table.dtype) if how in ("sum", "prod") else table.dtype
    given, order, starts, *x = node.inputs
    taps = optional_int_attr(node.attrs, "taps")
    same = dtype, combine, parts, prod(places.ints) // parts, out.ints[0] // parts, prod(out.ints[1:])
    rows = Rows(*same, bool(x), lost) if taps is None else WeightedRows(*same, False, lost, taps)
    known = table.ints[0] * (taps or 1)
    return combined_rows(rows, given, (order, starts), tuple(x), node.out, table=known, checked=True, scratch=0)


def _scanned(node: Node, length: int, count: int) -> Launch:
    """scatter_rows_add of integers of 8 and 16 bits: each element of the table scans all ids."""
    (rows, ids), inner = node.input_types, prod(node.types[0].ints[1:])
    sources = [Access(rows.dtype, (0, 1, inner)), Access(ids.dtype, (0, 0, 1))]
    b = RegionBuilder([count, inner], [length], sources, [Access(rows.dtype, (inner, 1, 0))], indices=(0,))
    b.element()
    hit = b.let(call("eq", b.let(b.input(1), DType.I64), b.along(0)), DType.B1)
    total = b.reduce("sum", b.let(select(hit, b.input(0), 0), rows.dtype))
    b.row()
    b.store(0, total)
    return Launch(b.region(), node.inputs, node.outputs)
