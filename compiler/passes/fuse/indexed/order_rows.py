"""Orders the rows of large scatters, and of those to few ids, by their ids once for all scatters with the same ids.

Before::

    %1 = gather_rows %y, %source : f32[100000, 64]  # spread forward
    %2 = scatter_rows_add %1, %sink {count=9000} : f32[9000, 64]  # spread forward
    %3 = scatter_rows_add %w, %sink {count=9000} : f32[9000, 8]  # spread forward

After::

    %1, %2 = row_order %sink {count=9000} : i32[100000], i32[9001]  # spread forward
    %3 = gather_rows %source, %1 : i32[100000]  # spread forward
    %4 = ordered_rows %y, %3, %2 {how=sum, parts=1} : f32[9000, 64]  # spread forward
    %5 = ordered_rows %w, %1, %2 {how=sum, parts=1} : f32[9000, 8]  # spread forward

Rows that are weighted first are multiplied when they are added: of the gradient of ``weighted_rows``, the weights and
the rows are in memory, but not each product. Rows that were gathered are read where they are, unless that keeps more
bytes: a graph convolution has no tensor of its edges. Rows are combined in the order of their places, as before. Where
each element has its own index, the axis is made the last one first, so that elements are rows. GPU only: on a CPU a
thread goes through all rows of its columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Phase, Value
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.index.ordered import by_atomics, by_bins, by_lines, is_for_order
from dslc.compiler.passes.fuse.indexed.last_indices import last_indices
from dslc.compiler.passes.queries import before_reshapes

_MAX_SCANNED: Final = 64  # indices along an axis that each element of the result soon goes through
_WEIGHTED: Final = (DType.F64, DType.F32)  # of which a product is rounded to the dtype in which sums are computed
_ORDERED: Final = (DType.F64, DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32)


def order_rows(graph: Graph) -> Graph:
    """The graph with such nodes; the same object if it has no large scatter of rows."""
    orders: dict[tuple[object, ...], tuple[Value, ...]] = {}

    def rule(node: Node) -> Sequence[Value] | None:
        if (turned := _turned(node)) is not None:
            found = rule(turned)
            perm = _own_last(node)
            back = tuple(perm.index(axis) for axis in range(len(perm)))
            return (Builder().at(node, node.phase)(OPS["transpose"], found[0] if found else turned.out, perm=back),)
        scatter = _Scatter.of(node)
        return None if scatter is None else (scatter.ordered(orders),)

    changed = last_indices(graph).rewrite(rule)
    return graph if changed is graph else dataclasses.replace(changed, nodes=changed.live_nodes())


def _turned(node: Node) -> Node | None:
    """A scatter of many elements with an index each, of which the axis is the last one."""
    if node.op.name not in ("scatter_add", "scatter_reduce"):
        return None
    (*_, src, index), axis = node.inputs, int_attr(node.attrs, "axis")
    last, each = src.type.rank - 1, index.type.rank == src.type.rank
    if not each or axis == last or src.type.ints[axis] <= _MAX_SCANNED or src.type.dtype not in _ORDERED:
        return None
    b = Builder().at(node, node.phase)
    inputs = [b(OPS["transpose"], x, perm=_own_last(node)) for x in node.inputs]
    return b.node(node.op, *inputs, **{**node.attrs, "axis": last})


def _own_last(node: Node) -> tuple[int, ...]:
    """The axes, the node's own last."""
    axis = int_attr(node.attrs, "axis")
    return (*(other for other in range(node.types[0].rank) if other != axis), axis)


