"""Whether the rows of a batch are computed apart from each other, so that a call may be cut into pieces and padded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
    counts, others = ({i.value.type.ints[0] for i in each.inputs if i.name in batch_inputs} for each in (graph, other))
    if len(counts) != 1 or len(graph.nodes) != len(other.nodes):
        return Rows.UNKNOWN
    known = _Known(counts.pop(), others, {i.value: axes_of.get(i.name) for i in graph.inputs})
    for node, twin in zip(graph.nodes, other.nodes):
        answer = Rows.UNKNOWN if node.op is not twin.op else known.add(node, twin)
        if answer is not None:
            return answer
    return known.answer(list(graph.outputs.values()))


class _Known:
    """What is known of the values of a graph, whose nodes are added in order with their twins of the other graph.

    ``axes``: the batch axis of each value, None without one. ``varying``: values without rows that have other elements
    for another number of rows. ``equal``: values without rows that are equal along the axis that follows the number of
    rows. ``mixed``: values that may have mixed rows.
    """

    def __init__(self, count: int, others: Collection[int], axes: dict[Value, int | None]) -> None:
        self.count, self.others, self.axes = count, others, axes
        self.varying: set[Value] = set()
        self.equal: set[Value] = set()
        self.mixed: set[Value] = set()

    def answer(self, results: Collection[Value]) -> Rows:
        """The answer for a graph with these results."""
        if not self.varying.isdisjoint(results):
            return Rows.TOGETHER
        first = all(self.axes[v] == 0 and plain(self.axes[v]) for v in results)
        return Rows.APART if first and self.mixed.isdisjoint(results) else Rows.UNKNOWN

    def add(self, node: Node, twin: Node) -> Rows | None:
        """Adds a node; the answer for the whole graph if the node decides it."""
        if _numbers_rows(node, self.count) and all(_numbers_rows(twin, each) for each in self.others):
            self.axes[node.out] = Own(0, 1)
            self.varying.add(node.out)
            return None
        axes = [self.axes[v] for v in node.inputs]
        if any(isinstance(axis, Own) for axis in axes):
            if self._add_of_numbers(node, twin, axes):
                return None
            axes = [None if isinstance(axis, Own) else axis for axis in axes]
        if not _same_numbers(node, twin) or not self.varying.isdisjoint(node.inputs):
            return self._add_varying(node, axes)
        self._note(node, self._axes_of_outputs(node, twin, axes))
        return None

    def _note(self, node: Node, axes: Sequence[int | None] | None) -> None:
        """Notes the axes of a node's outputs; None if rows may be mixed."""
        self.axes.update(zip(node.outputs, axes or (None,) * len(node.outputs)))
        self.mixed.update(node.outputs if axes is None else ())

    def _add_of_numbers(self, node: Node, twin: Node, axes: Sequence[int | None]) -> bool:
        """Adds a node that reads the numbers of rows, if each row of its outputs needs its own number only."""
        read = {v for v, axis in zip(node.inputs, axes) if not isinstance(axis, Own)}
        clear = read.isdisjoint(self.mixed) and read.isdisjoint(self.varying)
        if not clear or not _same_numbers(node, twin) or not _same_body(node, twin):
            return False
        own = row_axes(node, axes, self.count)
        if own is None or not all(map(_only_along, node.types, twin.types, own)):
            return False
        self.axes.update(zip(node.outputs, own))
        self.varying.update(v for v, axis in zip(node.outputs, own) if isinstance(axis, Own))
        return True

    def _add_varying(self, node: Node, axes: Sequence[int | None]) -> Rows | None:
        """Adds a node that reads something of another value for another number of rows."""
        has_rows = any(axis is not None for axis in axes)
        kept = has_rows and node.op.name != _INDEX and row_axes(node, axes, self.count) is not None
        if kept or not (has_rows or self.mixed.isdisjoint(node.inputs)):
            return Rows.TOGETHER
        if not has_rows:
            self.varying.update(node.outputs)
        self._note(node, None if has_rows else (None,) * len(node.outputs))
        return None

    def _axes_of_outputs(self, node: Node, twin: Node, axes: Sequence[int | None]) -> Sequence[int | None] | None:
        """The axes of the outputs of any other node; None if rows may be mixed."""
        if not self.mixed.isdisjoint(node.inputs) or not _same_body(node, twin):
            return None
        has_rows, reads_equal = any(axis is not None for axis in axes), not self.equal.isdisjoint(node.inputs)
        if has_rows or (node.op.random and node.types != twin.types):  # draws follow the rows
            found = row_axes(node, axes, self.count)
            if found is None and reads_equal:
                found = row_axes(node, _with_equal(node, twin, axes, self.equal), self.count)
            if found is None or all(map(_only_along, node.types, twin.types, found)):
                return found
            self.varying.update(() if has_rows else node.outputs)
            return None if has_rows else found
        if node.types != twin.types or reads_equal:
            stays = _keeps_equal(node) or _of_equal_rows(node, twin, self.count)
            (self.equal if stays else self.varying).update(node.outputs)
        return (None,) * len(node.outputs)


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


def _with_equal(node: Node, twin: Node, axes: Sequence[int | None], equal: set[Value]) -> list[int | None]:
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
