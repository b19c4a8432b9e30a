"""Writes few rows of a table in place, such as a token into a cache; a scatter of rows would move the whole table.

Before, for one token of a 16-bit model::

    %1 = scatter_reduce %none, %places, %at {how="max", ...} : i32[1024]  # index_put forward
    %2 = ge %1, 0 : b1[1024]  # index_put forward
    %3 = gather_rows %qkv, %1 or 0 : bf16[1024, 12, 64]  # index_put forward
    %4 = cast %keys {dtype=bf16} : bf16[1024, 12, 64]  # index_put forward
    %5 = where %2, %3, %4 : bf16[1024, 12, 64]  # index_put forward
    %6 = cast %5 {dtype=f32} : f32[1024, 12, 64]  # keys update

After::

    %6, %7 = put_rows %keys, %values, %qkv, %qkv, %at {reads=...} : f32[1024, 12, 64], f32[1024, 12, 64]
    %5 = cast %6 {dtype=bf16} : bf16[1024, 12, 64]  # index_put forward

The memory plan gives the new value of a state the place of the old one, so only the rows move. Rows are read where they
lie. A state that is read and written in 16 bits has its rows rounded to them when they are put, and others stay as they
are. Puts at the same places that do not depend on each other are one node. GPU only, where such kernels are; linear in
nodes and reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value, made_by, origins_of
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.strided_attention import View, whole
from dslc.compiler.ops.index.put_rows import MOST_ROWS, MOST_TABLES, put
from dslc.compiler.passes.lower.layout.attention_views import moved
from dslc.compiler.passes.queries import needed_after
from dslc.compiler.passes.rebuild import reading

_NEAR = 64  # nodes that may come between puts that are joined


def put_rows(graph: Graph) -> Graph:
    """The graph with such nodes; the same object if there are none."""
    found = [one for node in graph.nodes if (one := _matched(node)) is not None]
    if not found:
        return graph
    instead: dict[Value, Value] = {}
    for group in _groups(found, {node: number for number, node in enumerate(graph.nodes)}):
        nodes = [one.node for one in group]
        b = Builder().at(nodes[0], nodes[0].phase)
        tables = [one.table for one in group]
        made = put(b, tables, [one.rows for one in group], group[0].ids).replaced(origins=origins_of(nodes))
        for one, y in zip(group, made.outputs):
            old = one.node.out
            shaped = y if y.type.dtype is old.type.dtype else b(OPS["cast"], y, dtype=old.type.dtype)
            instead[old] = shaped
            for source, value in graph.updates:
                if source is one.state and _is_widened(value, old):
                    instead[value] = y if y.type == value.type else b(OPS["reshape"], y, shape=value.type.ints)
    return reading(graph, instead)


@dataclass(frozen=True)
class _Put:
    """A ``where`` that puts rows, each a view of a value, into a table. ``state``: the table is this state, which the
    node reads in 16 bits."""

    node: Node
    table: Value
    rows: tuple[Value, View]
    ids: Value
    state: Input | None

    @property
    def kind(self) -> tuple[object, ...]:
        """Puts of one kind have one kernel."""
        value, view = self.rows
        return self.table.type, self.ids, value.type.dtype, view.strides, self.node.phase


def _groups(puts: list[_Put], position: Mapping[Node, int]) -> list[list[_Put]]:
    found: list[list[_Put]] = []
    last: dict[tuple[object, ...], list[_Put]] = {}
    for one in puts:
        group = last.get(one.kind)
        if group is not None and len(group) < MOST_TABLES and all(_apart(other, one, position) for other in group):
            group.append(one)
        else:
            found.append([one])
            last[one.kind] = found[-1]
    return found


def _apart(first: _Put, other: _Put, position: Mapping[Node, int]) -> bool:
    """Whether the other put reads nothing that the first one gives, and not its table."""
    same = first.table is other.table
    return not same and needed_after(first.node, (other.rows[0], other.table), position, _NEAR) is not None


def _matched(node: Node) -> _Put | None:
    """The put of a ``where`` as the function ``scatter`` writes it for rows."""
    if node.op.name != "where" or node.phase.value in ("backward", "update"):
        return None
    known, gathered, x = node.inputs
    there, rows = made_by(_before_reshapes(known), "ge"), made_by(gathered, "gather_rows")
    if there is None or rows is None or x.type != node.types[0] or not x.type.rank:
        return None
    last, place = made_by(there.inputs[0], "scatter_reduce"), made_by(rows.inputs[1], "where")
    if last is None or place is None or last.inputs[0].type.ints != x.type.ints[:1] or last.attrs["how"] != "max":
        return None
    none, places, ids = last.inputs
    count = ids.type.ints[0] if ids.type.rank == 1 else 0
    if not 0 < count <= MOST_ROWS or rows.inputs[0].type.ints != (count, *x.type.ints[1:]):
        return None
    if not (_is_full(none, -1) and _is_full(there.inputs[1], 0) and _counts(places)):
        return None
    if made_by(place.inputs[0], "ge") is not there or place.inputs[1] is not last.out:
        return None
    if known.type.ints != (x.type.ints[0], *(1 for _ in x.type.ints[1:])):
        return None
    if last.attrs.get("lost") != (count if x.type.dtype.is_float else None):
        return None
    state = _state_of(x)
    table = x if state is None else _reshaped(node, state.value, x)
    return _Put(node, table, _source(rows.inputs[0]), ids, state)


def _is_full(value: Value, number: int) -> bool:
    made = made_by(value, "full")
    return made is not None and made.attrs["value"] == number


def _counts(value: Value) -> bool:
    """Whether a vector is 0, 1, 2, ..."""
    made = made_by(value, "arange")
    return made is not None and (made.attrs["start"], made.attrs["step"]) == (0, 1)


def _before_reshapes(value: Value) -> Value:
    while (made := made_by(value, "reshape")) is not None:
        value = made.inputs[0]
    return value


def _state_of(x: Value) -> Input | None:
    """The wider state whose cast the table is."""
    cast = made_by(_before_reshapes(x), "cast")
    if cast is None or not x.type.dtype.is_float:
        return None
    source = _before_reshapes(cast.inputs[0]).producer
    if not isinstance(source, Input) or source.kind is not Kind.STATE or not source.value.type.dtype.is_float:
        return None
    return source if source.value.type.dtype.itemsize > x.type.dtype.itemsize else None


def _reshaped(node: Node, state: Value, like: Value) -> Value:
    if state.type.ints == like.type.ints:
        return state
    return Builder().at(node, node.phase)(OPS["reshape"], state, shape=like.type.ints)


def _is_widened(value: Value, of: Value) -> bool:
    """Whether the new value of a state is a put's result in the state's dtype."""
    cast = made_by(_before_reshapes(value), "cast")
    return cast is not None and _before_reshapes(cast.inputs[0]) is of


def _source(rows: Value) -> tuple[Value, View]:
    """The rows as a view of the furthest tensor that they are moved from."""
    best, way, source = (rows, whole(rows.type.ints)), list[Node](), rows
    while isinstance(made := source.producer, Node) and made.op.name in ("reshape", "transpose", "slice"):
        if made.op.name == "slice" and set(int_tuple(made.attrs, "steps")) != {1}:
            break
        way.append(made)
        source = made.inputs[0]
        view: View | None = whole(source.type.ints)
        for node in reversed(way):
            view = view and moved(view, node)
        if view is not None:
            best = (source, view)
    return best
