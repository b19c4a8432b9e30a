"""Orders the nodes: every value before its readers, and few bytes alive.

Before: a graph with its nodes in some valid order. After: ``program.schedule`` holds the same nodes, e.g. each weight's
gradient and update right after the gradient that it reads, instead of all of them at the end::

    conv_dgrad c2, conv_dgrad c1, conv_wgrad c2, conv_wgrad c1, sgd_update c1.weight, sgd_update c2.weight
    conv_wgrad c2, conv_dgrad c2, sgd_update c2.weight, conv_wgrad c1, sgd_update c1.weight

The pass makes three list schedules: in graph order; by distance from the inputs, with updates at once; and by most
freed bytes first. It takes the one with the lowest peak, the first if equal. In each, a node that replaces a state
waits for the other readers of the old value if possible, so that it can write in place. Recomputed nodes (phase
``mirror``) could run long before they are needed, so they wait for the other operands of their first reader.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Iterator, Sequence

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node, Phase, Value
from dslc.compiler.ir.program import Program


def schedule(program: Program, build: Build) -> Program:
    """The pass; keeps an existing schedule. Deterministic; n log n in nodes."""
    if program.schedule is not None:
        return program
    return dataclasses.replace(program, schedule=tuple(scheduled(program.graph)[0]))


def scheduled(graph: Graph) -> tuple[list[Node], int]:
    """The order of a graph's nodes, and its peak in bytes."""
    if not graph.nodes:
        return [], 0
    tables = _Tables(graph)
    orders = _candidates(tables)
    peaks = [_peak(tables, order) for order in orders]
    return orders[peaks.index(min(peaks))], min(peaks)


def _candidates(tables: _Tables) -> list[list[Node]]:
    level, late = tables.level, tables.late
    position = {node: 2 * i + 1 for i, node in enumerate(tables.graph.nodes)}
    position.update((node, position[reader] - 1) for node, reader in late.items())

    def by_level(node: Node) -> tuple[int, int]:
        return (-1 if node.phase is Phase.UPDATE else level[late.get(node, node)], position[node])

    return [
        _listed(tables, lambda n: (0, position[n])),
        _listed(tables, by_level),
        _freeing(tables, position),
    ]


class _Tables:
    """Dependences for the list schedulers.

    ``followers``: the nodes that wait for a node, and ``waits``: for how many nodes a node waits. ``soft_followers``
    and ``soft_waits``: the same for waits that may be broken at the cost of a copy. ``late``: see ``late_readers``.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.content = contents(graph)
        self.bytes = {v: v.type.bytes for v in self.content}
        self.kept = {self.content[v] for v in graph.roots}  # in io or in the state, not in work
        self.level = levels(graph)
        self.late = late_readers(graph, self.level)
        self.followers: dict[Node, list[Node]] = {n: [] for n in graph.nodes}
        self.waits: dict[Node, int] = dict.fromkeys(graph.nodes, 0)
        self._follow_operands()
        self._put_off_recomputed()
        self.soft_followers: dict[Node, list[Node]] = {}
        self.soft_waits: dict[Node, int] = dict.fromkeys(graph.nodes, 0)
        self._follow_readers_of_states()

    def read(self, node: Node) -> dict[Value, None]:
        """The contents that a node reads, each once."""
        return dict.fromkeys(self.content[value] for value in node.inputs)

    def _follow_operands(self) -> None:
        for node in self.graph.nodes:
            for producer in dict.fromkeys(value.producer for value in node.inputs):
                if isinstance(producer, Node):
                    self._let_follow(node, producer)

    def _put_off_recomputed(self) -> None:
        """Lets recomputed nodes wait for the other operands of their first readers. These have a lower level than the
        reader, so they cannot depend on the recomputed node."""
        for node, reader in self.late.items():
            operands = {value.producer for value in node.inputs}
            for producer in dict.fromkeys(value.producer for value in reader.inputs):
                if isinstance(producer, Node) and producer.phase is not Phase.MIRROR and producer not in operands:
                    self._let_follow(node, producer)

    def _let_follow(self, node: Node, other: Node) -> None:
        self.waits[node] += 1
        self.followers[other].append(node)

    def _follow_readers_of_states(self) -> None:
        """Lets the node that computes a state's new value wait for the other readers of the old one."""
        readers: dict[Value, list[Node]] = {}
        for node in self.graph.nodes:
            for content in self.read(node):
                readers.setdefault(content, []).append(node)
        for source, value in self.graph.updates:
            writer = self.content[value].producer
            if isinstance(writer, Node):
                for reader in readers.get(source.value, []):
                    if reader is not writer:
                        self.soft_followers.setdefault(reader, []).append(writer)
                        self.soft_waits[writer] += 1


def contents(graph: Graph) -> dict[Value, Value]:
    """Value -> the value whose bytes it shares: itself, or the source of a view."""
    content = {i.value: i.value for i in graph.inputs}
    for node in graph.nodes:
        for value in node.outputs:
            content[value] = content[node.inputs[0]] if node.op.view else value
    return content


