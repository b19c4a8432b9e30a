"""scatter_add and scatter_reduce as GPU kernels: a scatter of rows, a region that scans all indices, atomic operations
on integers, or a sort of the indices.

All but the atomic operations, of which any order gives the same, combine the elements of one index in an order of their
own that is the same in every run. After a sort, the elements of an index that has many are combined in parts, by many
threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.ops.scatter.row_order import as_signed
from dslc.compiler.codegen.cuda.ops.scatter.scatter_atomic import LAST, PLACES, atomic_scatter
from dslc.compiler.codegen.cuda.ops.scatter.scatter_elements import Elements, elements_of, scattered_elements
from dslc.compiler.codegen.cuda.ops.scatter.scatter_few import few_scatter
from dslc.compiler.codegen.cuda.ops.scatter.scatter_problem import ScatterProblem
from dslc.compiler.codegen.cuda.ops.scatter.scatter_rows import Rows, combining, part_of, scattered
from dslc.compiler.codegen.cuda.ops.sort.lines import Lines
from dslc.compiler.codegen.cuda.ops.sort.sort import sorted_lines
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Combine, dense
from dslc.compiler.codegen.region.queries import identity
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.scalar import call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr, optional_int_attr, str_attr
from dslc.compiler.ops.index.ordered import scans

_BLOCK_THREADS: Final = 256
_MAX_SCANNED: Final = 64  # indices along the axis; more are sorted, which has several launches but does not scan
#: Looks of results at indices from which a kernel with a warp for each line is faster: an H200 takes 42 us for 5.5
#: million, where a line of 84 results has 21 indices.
_MANY_LOOKS: Final = 1 << 20
_MANY_LINES: Final = 4 * H200.multiprocessors  # that keep a GPU busy with a warp each
_SORTED: Final = (DType.F32, DType.F64, DType.I32, DType.I64)  # computed dtypes


@dataclass(frozen=True)
class ScatterSorted(Numbered):
    """``k(src, ids, from, parts, y, numbers)``: combines ``src`` with the middle axis of y [all / after, count, after].

    ``ids``: ``length`` indices along it, sorted; ``from``: their places before. Step 0 combines up to ``part`` elements
    of an index, step 1 their results, if there are more."""

    dtype: DType
    ids: DType
    how: Combine
    length: int
    count: int
    after: int
    all: int
    lost: int | None
    part: int
    step: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.all * self.length // _BLOCK_THREADS), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        sizes = {"LENGTH": self.length, "COUNT": self.count, "AFTER": self.after, "ALL": self.all}
        return Numbers(**sizes, LOST=self.lost or 0, PART=self.part)

    @property
    def code(self) -> Code:
        floats = self.dtype.is_float
        text = combining(self.dtype, self.how) + f"using I = {C_TYPES[self.ids]};\n" + self.numbers.text()
        text += constants(THREADS=_BLOCK_THREADS, STEP=self.step, FILLS=int(floats or self.lost is not None))
        text += f"#define FILLER {'SUM(__uint_as_float(0x7FC00000u))' if floats else 'SUM(s.LOST)'}\n"
        return Code("scatter_sorted.cu", text)


@lowers("scatter_reduce", target="cuda")
def scatter_reduce(node: Node) -> list[Launch]:
    x, src, _ = node.input_types
    whole = Access(x.dtype, dense(x.ints))
    copy = Launch(pointwise.copy(x.ints, whole, whole), node.inputs[:1], node.outputs)
    if not prod(src.ints) or not x.bytes:
        return [copy]
    name = str_attr(node.attrs, "how")
    how: Combine = "max" if name == "max" else "min" if name == "min" else "prod"
    return _few(node, how, copy) or _by_rows(node, how) or _sorted(node, how, copy) or [_scanned(node, how)]


@lowers("scatter_add", target="cuda")
def scatter_add(node: Node) -> list[Launch]:
    zeros = pointwise.filled(node, 0)
    if not node.input_types[0].bytes:
        return zeros
    [zero] = zeros
    return _few(node, "sum", zero) or _by_rows(node, "sum") or _sorted(node, "sum", zero) or [_added(node)]


@lowers("scatter_last", target="cuda")
@lowers("last_places", target="cuda")
def scatter_last(node: Node) -> list[Launch] | None:
    axis, out = int_attr(node.attrs, "axis"), node.types[0]
    source = node.inputs[0] if node.op.name == "scatter_last" else None
    index, *x = node.inputs if source is None else node.inputs[1:]
    if not index.type.bytes or not out.bytes:
        return None
    length, lines = index.type.ints[axis], prod(out.ints[:axis])
    many = lines >= _MANY_LINES and prod(out.ints) * length > _MANY_LOOKS
    if scans(length, out.ints, axis) and not (many and index.type.rank == axis + 1 == out.rank):
        return [_last(node)]
    how, lost = PLACES if source is None else LAST, optional_int_attr(node.attrs, "lost")
    problem = ScatterProblem(how, out.dtype, axis, source, index, tuple(x), node.out, lost)
    if index.type.rank != axis + 1:
        return atomic_scatter(problem)
    outer, _, _, count = problem.sizes
    each = Elements(*problem.dtypes, how, outer, length, count, bool(x), lost)
    return scattered_elements(each, source, index, tuple(x), node.out)


def _problem(node: Node, how: Combine, dtype: DType) -> ScatterProblem:
    """That of a ``scatter_add`` or ``scatter_reduce`` with an index for each element."""
    *x, src, ids = node.inputs
    return ScatterProblem(
        how, dtype, int_attr(node.attrs, "axis"), src, ids, tuple(x), node.out, optional_int_attr(node.attrs, "lost")
    )


def _combined(dtype: DType, how: Combine) -> DType:
    """As which kernels read elements: unsigned integers have the sums and products of signed ones."""
    return as_signed(dtype) if how in ("sum", "prod") else dtype


def _few(node: Node, how: Combine, start: Launch) -> list[Launch] | None:
    """Launches for few elements of each line, each with an index; None for others."""
    src, ids = node.input_types[-2:]
    if ids.rank < src.rank or not prod(src.ints):
        return None
    return few_scatter(_problem(node, how, _combined(src.dtype, how)), how, start)


def _by_rows(node: Node, how: Combine) -> list[Launch] | None:
    """Launches for an index of whole rows, also of one element; None if each element has its own, or scans take no
    longer."""
    *x, src, ids = node.inputs
    shape, axis = node.out.type.ints, int_attr(node.attrs, "axis")
    if ids.type.rank != axis + 1 or scans(src.type.ints[axis], shape, axis):
        return None
    lost = optional_int_attr(node.attrs, "lost")
    each = elements_of(src, ids, axis, shape[axis], how, bool(x), lost)
    if each is not None and (found := scattered_elements(each, src, ids, tuple(x), node.out)):
        return found
    sizes = prod(shape[:axis]), src.type.ints[axis], shape[axis], prod(shape[axis + 1 :])
    return scattered(Rows(_combined(src.type.dtype, how), how, *sizes, bool(x), lost), src, ids, tuple(x), node.out)


def _sorted(node: Node, how: Combine, start: Launch) -> list[Launch] | None:
    """Launches that sort the indices; None if few are scanned sooner. ``start`` fills the result."""
    (src, ids), [out], axis = node.input_types[-2:], node.types, int_attr(node.attrs, "axis")
    length, after = src.ints[axis], prod(src.ints[axis + 1 :])
    ids_dtype = as_signed(ids.dtype)
    lines = Lines(ids_dtype, length, after, prod(src.ints[:axis]) * after)
    small = max(length, lines.all, out.ints[axis]) < I32_ELEMENTS
    if length <= _MAX_SCANNED or not small or out.dtype.computed not in _SORTED or ids.rank < src.rank:
        return None
    if found := atomic_scatter(_problem(node, how, out.dtype)):
        return found
    kept, lost = lines.held(0), optional_int_attr(node.attrs, "lost")
    parts, part = Scratch(2, lines.elements * out.dtype.computed.itemsize), part_of(length)
    steps = [
        ScatterSorted(out.dtype, ids_dtype, how, length, out.ints[axis], after, lines.all, lost, part, step)
        for step in range(2 if length > part else 1)
    ]
    return [
        start,
        *sorted_lines(lines, node.inputs[-1:], kept, 3),
        *(Launch(spec, (node.inputs[-2], *kept), (parts, *node.outputs)) for spec in steps),
    ]


def _scanned(node: Node, how: Combine) -> Launch:
    (x, src, ids), axis, lost = node.input_types, int_attr(node.attrs, "axis"), optional_int_attr(node.attrs, "lost")
    outer, count, length, inner = prod(x.ints[:axis]), x.ints[axis], src.ints[axis], prod(x.ints[axis + 1 :])
    given, place = (length * inner, 0, 1, inner), (count * inner, inner, 1, 0)
    index = (length, 0, 0, 1) if ids.rank < src.rank else given
    sources = [Access(x.dtype, place), Access(src.dtype, given), Access(ids.dtype, index)]
    b = RegionBuilder([outer, count, inner], [length], sources, [Access(x.dtype, place)], indices=(1,))
    b.element()
    found = b.let(b.input(2), DType.I64)
    known = b.let(call("and", found >= 0, found < count), DType.B1)
    hit = b.let(call("eq", found, b.along(1)), DType.B1)
    dtype, none = src.dtype.computed, identity(how, src.dtype)
    filler = math.nan if dtype.is_float else none if lost is None else lost
    here = b.reduce(how, b.let(select(known, select(hit, b.input(1), none), filler), dtype))
    b.row()
    b.store(0, b.let(call("mul" if how == "prod" else how, b.input(0), here), x.dtype))
    return Launch(b.region(), node.inputs, node.outputs)


def _last(node: Node) -> Launch:
    """Each element of the result looks for the last index of its line that is its own."""
    axis, out = int_attr(node.attrs, "axis"), node.types[0]
    source = node.input_types[0] if node.op.name == "scatter_last" else None
    index, *x = node.input_types if source is None else node.input_types[1:]
    outer, count, length, inner = prod(out.ints[:axis]), out.ints[axis], index.ints[axis], prod(out.ints[axis + 1 :])
    given, own = (length * inner, 0, 1, inner), (count * inner, inner, 1, 0)
    first = [] if source is None else [Access(out.dtype, (length * inner, 0, 1, 0))]
    sources = [*first, Access(index.dtype, given), *(Access(out.dtype, own) for _ in x)]
    b = RegionBuilder([outer, count, inner], [length], sources, [Access(out.dtype, own)], indices=(1, 3))
    b.element()
    found = b.let(b.input(len(first)), DType.I64)
    known = b.let(call("and", found >= 0, found < count), DType.B1)
    hit = b.let(call("and", known, call("eq", found, b.along(1))), DType.B1)
    place, wrong = b.let(select(hit, b.along(3), -1), DType.I32), b.let(select(known, 0, 1), DType.I32)
    last, lost = b.reduce("max", place), b.reduce("max", wrong)
    b.row()
    if source is None:
        value = select(lost > 0, int_attr(node.attrs, "lost"), last) if "lost" in node.attrs else last
    else:
        there = b.let(last >= 0, DType.B1)
        taken = b.fetch(0, b.let(b.let(last, DType.I64) * inner, DType.I64), there)
        value = select(there, taken, b.input(2) if x else 0)
        value = select(lost > 0, math.nan, value) if out.dtype.is_float else value
    b.store(0, b.let(value, out.dtype))
    return Launch(b.region(), node.inputs, node.outputs)


def _added(node: Node) -> Launch:
    """Each element of the result scans all indices of its line."""
    (source, ids), [out], axis = node.input_types, node.types, int_attr(node.attrs, "axis")
    outer, count, length, inner = prod(out.ints[:axis]), out.ints[axis], source.ints[axis], prod(out.ints[axis + 1 :])
    given, place = (length * inner, 0, 1, inner), (count * inner, inner, 1, 0)
    index = (length, 0, 0, 1) if ids.rank < source.rank else given
    sources = [Access(source.dtype, given), Access(ids.dtype, index)]
    b = RegionBuilder([outer, count, inner], [length], sources, [Access(out.dtype, place)], indices=(1,))
    b.element()
    found = b.let(b.input(1), DType.I64)
    known = b.let(call("and", found >= 0, found < count), DType.B1)
    hit = b.let(call("eq", found, b.along(1)), DType.B1)
    dtype = source.dtype.computed
    term = b.let(select(known, select(hit, b.input(0), 0), math.nan if dtype.is_float else 0), dtype)
    total = b.reduce("sum", term)
    b.row()
    b.store(0, b.let(total, out.dtype))
    return Launch(b.region(), node.inputs, node.outputs)
