"""Whether the rows of a batch are computed apart from each other, so that a call may be cut into pieces and padded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from dslc.compiler.check import entries
from dslc.compiler.check.model import Checked
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.row_axes import Own, plain, row_axes
from dslc.compiler.ir.scan import body_of, scan
from dslc.compiler.ir.sizes import Dim, Poly
from dslc.compiler.ir.types import TensorType

#: The op of ``x[arange(B), ids]``: the number of a row may choose this row.
_INDEX: Final = "joint_index"


class Rows(Enum):
    """``APART``: each row of the results depends only on the same row of the inputs. ``TOGETHER``: results depend on
    the number of rows or on a row's number, so a call must not be cut into pieces. ``UNKNOWN``: rows may be mixed."""

    APART = "apart"
    TOGETHER = "together"
    UNKNOWN = "unknown"


def rows_of_batch(
    graph: Graph, other: Graph, batch_inputs: set[str], states: Mapping[str, int] = MappingProxyType({})
) -> Rows:
    """How the rows of a graph belong together (see ``Op.rows``; sizes are ints).

    ``other``: the same graph for another number of rows, which tells the tensors whose sizes or values follow that
    number. ``batch_inputs``: names of the inputs whose axis 0 is the batch; ``states``: that axis of each state which
    has it. States have their initial values.
    """
    axes_of = {**states, **dict.fromkeys(batch_inputs, 0)}
    where: dict[Value, int | None] = {i.value: axes_of.get(i.name) for i in graph.inputs}
    counts = {i.value.type.ints[0] for i in graph.inputs if i.name in batch_inputs}
    if len(counts) != 1 or len(graph.nodes) != len(other.nodes):
        return Rows.UNKNOWN
    [count], others = counts, {i.value.type.ints[0] for i in other.inputs if i.name in batch_inputs}
    varying: set[Value] = set()  # have no rows, but other elements for another number of rows
    equal: set[Value] = set()  # have no rows, and are equal along the axis that follows the number of rows
    mixed: set[Value] = set()  # may have mixed rows
    for node, twin in zip(graph.nodes, other.nodes):
        if node.op is not twin.op:
            return Rows.UNKNOWN
        axes = [where[v] for v in node.inputs]
        if _numbers_rows(node, count) and all(_numbers_rows(twin, each) for each in others):
            where[node.out] = Own(0, 1)
            varying.add(node.out)
            continue
        if any(isinstance(axis, Own) for axis in axes):
            read = {v for v, axis in zip(node.inputs, axes) if not isinstance(axis, Own)}
            clear = read.isdisjoint(mixed) and read.isdisjoint(varying)
            if clear and _same_numbers(node, twin) and _same_body(node, twin):
                own = row_axes(node, axes, count)
                if own is not None and all(map(_only_along, node.types, twin.types, own)):
                    where.update(zip(node.outputs, own))
                    varying.update(v for v, axis in zip(node.outputs, own) if isinstance(axis, Own))
                    continue
            axes = [None if isinstance(axis, Own) else axis for axis in axes]
        apart, known = any(axis is not None for axis in axes), mixed.isdisjoint(node.inputs)
        found: tuple[int | None, ...] | None = (None,) * len(node.outputs)
        if not _same_numbers(node, twin) or not varying.isdisjoint(node.inputs):
            kept = apart and node.op.name != _INDEX and row_axes(node, axes, count) is not None
            if kept or not (known or apart):
                return Rows.TOGETHER
            if apart:
                found = None
            varying.update(() if apart else node.outputs)
        elif not known or not _same_body(node, twin):
            found = None
        elif apart or (node.op.random and node.types != twin.types):  # draws follow the rows
            found = row_axes(node, axes, count)
            if found is None and not equal.isdisjoint(node.inputs):
                found = row_axes(node, _with_equal(node, twin, axes, equal), count)
            if found is not None and not all(map(_only_along, node.types, twin.types, found)):
                varying.update(() if apart else node.outputs)
                found = None if apart else found
        elif node.types != twin.types or not equal.isdisjoint(node.inputs):
            (equal if _keeps_equal(node) or _of_equal_rows(node, twin, count) else varying).update(node.outputs)
        mixed.update(node.outputs if found is None else ())
        where.update(zip(node.outputs, found or (None,) * len(node.outputs)))
    results = graph.outputs.values()
    if not varying.isdisjoint(results):
        return Rows.TOGETHER
    return (
        Rows.APART
        if mixed.isdisjoint(results) and all(where[v] == 0 and plain(where[v]) for v in results)
        else Rows.UNKNOWN
    )


