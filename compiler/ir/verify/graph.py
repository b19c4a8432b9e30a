"""Proves that a graph is sound: order, types, updates."""

from __future__ import annotations

from collections.abc import Iterable

from dslc.compiler.ir.bodies.chain import chain, chained
from dslc.compiler.ir.bodies.scans import scans
from dslc.compiler.ir.fault import PackageFault
from dslc.compiler.ir.graph import Attrs, Graph, Input, Kind, Node, Value
from dslc.compiler.ir.op import Mismatch, Op
from dslc.compiler.ir.scan import body_of, scan
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ir.verify.error import VerifyError, fault_at


class Inferred:
    """Types inferred for earlier graphs, reused when the next graph is verified: most nodes of a pass are those of the
    pass before it, and most others have the op and attributes of one of these. ``sound``: the nodes of the last graph,
    all of which fit their inputs."""

    def __init__(self) -> None:
        self.sound: frozenset[Node] = frozenset()
        # keyed by the identity of op and attributes, which stays valid because the values hold references to them
        self._known: dict[tuple[int, int, tuple[TensorType, ...]], tuple[Op, Attrs, tuple[TensorType, ...]]] = {}

    def types(self, node: Node) -> tuple[TensorType, ...]:
        """The node's types, inferred by its op. Raises Mismatch."""
        read = node.input_types
        key = id(node.op), id(node.attrs), read
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = node.op, node.attrs, tuple(node.op.infer(read, node.attrs))
        return found[2]


def verify_graph(graph: Graph, inferred: Inferred | None = None) -> None:
    """Checks that every value precedes its readers, every type is the one that its op infers, and updates fit their
    states. ``inferred``: the types inferred for earlier graphs.

    Raises VerifyError naming the node and its neighbours. Linear in nodes.
    """
    inferred = inferred or Inferred()
    known: set[Value] = set()
    names: set[str] = set()
    for source in graph.inputs:
        if source.name in names:
            raise VerifyError(f"two inputs are named {source.name}")
        names.add(source.name)
        known.add(source.value)
    for node in graph.nodes:
        if not known.issuperset(node.inputs):
            at = next(i for i, value in enumerate(node.inputs) if value not in known)
            raise fault_at(graph, node, f"input {at} is not computed before it is read")
        if node not in inferred.sound:
            _verify_node(graph, node, inferred)
        known.update(node.outputs)
    inferred.sound = frozenset(graph.nodes)
    for name, value in graph.outputs.items():
        if value not in known:
            raise VerifyError(f"output {name} is not computed by the graph")
    updated: set[Input] = set()
    for source, value in graph.updates:
        if source.value not in known or source.kind in (Kind.DATA, Kind.SCALAR, Kind.CONSTANT):
            raise VerifyError(f"{source.name} is updated, but is no state of this graph")
        if source in updated:
            raise VerifyError(f"{source.name} is updated twice")
        updated.add(source)
        if value not in known:
            raise VerifyError(f"the new value of {source.name} is not computed by the graph")
        if value.type != source.value.type:
            raise VerifyError(f"{source.name} is {source.value.type}, its new value {value.type}")


def _unfit(graph: Graph, node: Node, why: str) -> Exception:
    """The error for a node that its op refuses: a package's op decided otherwise when the model was checked."""
    if "." not in node.op.name:
        return fault_at(graph, node, why)
    sizes = " and ".join(map(str, node.input_types))
    return PackageFault(
        f"the op `{node.op.name}`: `infer` {why} for inputs {sizes}, but did not when the model was checked",
        "its author makes `infer` give the same for a size and for a dim of this size",
    ).at(node.span)


def _verify_node(graph: Graph, node: Node, inferred: Inferred) -> None:
    """Checks that the node's types are those that its op infers from the types of its inputs."""
    try:
        types = inferred.types(node)
    except Mismatch as mismatch:
        raise _unfit(graph, node, f"does not fit its inputs: {mismatch.why}") from mismatch
    except PackageFault as fault:
        raise fault.at(node.span) from fault.__cause__
    if types != node.types:
        raise _unfit(graph, node, f"gives {_listed(types)}, but says {_listed(node.types)}")
    if node.op in (scan, scans, chain):
        verify_graph(chained(node.attrs) if node.op is chain else body_of(node.attrs))
    if node.op.view and (len(node.outputs) != 1 or not _is_inside(node)):
        raise fault_at(graph, node, "a view must have the elements of its first input")


def _is_inside(view: Node) -> bool:
    """Whether a view has the elements of its input, or, if it may be a part, those that ``infer`` found there."""
    return view.op.part or view.types[0].elements == view.inputs[0].type.elements


def _listed(types: Iterable[TensorType]) -> str:
    return ", ".join(str(t) for t in types)
