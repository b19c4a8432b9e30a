"""The graph of a checked program, node by node through the ops' numpy meanings: no passes, no plan, no shared bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from dslc.compiler.ir.graph import Body, Graph, Input, Kind, Node, Value
from dslc.compiler.ir.op import Builder, Pointwise
from dslc.compiler.ir.scan import Loop, int_count, scan
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.passes.lower.gradient.gradients import with_gradients
from dslc.compiler.passes.lower.simplify.simplify import plain
from dslc.runtime.artifact.dtypes import numpy_dtype

Arrays = Mapping[str, np.ndarray]


def typed(graph: Graph, dtype: DType) -> Graph:
    """The graph with ``dtype`` for the abstract float, everywhere."""
    new: dict[Value, Value] = {}
    inputs: dict[Input, Input] = {}
    for source in graph.inputs:
        type = TensorType(_concrete(source.value.type.dtype, dtype), source.value.type.shape)
        inputs[source] = source.of_type(type)
        new[source.value] = inputs[source].value
    nodes = []
    for node in graph.nodes:
        attrs = {k: _concrete(v, dtype) for k, v in node.attrs.items()}
        made = Builder(name=node.name, span=node.span, phase=node.phase).node(
            node.op, *(new[v] for v in node.inputs), **attrs
        )
        nodes.append(made)
        new.update(zip(node.outputs, made.outputs))
    return Graph(
        tuple(inputs.values()),
        tuple(nodes),
        {name: new[v] for name, v in graph.outputs.items()},
        tuple((inputs[i], new[v]) for i, v in graph.updates),
    )


def _concrete(attr: Any, dtype: DType) -> Any:
    if isinstance(attr, Body):
        return Body(typed(attr.graph, dtype))
    if isinstance(attr, tuple):
        return tuple(_concrete(a, dtype) for a in attr)
    return dtype if attr is DType.FLOAT else attr


Noise: TypeAlias = tuple[float, np.random.Generator]
Frozen: TypeAlias = dict[tuple[Node, int], list[np.ndarray]]


class Interpreter:
    """Runs a typed graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = with_gradients(graph)
        self.attrs: dict[Node, Mapping[str, Any]] = {}

    def run(self, feeds: Arrays, *, noise: Noise | None = None, frozen: Frozen | None = None) -> dict[str, np.ndarray]:
        """Outputs by name, and new values of states as ``update NAME``.

        ``noise`` (size, rng) moves each float result by about ``size`` of itself.
        ``frozen`` keeps what ``stop_gradient`` gave in the first run for the next ones: to a gradient it is a constant.
        """
        known: dict[Value, np.ndarray] = {}
        for source in self.graph.inputs:
            array = np.asarray(feeds[source.name] if source.stored is None else source.stored.array)
            known[source.value] = array.astype(numpy_dtype(source.value.type.dtype.value)).reshape(array.shape)
            known[source.value].flags.writeable = False
        with np.errstate(all="ignore"):
            _Run(self.attrs, noise, frozen).nodes(self.graph, known)
        found = {name: known[v] for name, v in self.graph.outputs.items()}
        return found | {f"update {i.name}": known[v] for i, v in self.graph.updates}


