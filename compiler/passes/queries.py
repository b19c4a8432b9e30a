"""What passes ask about a graph: what makes a value, what it depends on, and who reads it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value
from dslc.compiler.ir.op import Op
from dslc.compiler.ir.scan import scan

#: The kinds of inputs that only training, a load or an assignment changes.
WEIGHTS: Final = (Kind.PARAM, Kind.BUFFER, Kind.CONSTANT)
#: Most bytes of a tensor that takes next to no time to read again, and less to compute than a kernel to launch.
SMALL_BYTES: Final = 1 << 16


def is_small(value: Value) -> bool:
    """Whether moving the value takes next to no time."""
    return value.type.bytes <= SMALL_BYTES


def producer_before(value: Value, skipped: Collection[str]) -> Node | Input:
    """The producer of a value, or, where that is a node of one of the ops ``skipped``, the producer of its first input,
    and so on."""
    made = value.producer
    while isinstance(made, Node) and made.op.name in skipped:
        made = made.inputs[0].producer
    return made


def before_reshapes(value: Value) -> Value:
    """The value that a chain of reshapes has in other shapes; the value itself without one."""
    made = value.producer
    while isinstance(made, Node) and made.op.name == "reshape":
        [value] = made.inputs
        made = value.producer
    return value


def moves_nothing(value: Value, perm: Sequence[int]) -> bool:
    """Whether a transpose of the value leaves all elements where they are in memory, since only axes of size 1 move."""
    wide = [axis for axis in perm if value.type.shape[axis] != 1]
    return wide == sorted(wide)


def has_one_reader(graph: Graph) -> Callable[[Value], bool]:
    """The predicate whether one node reads a value, once, and the value is no result or update of the graph."""
    readers, roots = graph.readers(), set(graph.roots)
    return lambda value: len(readers.get(value, ())) == 1 and value not in roots


def needed_after(
    first: Node, values: Iterable[Value], position: Mapping[Node, int], most: int, refused: Op | None = None
) -> tuple[Node, ...] | None:
    """The nodes after ``first`` that the values depend on, in order; None if they depend on ``first``, are more than
    ``most`` or include the op ``refused``."""
    found: set[Node] = set()
    stack = [v.producer for v in values]
    while stack:
        node = stack.pop()
        if not isinstance(node, Node) or node in found or position[node] < position[first]:
            continue
        if node is first or node.op is refused or len(found) == most:
            return None
        found.add(node)
        stack += [v.producer for v in node.inputs]
    return tuple(sorted(found, key=position.__getitem__))


def values_of_weights(graph: Graph) -> set[Value]:
    """The values that need nothing but parameters, buffers and constants, these included."""
    known = {source.value for source in graph.inputs if source.kind in WEIGHTS}
    for node in graph.nodes:
        if known.issuperset(node.inputs) and not node.op.random and node.op is not scan:
            known.update(node.outputs)
    return known
