"""Says which pointwise convolutions keep channels first, where moving them last takes longer than it saves.

A convolution of window 1 and stride 1 multiplies each image ``[C, places]`` by its weight ``[O, C]``: a product of
matrices in either layout. So is the gradient of the image; the weight's is the sum of such products over the images.
Convolutions that values with channels last connect are decided together, and only if all of them are of this kind: any
other needs channels last. Compared are the modelled seconds of the products, and of the transposes where such values
meet others. Only for 16 bits, and for runs of places and channels that tensor cores read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Final, TypeAlias

from dslc.compiler.cost import Machine, seconds
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.spatial.channels_last import LAST, last_type, to_last
from dslc.compiler.ops.spatial.conv import Convolution
from dslc.compiler.passes.lower.layout.wide_convolutions import run_of
from dslc.compiler.passes.queries import producer_before

_VIEWS: Final = ("reshape", "slice")
#: Ops that write or read their tensors in any order of axes: attention takes views, a transpose joins another one.
_ANY_ORDER: Final = ("transpose", "expand", "sdpa", "sdpa_grad")
_Readers: TypeAlias = Mapping[Value, list[Node]]


@dataclass(frozen=True)
class Turned:
    """What a graph would be with all convolutions turned. ``last``: the values with channels last; ``computed``: those
    of them that are computed so, not transposed; ``first``: the values with channels first again."""

    last: Collection[Value]
    computed: Collection[Value]
    first: Collection[Value]


@dataclass
class _Part:
    """Connected convolutions, and the seconds of both ways."""

    convolutions: list[Node] = field(default_factory=list)
    with_first: float = 0.0
    with_last: float = 0.0


def kept_first(graph: Graph, wanted: Callable[[Node], bool], turned: Turned, machine: Machine) -> frozenset[Node]:
    """The convolutions of a graph, of those ``wanted`` with channels last, that are faster with channels first."""
    names = _connected(graph, turned)
    parts: dict[object, _Part] = {}
    for node in graph.nodes:
        if isinstance(node.op, Convolution) and node.out in turned.computed and wanted(node):
            parts.setdefault(names(node.out), _Part()).convolutions.append(node)
    able = {name: part for name, part in parts.items() if all(map(is_pointwise, part.convolutions))}
    if not able:
        return frozenset()
    for part in able.values():
        part.with_first = sum(seconds(product(Builder(), each, each.inputs), machine) for each in part.convolutions)
        part.with_last = sum(seconds(_last(each), machine) for each in part.convolutions)
    readers, roots = graph.readers(), set(graph.roots)
    for value in dict.fromkeys((*turned.last, *turned.first)):
        if (found := able.get(names(value))) is None or not _is_moved(value, turned):
            continue
        if _is_made_in_any_order(value) if value not in turned.computed else _is_read_so(value, turned, readers, roots):
            found.with_first += _moving(value, machine)
        else:
            found.with_last += _moving(value, machine)
    return frozenset(n for part in able.values() if part.with_first < part.with_last for n in part.convolutions)


def is_pointwise(node: Node) -> bool:
    """Whether a convolution, or a gradient of it, is a product that tensor cores compute in either layout."""
    assert isinstance(node.op, Convolution)
    image, weight, _ = (type.ints for type in node.op.tensors(node))
    ones = (1,) * (len(weight) - 2)
    plain = weight[2:] == ones == int_tuple(node.attrs, "stride") and not any(int_tuple(node.attrs, "pad"))
    runs = not any(size % run_of(node) for size in (*weight[:2], prod(image[2:])))
    return plain and runs and int_attr(node.attrs, "groups") == 1 and node.types[0].dtype.is_half and prod(image) > 0


def directly(b: Builder, node: Node, inputs: Iterable[Value]) -> Value:
    """The result of a pointwise convolution or of its gradient, of inputs with channels first."""
    return b(OPS["reshape"], product(b, node, inputs).out, shape=node.types[0].shape)


def product(b: Builder, node: Node, inputs: Iterable[Value]) -> Node:
    """The product of matrices that computes it. The weight's gradient stays a convolution's for several images: their
    products are added before they are rounded."""
    first, second = inputs
    if node.op.name == "conv_wgrad":
        if first.type.ints[0] > 1:
            return b.node(node.op, first, second, **node.attrs)
        x, dy = _matrices(b, first), _matrices(b, second)
        return b.node(OPS["matmul"], dy, x, transpose_a=False, transpose_b=True)
    weight = b(OPS["reshape"], second, shape=second.type.shape[:2])
    back = node.op.name == "conv_dgrad"
    return b.node(OPS["matmul"], weight, _matrices(b, first), transpose_a=back, transpose_b=False)


def _matrices(b: Builder, image: Value) -> Value:
    """Images ``[B, C, *space]`` as ``[B, C, places]``, a single one as ``[C, places]``."""
    batch, channels, *space = image.type.ints
    return b(OPS["reshape"], image, shape=(*((batch,) if batch > 1 else ()), channels, prod(space)))


def _last(node: Node) -> Node:
    """The convolution with channels last, of values without producers of their own."""
    inputs = tuple(Value(v.producer, v.index, last_type(v.type)) for v in node.inputs)
    types = tuple(map(last_type, node.types))
    return Node(LAST[node.op], inputs, types, node.attrs, name=node.name, span=node.span, phase=node.phase)


def _connected(graph: Graph, turned: Turned) -> Callable[[Value], Value]:
    """A name for each value, which those share that turned nodes connect."""
    above: dict[Value, Value] = {}

    def name(value: Value) -> Value:
        while value in above:
            above[value] = value = above.get(above[value], above[value])
        return value

    for node in graph.nodes:
        made = [value for value in node.outputs if value in turned.computed]
        for value in (*made, *(v for v in node.inputs if v in turned.last)) if made else ():
            if name(value) is not name(made[0]):
                above[name(value)] = name(made[0])
    return name


def _is_moved(value: Value, turned: Turned) -> bool:
    """Whether a transpose moves its channels last, or first again."""
    return value in turned.first if value in turned.computed else value in turned.last


def _is_made_in_any_order(value: Value) -> bool:
    """Whether what makes a value writes any order of axes: it moves only if convolutions read channels first."""
    made = producer_before(value, _VIEWS)
    return isinstance(made, Node) and made.op.name in _ANY_ORDER


def _is_read_so(value: Value, turned: Turned, readers: _Readers, roots: Collection[Value]) -> bool:
    """Whether all that reads a value with channels first would read any order of axes."""
    left = [value]
    while left:
        each = left.pop()
        if each in roots:
            return False
        for reader in readers.get(each, ()):
            if each is value and any(v in turned.computed for v in reader.outputs):
                continue  # it reads the value as it is
            if reader.op.name in _VIEWS:
                left.append(reader.out)
            elif reader.op.name not in _ANY_ORDER and not _turns_by_itself(reader, each):
                return False
    return True


def _turns_by_itself(reader: Node, value: Value) -> bool:
    """Whether a product of matrices takes a value with its last two axes swapped."""
    return reader.op.name == "matmul" and value.type.rank == 3


def _moving(value: Value, machine: Machine) -> float:
    """Seconds of a transpose; none if only axes of size 1 move."""
    shape, perm = value.type.ints, to_last(value.type.rank)
    wide = [axis for axis in perm if shape[axis] != 1]
    return 0.0 if wide == sorted(wide) else seconds(Builder().node(OPS["transpose"], value, perm=perm), machine)