def _numbers_rows(node: Node, count: int) -> bool:
    """True for ``arange(B)``."""
    attrs = node.attrs
    return node.op.name == "arange" and (attrs["start"], attrs["step"], attrs["shape"]) == (0, 1, (count,))


def _only_along(one: TensorType, two: TensorType, axis: int | None) -> bool:
    """True if two types differ in no other axis than ``axis``."""
    return one.rank == two.rank and all(a == b or at == axis for at, (a, b) in enumerate(zip(one.shape, two.shape)))


def _keeps_equal(node: Node) -> bool:
    """True if the outputs are equal along the axes that follow the number of rows, as the inputs are."""
    return node.op.name in ("full", "expand", "transpose") or isinstance(node.op, Pointwise)


def _of_equal_rows(node: Node, twin: Node, count: int) -> bool:
    """True if each input has one axis at most that follows the number of rows, and the op computes each row of the
    outputs from the same rows of the inputs: equal rows give equal rows."""
    axes: list[int | None] = []
    for one, two in zip(node.input_types, twin.input_types):
        differ = _differing(one, two)
        if differ is None or len(differ) > 1:
            return False
        axes.append(differ[0] if differ else None)
    return bool(axes) and node.op.rows_of(node, axes, count) is not None


def _differing(one: TensorType, two: TensorType) -> list[int] | None:
    """The axes whose sizes differ; None if the ranks do."""
    return [axis for axis, (a, b) in enumerate(zip(one.shape, two.shape)) if a != b] if one.rank == two.rank else None


def _with_equal(node: Node, twin: Node, axes: list[int | None], equal: set[Value]) -> list[int | None]:
    """The axes, with that of the equal rows of an input which has no others, such as learnt queries."""
    found = [*axes]
    for index, value in enumerate(node.inputs):
        differ = _differing(node.input_types[index], twin.input_types[index]) if value in equal else None
        if differ is not None and len(differ) == 1:
            [found[index]] = differ
    return found


def _same_numbers(node: Node, twin: Node) -> bool:
    """False if an attribute other than a size differs, such as the value of ``x / B``."""
    if node.op.name == "full":
        return node.attrs["value"] == twin.attrs["value"]
    return all(value == twin.attrs[name] for name, value in node.attrs.items() if isinstance(value, float | bool | str))


def _same_body(node: Node, twin: Node) -> bool:
    """False if a loop makes tensors that follow the number of rows and are not equal for all of them."""
    return node.op is not scan or all(
        inner.op is other.op and _same_numbers(inner, other) and (inner.types == other.types or _known(inner))
        for inner, other in _paired(node, twin)
    )


def _known(inner: Node) -> bool:
    return bool(inner.inputs) or _keeps_equal(inner)


def _paired(node: Node, twin: Node) -> Iterator[tuple[Node, Node]]:
    """The nodes of the bodies of two loops, and of the loops in them; none are paired if their numbers differ."""
    bodies = body_of(node.attrs).nodes, body_of(twin.attrs).nodes
    for inner, other in zip(*bodies, strict=True):
        yield inner, other
        if inner.op is scan and other.op is scan:
            yield from _paired(inner, other)


def batch_rows(checked: Checked) -> Rows:
    """How the rows of `predict` belong together, by its graphs at two sizes of the batch."""
    if checked.batch is None:
        return Rows.UNKNOWN
    sizes = {d.name: d.default for d in checked.dims}
    graph, other = (entries.predict(checked, {**sizes, checked.batch.name: n}).graph for n in _two_sizes(checked.batch))
    batched = {
        i.name for i in checked.model_inputs if i.value.type.shape and str(i.value.type.shape[0]) == checked.batch.name
    }
    states: dict[str, int] = {}
    for name, state in checked.states.items():
        shape = state.input.value.type.shape
        axes = [axis for axis, size in enumerate(shape) if isinstance(size, Poly) and checked.batch in size.dims]
        if len(axes) > 1 or any(str(shape[axis]) != checked.batch.name for axis in axes):
            return Rows.UNKNOWN
        if axes:
            states[name] = axes[0]
    return rows_of_batch(graph, other, batched, states)


def _two_sizes(batch: Dim) -> tuple[int, int]:
    """The default size of the batch and another one, with its divisors if the bounds allow."""
    size = batch.default
    for other in (2 * size, size // 2 if size % 2 == 0 else size + 1, size + 1, size - 1):
        if batch.low <= other <= batch.high and other != size:
            return size, other
    return size, 2 * size
