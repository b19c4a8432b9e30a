"""How a dropped value is recomputed: which nodes run again, what they read, and what that costs.

A recipe either writes its value to memory, once for all readers, or its readers compute the value inside their own
kernels, if they are pointwise, too. A backward kernel that reads the sources in any case may write it as an extra
output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from dslc.compiler.cost import Machine, kernel_seconds, operations, seconds
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.passes.mirror.training_graph import TrainingGraph, is_inline


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to recompute a value.

    ``nodes``: the nodes that compute the value, in order. ``sources``: the values in memory that they read.
    ``in_memory``: later-phase readers that need the value in memory. ``inline``: readers that compute it themselves.
    ``extra_output``: a backward kernel that already loads the sources stores it (``recompute_outputs.py``).
    ``seconds``: modelled time that recomputing adds to keeping the value.
    """

    value: Value
    nodes: tuple[Node, ...]
    sources: tuple[Value, ...]
    in_memory: tuple[Node, ...]
    inline: tuple[Node, ...]
    extra_output: bool
    seconds: float

    @property
    def only_views(self) -> bool:
        """Whether the recipe consists of views, so that nothing is computed."""
        return all(n.op.view for n in self.nodes)


def recipes(training: TrainingGraph, dropped: Collection[Value], machine: Machine) -> dict[Value, Recipe]:
    """The recipe of each dropped value that a later phase reads, in forward order."""
    known: dict[Value, Recipe] = {}
    for node in training.forward:
        for value in node.outputs:
            if value in dropped and value in training.wanted:
                known[value] = recipe_of(training, dropped.__contains__, known, value, machine)
                for source in known[value].sources:
                    if source in known and known[source].extra_output:
                        known[source] = recipe_of(
                            training, dropped.__contains__, known, source, machine, is_source=True
                        )
    return known


def recipe_of(
    training: TrainingGraph,
    dropped: Callable[[Value], bool],
    known: Mapping[Value, Recipe],
    value: Value,
    machine: Machine,
    *,
    is_source: bool = False,
) -> Recipe:
    """The cheapest recipe of a dropped value: one copy for all readers; or each pointwise reader computes it itself
    and, if ``training.extra_outputs``, a backward kernel stores it for the others. ``is_source``: another value is
    computed from it before such a kernel could run."""
    nodes, sources = _closure(dropped, known, value)
    readers = tuple(training.wanted[value])
    if all(n.op.view for n in nodes):
        return Recipe(value, tuple(nodes), tuple(sources), readers, (), False, 0.0)
    inline = tuple(r for r in readers if is_inline(r, value))
    light = [n for n in nodes if isinstance(n.op, Pointwise)]
    others = [n for n in nodes if not isinstance(n.op, Pointwise)]
    read, size = _large(training, sources), training.bytes[value]
    count = sum(operations(n) for n in light)
    copy = sum(seconds(n, machine) for n in others)
    if light:
        first, wanted = {v for n in light for v in n.inputs}, {value, *(v for n in others for v in n.inputs)}
        moved = _large(training, [v for v in sources if v in first])
        moved += sum(training.bytes[v] for n in light for v in n.outputs if v in wanted)
        copy += kernel_seconds("elements", moved, count, machine)
    one_kernel = len(light) == len(nodes) and read <= 2 * size
    if one_kernel and inline and (training.extra_outputs or len(inline) == len(readers)):
        each = 0.0
        if read > size or not training.recomputes_inputs:
            arithmetic = count / machine.arithmetic("elements")
            each = len(inline) * (max(0, read - size) / machine.device.bandwidth + arithmetic)
        rest = tuple(r for r in readers if r not in inline)
        if rest:
            each += copy if is_source else min(copy, _extra_output_seconds(size, max(0, read - size), count, machine))
        if each < copy:
            return Recipe(value, tuple(nodes), tuple(sources), rest, inline, bool(rest) and not is_source, each)
    return Recipe(value, tuple(nodes), tuple(sources), readers, (), False, copy)


def _extra_output_seconds(size: int, read: int, count: int, machine: Machine) -> float:
    """Extra seconds if a kernel also writes the recomputed value and reads ``read`` more bytes for it. The kernel reads
    two tensors of ``size`` bytes and writes one, as the value's gradient does."""
    alone = kernel_seconds("elements", 3 * size, count, machine)
    return kernel_seconds("elements", 4 * size + read, 2 * count, machine) - alone


def _large(training: TrainingGraph, values: Sequence[Value]) -> int:
    """Total bytes of the values that are not negligible."""
    return sum(training.bytes[v] for v in values if training.bytes[v] > training.small)


def _closure(
    dropped: Callable[[Value], bool], known: Mapping[Value, Recipe], value: Value
) -> tuple[list[Node], list[Value]]:
    """The nodes between memory and a dropped value, in order, and the values that they read from memory."""
    nodes: list[Node] = []
    sources: dict[Value, None] = {}
    assert isinstance(value.producer, Node)
    seen = {value.producer}
    stack = [(value.producer, iter(value.producer.inputs))]
    while stack:
        node, inputs = stack[-1]
        for read in inputs:
            if not dropped(read) or (read in known and known[read].in_memory):
                sources[read] = None
            elif isinstance(read.producer, Node) and read.producer not in seen:
                seen.add(read.producer)
                stack.append((read.producer, iter(read.producer.inputs)))
                break
        else:
            nodes.append(node)
            stack.pop()
    return nodes, list(sources)