@dataclass
class _Run:
    """One run. ``attrs``: the plain attributes of nodes; ``times``: how often each ``stop_gradient`` has run."""

    attrs: dict[Node, Mapping[str, Any]]
    noise: Noise | None
    frozen: Frozen | None
    times: Counter[Node] = field(default_factory=Counter)

    def nodes(self, graph: Graph, known: dict[Value, np.ndarray]) -> None:
        """Adds what the nodes of a graph give to what is known."""
        for node in graph.nodes:
            results = self._loop(node, known) if node.op is scan else self._node(node, known)
            for value, result in zip(node.outputs, results, strict=True):
                array = np.asarray(result)
                wanted = (numpy_dtype(value.type.dtype.value), value.type.ints)
                assert (array.dtype, array.shape) == wanted, f"{node.op.name} gives {array.dtype}{array.shape}"
                if self.noise is not None and array.dtype.kind == "f" and node.op is not scan:
                    array = _disturbed(node, array, known, *self.noise)
                array.flags.writeable = False
                known[value] = array

    def _node(self, node: Node, known: Mapping[Value, np.ndarray]) -> list[np.ndarray]:
        if self.frozen is not None and node.op.name == "stop_gradient":
            key = node, self.times[node]
            self.times[node] += 1
            if key not in self.frozen:
                self.frozen[key] = [known[v].copy() for v in node.inputs]
            return [a.copy() for a in self.frozen[key]]
        if node not in self.attrs:
            self.attrs[node] = plain(node.attrs)
        return [np.array(r) for r in node.op.meaning([known[v] for v in node.inputs], self.attrs[node])]

    def _loop(self, node: Node, known: Mapping[Value, np.ndarray]) -> list[np.ndarray]:
        loop = Loop.of(node)
        carried = [known[v] for v in loop.carries]
        results = [np.empty(v.type.ints, known_dtype(v)) for v in node.outputs[len(carried) :]]
        steps = range(int_count(node))
        for at in reversed(steps) if loop.reverse else steps:
            inner = {source.value: known[v] for source, v in zip(loop.const_inputs, loop.consts)}
            inner |= {source.value: array for source, array in zip(loop.carry_inputs, carried)}
            inner |= {source.value: known[v][at] for source, v in zip(loop.sequence_inputs, loop.sequences)}
            self.nodes(loop.graph, inner)
            carried = [inner[v] for _, v in loop.graph.updates]
            for result, v in zip(results, loop.graph.outputs.values()):
                result[at] = inner[v]
        return [*(array.copy() for array in carried), *results]


def known_dtype(value: Value) -> np.dtype[Any]:
    return numpy_dtype(value.type.dtype.value)


def _disturbed(
    node: Node, array: np.ndarray, known: Mapping[Value, np.ndarray], size: float, rng: np.random.Generator
) -> np.ndarray:
    """The result moved by up to ``size`` of itself; what adds many numbers, by as much of the greatest of them too.

    What only picks or moves numbers (max, gather, relu) does not round, and its gradient may ask which were equal.
    """
    read = [known[v].reshape(-1) for v in node.inputs if known[v].dtype.kind == "f"]
    picked = read and np.isin(array, np.concatenate([*read, np.zeros(1)])).all()
    # Nothing but zeros from numbers that are not: what f64 cancelled (equal rows, normalised), narrower sums may not.
    cancelled = not isinstance(node.op, Pointwise) and not array.any() and any(x.any() for x in read)
    if picked and not cancelled:
        return array
    scale = np.abs(array)
    if not isinstance(node.op, Pointwise):
        scale = scale + max((np.abs(x).max(initial=0) for x in read), default=0)
    return np.asarray(array + size * scale * rng.uniform(-1, 1, array.shape)).astype(array.dtype)


def spread(graph: Graph, feeds: Arrays, runs: int, eps: float, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Least and greatest values of each output over runs in which every rounding is replaced by a random one.

    Stochastic arithmetic (Vignes 1978): how far a computation in a narrower dtype may lie from that in f64, also
    where an intermediate value stands near a jump (floor, argmax, a comparison). What is nan without noise stays it:
    a mean over nothing is 0/0, and tanh of noise/0 would be a number.
    """
    interpreter = Interpreter(graph)
    rng = np.random.default_rng(seed)
    plain: dict[str, np.ndarray] = {}
    bounds: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for turn in range(runs + 1):
        for name, array in interpreter.run(feeds, noise=(eps, rng) if turn else None).items():
            exact = plain.setdefault(name, array)
            low, high = bounds.get(name, (array, array))
            bounds[name] = (np.where(exact != exact, exact, np.fmin(low, array)),
                            np.where(exact != exact, exact, np.fmax(high, array)))  # fmt: skip
    return bounds


def kind_is_state(source: Input) -> bool:
    return source.kind not in (Kind.DATA, Kind.SCALAR, Kind.CONSTANT, Kind.PREPARED)
