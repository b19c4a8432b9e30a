"""The graph: immutable nodes in topological order, typed values, named inputs, outputs and state updates.

Nodes and values are compared by identity. A rewrite creates new nodes; untouched nodes stay the same objects.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from dslc.compiler.ir.sizes import Poly, Size, bind
from dslc.compiler.ir.types import DType, TensorType
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Op
    from dslc.compiler.ir.stored import Stored

# Attributes are plain data; sizes may be symbolic until an entry is cut.
Attr: TypeAlias = "int | float | bool | str | Poly | DType | Body | tuple[Attr, ...]"
Attrs: TypeAlias = Mapping[str, Attr]
NO_ATTRS: Attrs = MappingProxyType({})


class Phase(enum.Enum):
    FORWARD = "forward"
    GRADIENT = "gradient"  #: a gradient that the model or its loss uses; forward as soon as it has a dtype
    BACKWARD = "backward"
    UPDATE = "update"
    MIRROR = "mirror"  #: a forward value recomputed for the backward pass


class Kind(enum.Enum):
    """The role of a graph input."""

    DATA = "data"
    PARAM = "param"
    BUFFER = "buffer"
    OPTIMIZER = "optimizer"
    STATE = "state"
    SCALAR = "scalar"
    CONSTANT = "constant"  #: its numbers are in the artifact
    PREPARED = "prepared"  #: computed from the weights before the first call that reads it


@dataclass(eq=False, slots=True)
class Value:
    """One tensor: output ``index`` of ``producer``."""

    producer: Node | Input = field(repr=False)
    index: int
    type: TensorType


#: The origin of a node: its path in the model, and its place in the source.
Origin: TypeAlias = "tuple[str, Span | None]"


class Input:
    """A named input. ``value`` is its tensor; ``stored``: the numbers of a constant."""

    __slots__ = ("kind", "name", "span", "stored", "value")

    def __init__(
        self, name: str, kind: Kind, type: TensorType, span: Span | None = None, stored: Stored | None = None
    ) -> None:
        self.name = name
        self.kind = kind
        self.span = span
        self.stored = stored
        self.value = Value(self, 0, type)

    def of_type(self, type: TensorType) -> Input:
        """A new input that differs in its type."""
        return Input(self.name, self.kind, type, self.span, self.stored)

    def __repr__(self) -> str:
        return f"Input({self.name}: {self.value.type})"


class Node:
    """An op applied to values. ``name`` is the path in the model, ``span`` the place in the source. ``origins``: for a
    node that passes merged from several ones, the origins of all parts; else empty."""

    __slots__ = ("attrs", "inputs", "name", "op", "origins", "outputs", "phase", "span", "types")

    def __init__(
        self,
        op: Op,
        inputs: tuple[Value, ...],
        types: tuple[TensorType, ...],
        attrs: Attrs = NO_ATTRS,
        *,
        name: str = "",
        span: Span | None = None,
        phase: Phase = Phase.FORWARD,
        origins: tuple[Origin, ...] = (),
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = (
            attrs if isinstance(attrs, MappingProxyType) else MappingProxyType(dict(attrs)) if attrs else NO_ATTRS
        )
        self.name = name
        self.span = span
        self.phase = phase
        self.origins = origins
        self.types = tuple(types)
        self.outputs = tuple([Value(self, i, t) for i, t in enumerate(types)])

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple([v.type for v in self.inputs])

    @property
    def out(self) -> Value:
        """The only output."""
        assert len(self.outputs) == 1, f"{self.op.name} has {len(self.outputs)} outputs"
        return self.outputs[0]

    def with_inputs(self, inputs: tuple[Value, ...]) -> Node:
        """This node with other input values of the same types; the same object if nothing changes."""
        return self if inputs == self.inputs else self.replaced(inputs=inputs)

    def replaced(
        self,
        *,
        op: Op | None = None,
        inputs: tuple[Value, ...] | None = None,
        types: tuple[TensorType, ...] | None = None,
        attrs: Attrs | None = None,
        phase: Phase | None = None,
        origins: tuple[Origin, ...] | None = None,
    ) -> Node:
        """A new node with this one's name and span, and with its other parts unless they are given."""
        return Node(
            self.op if op is None else op,
            self.inputs if inputs is None else inputs,
            self.types if types is None else types,
            self.attrs if attrs is None else attrs,
            name=self.name,
            span=self.span,
            phase=self.phase if phase is None else phase,
            origins=self.origins if origins is None else origins,
        )

    def reading(self, new: Mapping[Value, Value]) -> Node:
        """This node with its inputs replaced by ``new``, of the same types; the same object if it reads none of
        them."""
        if new.keys().isdisjoint(self.inputs):
            return self
        return self.with_inputs(tuple([new.get(v, v) for v in self.inputs]))

    def __repr__(self) -> str:
        return f"Node({self.op.name} {self.name})"