@dataclasses.dataclass(frozen=True)
class _Scatter:
    """A scatter of ``parts`` times ``length`` rows of ``inner`` elements to as many tables of ``count`` rows."""

    node: Node
    x: tuple[Value, ...]
    rows: Value
    ids: Value
    parts: int
    length: int
    count: int
    inner: int

    @staticmethod
    def of(node: Node) -> _Scatter | None:
        """That of a node, if it is one of many rows."""
        if node.op.name not in ("scatter_rows_add", "scatter_add", "scatter_reduce"):
            return None
        *x, rows, ids = node.inputs
        shape = node.types[0].ints
        axis = 0 if node.op.name == "scatter_rows_add" else int_attr(node.attrs, "axis")
        if node.op.name != "scatter_rows_add" and ids.type.rank != axis + 1:
            return None
        parts, count, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        length = prod(ids.type.ints) // max(1, parts)
        small = max(parts * length, parts * count, inner) < I32_PADDED_ELEMENTS
        single = ids.type.rank == rows.type.rank and node.op.name != "scatter_rows_add"
        if single and _has_own(node.attrs.get("how", "sum"), parts, length, count, rows.type.dtype):
            return None
        if not small or not is_for_order(length, count) or not prod(shape) or rows.type.dtype not in _ORDERED:
            return None
        return _Scatter(node, tuple(x), rows, ids, parts, length, count, inner)

    def ordered(self, orders: dict[tuple[object, ...], tuple[Value, ...]]) -> Value:
        """The same scatter, by an order; ``orders`` are known."""
        node, b = self.node, Builder().at(self.node, self.node.phase)
        ids, sizes = before_reshapes(self.ids), (self.parts, self.length)
        key = (ids, sizes, self.count, node.phase is Phase.MIRROR)
        if key not in orders:
            orders[key] = b.node(OPS["row_order"], _reshaped(b, ids, sizes), count=self.count).outputs
        places, starts = orders[key]
        rows, all = before_reshapes(self.rows), self.parts * self.length
        made = rows.producer
        if self.parts == 1 and isinstance(made, Node) and made.op.name == "gather_rows" and _reads_less(made, all):
            table, source = made.inputs
            read = (source, places, node.phase is Phase.MIRROR)
            if read not in orders:
                orders[read] = (b(OPS["gather_rows"], _reshaped(b, source, (all,)), places),)
            [places] = orders[read]
            rows, all = table, table.type.ints[0]
        if (weighted := self._weighted()) is not None:
            table, weight, taps = weighted
            parts = _reshaped(b, table, (all // taps, self.inner)), places, starts, _reshaped(b, weight, (all,))
            y = b(OPS["ordered_rows"], *parts, how="sum", parts=self.parts, taps=taps)
            return _reshaped(b, y, node.types[0].ints)
        given = _reshaped(b, rows, (all, self.inner))
        flat = (self.parts * self.count, self.inner)
        x = tuple(_reshaped(b, each, flat) for each in self.x)
        attrs = {"how": node.attrs.get("how", "sum"), "parts": self.parts}
        lost = {"lost": node.attrs["lost"]} if "lost" in node.attrs else {}
        y = b(OPS["ordered_rows"], given, places, starts, *x, **attrs, **lost)
        return _reshaped(b, y, node.types[0].ints)

    def _weighted(self) -> tuple[Value, Value, int] | None:
        """The table and the weights of rows that are products, [*L, 1, D] times [*L, taps, 1], and ``taps``."""
        made, dtype = before_reshapes(self.rows).producer, self.rows.type.dtype
        is_sum = self.node.attrs.get("how", "sum") == "sum" and "lost" not in self.node.attrs
        if (
            not is_sum
            or dtype not in _WEIGHTED
            or not isinstance(made, Node)
            or made.op.name != "mul"
            or made.types[0].rank < 2
        ):
            return None
        *lead, taps, columns = made.types[0].ints
        for table, weight in (made.inputs, made.inputs[::-1]):
            if (
                table.type.ints == (*lead, 1, columns)
                and weight.type.ints == (*lead, taps, 1)
                and columns == self.inner
            ):
                return table, weight, taps
        return None


def _has_own(how: object, parts: int, length: int, count: int, dtype: DType) -> bool:
    """Whether scatters of single elements to these need no order of all."""
    size = dtype.computed.itemsize
    own = by_lines(parts, length, count, size) or by_bins(parts, length, count, size)
    return own or by_atomics(str(how), dtype, parts * max(length, count))


def _reads_less(gather: Node, rows: int) -> bool:
    """Whether the rows of a table are fewer bytes than the ``rows`` gathered of it, by one i32 each."""
    table, ids = gather.input_types
    return prod(ids.ints) == rows and ids.dtype is DType.I32 and table.bytes <= gather.types[0].bytes


def _reshaped(b: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    value = before_reshapes(value)
    return value if value.type.ints == shape else b(OPS["reshape"], value, shape=shape)
