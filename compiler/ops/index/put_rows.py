"""``put_rows``: rows written into tables in place. The pass ``put_rows`` makes it of scatters with few rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Attr, Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.compound.strided_attention import View, reads_of
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

MOST_TABLES: Final = 8  # per node
#: Most rows: each element of a table looks for its row among them.
MOST_ROWS: Final = 256


class PutRows(Op):
    """put_rows(x0, x1, ..., src0, src1, ..., ids): tables ``[N, ...]`` with rows of ``src`` at ``ids``.

    All tables have one type, up to 8 of them. Attribute ``reads``: of each src the view that is its rows, as (shape,
    strides, start). A src may have another float dtype than its table, to which it is converted. The last of equal ids
    wins. An id outside 0..N-1 makes tables of floats nan, and has no effect on others. Tables may be written in place:
    then only the rows move.
    """

    name = "put_rows"
    inplace = tuple((i, i) for i in range(MOST_TABLES))

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        tables, rows, ids = _parts(types)
        x = tables[0]
        if not 1 <= len(tables) <= MOST_TABLES or any(t != x for t in tables) or not x.rank:
            raise Mismatch(f"put_rows into {', '.join(map(str, tables))}", f"1 to {MOST_TABLES} tables of one type")
        if not ids.dtype.is_int or ids.rank != 1 or ids.ints[0] > MOST_ROWS:
            raise Mismatch(f"put_rows at {ids}", f"a vector of up to {MOST_ROWS} integers")
        for row, view in zip(rows, reads_of(attrs), strict=True):
            fits = row.dtype is x.dtype or (row.dtype.is_float and x.dtype.is_float)
            if not fits or view.shape != (*ids.ints, *x.ints[1:]) or view.end > prod(row.ints) or view.start < 0:
                raise Mismatch(f"put_rows of {view} of {row} into {x}", "rows of the table")
        return tuple(tables)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("rows are written in place after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        tables, rows, ids = _parts(xs)
        found = []
        for x, src, view in zip(tables, rows, reads_of(attrs)):
            y = x.copy()
            known = (ids >= 0) & (ids < len(x))
            for at, row in zip(ids[known], view.of(np.ascontiguousarray(src))[known]):
                y[at] = row.astype(x.dtype)
            if y.dtype.kind not in "iub" and not known.all():
                y[...] = np.nan
            found.append(y)
        return found

    def cost(self, node: Node) -> Cost:
        """In place, as is usual: the rows alone move."""
        tables, rows, ids = _parts(node.input_types)
        moved = [prod(view.shape) for view in reads_of(node.attrs)]
        each = [n * (x.dtype.itemsize + src.dtype.itemsize) for n, x, src in zip(moved, tables, rows)]
        return Cost(0, sum(each) + ids.bytes)


def _parts(xs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Any]:
    """The tables, the src of each, and the ids."""
    count = len(xs) // 2
    return xs[:count], xs[count:-1], xs[-1]


def put(b: Builder, tables: Sequence[Value], rows: Sequence[tuple[Value, View]], ids: Value) -> Node:
    """The node that writes rows, each a view of a value, into tables."""
    reads: tuple[Attr, ...] = tuple((view.shape, view.strides, view.start) for _, view in rows)
    return b.node(put_rows, *tables, *(value for value, _ in rows), ids, reads=reads)


put_rows = register(PutRows())