def made_by(value: Value, op: str) -> Node | None:
    """The node that makes a value, if it is a node of this op."""
    made = value.producer
    return made if isinstance(made, Node) and made.op.name == op else None


def origins_of(nodes: Iterable[Node]) -> tuple[Origin, ...]:
    """The origins of several nodes, each once."""
    return tuple(dict.fromkeys(origin for n in nodes for origin in n.origins or ((n.name, n.span),)))


@dataclass(frozen=True)
class Graph:
    """``nodes`` are in topological order: a value precedes its readers. ``updates``: (state input, new value)."""

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: Mapping[str, Value]
    updates: tuple[tuple[Input, Value], ...] = ()

    @property
    def roots(self) -> list[Value]:
        """Every value that must be computed: outputs, then updates."""
        return [*self.outputs.values(), *(v for _, v in self.updates)]

    def readers(self) -> dict[Value, list[Node]]:
        """Value -> the nodes that read it, in order, once per node."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                found.setdefault(value, []).append(node)
        return found

    def live_nodes(self) -> tuple[Node, ...]:
        """The nodes that the roots depend on, in order."""
        return order(self.roots)

    def rewrite(self, rule: Callable[[Node], Sequence[Value] | Node | None]) -> Graph:
        """Applies ``rule`` to every node in order, after its inputs were replaced.

        The rule returns None (keep), a Node, or the values that replace the node's outputs. New nodes may read any
        earlier value; the result contains the nodes that the roots need.
        """
        new: dict[Value, Value] = {}
        changed = False
        for node in self.nodes:
            current = node.reading(new)
            got = rule(current)
            outputs = current.outputs if got is None else got.outputs if isinstance(got, Node) else tuple(got)
            assert len(outputs) == len(node.outputs), f"a rule changed the number of outputs of {node}"
            for old, value in zip(node.outputs, outputs):
                if old is not value:
                    new[old] = value
                    changed = True
        return self.replace_values(new) if changed else self

    def replace_values(self, new: Mapping[Value, Value]) -> Graph:
        """The graph with replaced roots, in a new order; ``new`` must already have been applied to the readers."""
        outputs = {name: new.get(v, v) for name, v in self.outputs.items()}
        updates = tuple((i, new.get(v, v)) for i, v in self.updates)
        return Graph(self.inputs, order([*outputs.values(), *(v for _, v in updates)]), outputs, updates)

    def bind(self, values: Mapping[str, int]) -> Graph:
        """The graph for these values of the dims: sizes in shapes and attributes become ints."""
        inputs = {i: i.of_type(i.value.type.bind(values)) for i in self.inputs}
        new: dict[Value, Value] = {old.value: fresh.value for old, fresh in inputs.items()}
        nodes = []
        for node in self.nodes:
            bound = Node(
                node.op,
                tuple(new[v] for v in node.inputs),
                tuple(t.bind(values) for t in node.types),
                {k: bind_attr(v, values) for k, v in node.attrs.items()},
                name=node.name,
                span=node.span,
                phase=node.phase,
            )
            nodes.append(bound)
            new.update(zip(node.outputs, bound.outputs))
        outputs = {name: new[v] for name, v in self.outputs.items()}
        updates = tuple((inputs[i], new[v]) for i, v in self.updates)
        return Graph(tuple(inputs.values()), tuple(nodes), outputs, updates)


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """A graph as an attribute: the body of a loop (``scan.py``). Compared by identity, as nodes are."""

    graph: Graph

    def __repr__(self) -> str:
        return f"Body({len(self.graph.nodes)} nodes)"


def bind_attr(attr: Attr, values: Mapping[str, int]) -> Attr:
    if isinstance(attr, Poly):
        return bind(attr, values)
    if isinstance(attr, Body):
        return Body(attr.graph.bind(values))
    if isinstance(attr, tuple):
        return tuple(bind_attr(a, values) for a in attr)
    return attr


def order(roots: Iterable[Value]) -> tuple[Node, ...]:
    """The nodes that the roots depend on, in depth-first order, which is topological. Iterative.

    Deterministic: the order depends only on the structure. A chain may have any length.
    """
    done: set[Node] = set()
    result: list[Node] = []
    for root in roots:
        if not isinstance(root.producer, Node) or root.producer in done:
            continue
        stack: list[tuple[Node, Iterator[Value]]] = [(root.producer, iter(root.producer.inputs))]
        done.add(root.producer)
        while stack:
            node, inputs = stack[-1]
            for value in inputs:
                producer = value.producer
                if isinstance(producer, Node) and producer not in done:
                    done.add(producer)
                    stack.append((producer, iter(producer.inputs)))
                    break
            else:
                result.append(node)
                stack.pop()
    return tuple(result)


def shape_attr(shape: Sequence[Size]) -> tuple[Attr, ...]:
    """A shape as an attribute."""
    return tuple(shape)