def first_bytes(graph: Graph) -> dict[Value, int]:
    """Value -> the byte at which it begins in the bytes of its content."""
    first = dict.fromkeys((i.value for i in graph.inputs), 0)
    for node in graph.nodes:
        for value in node.outputs:
            first[value] = first[node.inputs[0]] + node.op.first_byte(node) if node.op.view else 0
    return first


def levels(graph: Graph) -> dict[Node, int]:
    """The longest path from an input to each node."""
    level: dict[Node, int] = {}
    for node in graph.nodes:
        level[node] = 1 + max((level[v.producer] for v in node.inputs if isinstance(v.producer, Node)), default=0)
    return level


def late_readers(graph: Graph, level: dict[Node, int]) -> dict[Node, Node]:
    """For each recomputed node: the node of another phase, of the lowest level, that waits for it."""
    first: dict[Node, Node] = {}
    for node in reversed(graph.nodes):
        reader = first.get(node, node)
        for value in node.inputs:
            made = value.producer
            if not isinstance(made, Node) or made.phase is not Phase.MIRROR:
                continue
            if made not in first or level[reader] < level[first[made]]:
                first[made] = reader
    return first


class _Ready:
    """A heap of the nodes that may run; those that break soft waits only if there is no other."""

    def __init__(self, tables: _Tables, key: Callable[[Node], tuple[int, ...]]) -> None:
        self.tables = tables
        self.key = key
        self.waits = dict(tables.waits)
        self.soft = dict(tables.soft_waits)
        self.heap: list[tuple[tuple[int, ...], int, Node]] = []
        self.late: list[tuple[tuple[int, ...], int, Node]] = []
        self.done: set[Node] = set()
        self.number = {node: i for i, node in enumerate(tables.graph.nodes)}
        for node in tables.graph.nodes:
            if self.waits[node] == 0:
                self.push(node)

    def push(self, node: Node) -> None:
        """Adds a node, or adds it again after its key has decreased."""
        heapq.heappush(self.late if self.soft[node] else self.heap, (self.key(node), self.number[node], node))

    def __iter__(self) -> Iterator[Node]:
        """Yields the nodes in order; the followers of each then become ready."""
        while self.heap or self.late:
            node = heapq.heappop(self.heap or self.late)[2]
            if node in self.done:
                continue
            self.done.add(node)
            for follower in self.tables.followers[node]:
                self.waits[follower] -= 1
                if self.waits[follower] == 0:
                    self.push(follower)
            for writer in self.tables.soft_followers.get(node, []):
                self.soft[writer] -= 1
                if self.soft[writer] == 0 and self.waits[writer] == 0:
                    self.push(writer)
            yield node


def _listed(tables: _Tables, key: Callable[[Node], tuple[int, ...]]) -> list[Node]:
    return list(_Ready(tables, key))


def _freeing(tables: _Tables, position: dict[Node, int]) -> list[Node]:
    """Always takes the node after which the fewest bytes are alive."""
    unread: dict[Value, int] = {}  # readers of a content that have not run
    readers: dict[Value, list[Node]] = {}  # of a content whose bytes its last reader frees
    for node in tables.graph.nodes:
        for content in tables.read(node):
            unread[content] = unread.get(content, 0) + 1
            if isinstance(content.producer, Node) and content not in tables.kept:
                readers.setdefault(content, []).append(node)

    def growth(node: Node) -> tuple[int, ...]:
        freed = sum(tables.bytes[c] for c in tables.read(node) if unread[c] == 1 and c in readers)
        made = 0 if node.op.view else sum(tables.bytes[v] for v in node.outputs if v not in tables.kept)
        return (made - freed, position[node])

    ready = _Ready(tables, growth)
    result: list[Node] = []
    for node in ready:
        result.append(node)
        for content in tables.read(node):
            unread[content] -= 1
            if unread[content] == 1 and content in readers:
                # the last reader now frees it: that node's key has decreased
                for reader in readers[content]:
                    if reader not in ready.done and ready.waits[reader] == 0:
                        ready.push(reader)
    return result


def peak(graph: Graph, order: Sequence[Node]) -> int:
    """Most bytes of computed values alive at once in this order, without values written in place."""
    return _peak(_Tables(graph), order)


def _peak(tables: _Tables, order: Sequence[Node]) -> int:
    content, size, kept = tables.content, tables.bytes, tables.kept
    last: dict[Value, int] = {}
    for time, node in enumerate(order):
        for value in (*node.inputs, *node.outputs):
            last[content[value]] = time
    alive = most = 0
    for time, node in enumerate(order):
        made = () if node.op.view else tuple(v for v in node.outputs if v not in kept)
        for value in made:
            alive += size[value]
        most = max(most, alive)
        for value in {*(content[v] for v in node.inputs), *made}:
            if last[value] == time and value not in kept and isinstance(value.producer, Node):
                alive -= size[value]
    return most
