"""Assigns nodes to concurrent GPU streams and decides which nodes wait for which.

Before, one after another on stream 0::

    conv_wgrad c2, conv_dgrad c2, relu_grad b1, conv_wgrad c1, conv_dgrad c1, ..., sgd_update c2.weight

After, ``program.streams`` and ``program.waits``, for instance::

    stream 0   conv_wgrad c2, sgd_update c2.weight |  conv_wgrad c1, ...
    stream 1   conv_dgrad c2, relu_grad b1         |  conv_dgrad c1, ...

A list schedule (Graham 1969): takes the nodes in order and puts each on the stream where it ends first by the roofline
model (``stream_timeline.py``), in which a wait takes time. Of equal streams it takes the one with the fewest waits. A
node waits for its operands and, if it writes a state, for the other readers of the old value, unless other waits imply
that. So weight gradients, branches and updates run concurrently with other nodes if that hides a launch. Nodes that
fill the machine and are not products (``cost.fills``) always run one after another, because concurrent ones compete for
memory and cache: the gradient of ``sum`` of 64 MiB took 58 us on two streams of an H200, 43 on one.

In the model, a node may start after nodes on other streams have ended without waiting for them. If a wait for them then
frees enough bytes, it is added, since it costs no modelled time. If the plan would hold more bytes than allowed, the
node waits even if that takes modelled time. So library calls with large workspaces run concurrently only if all
workspaces fit. Memory is planned for nodes that may run concurrently, and a plan is accepted only within the limit;
results keep their bits. For each of several limits of bytes, ``auto`` takes the number of streams with the least
modelled time; of these plans it takes the one with the lowest price of time and bytes. Without a gain or without room,
all nodes stay on stream 0. Plans for CPUs have no streams.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.cost import Machine, fills, machine_for
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.plan.memory import memory, work_bound
from dslc.compiler.passes.plan.schedule import contents
from dslc.compiler.passes.plan.stream_timeline import Busy, joining, need, waiting

#: The numbers of streams that ``auto`` tries.
AUTO: Final = (2, 3, 4, 6)
#: The fraction of the modelled time that streams must save, and the fraction that a larger number of streams must save
#: in addition, because concurrent kernels slow each other down. On an H200, a mixture of experts gained nothing at a
#: modelled gain of 6 %, and ResNet-50 with 32 images 7 % at one of 7.5 %. Of 167 graphs of a few ops, the 96 with a
#: larger modelled gain took 0.81 of the time of one stream, the others 0.99 (benchmarks/results/ops.md, Streams).
_GAIN: Final = 0.07
_GAIN_OF_MORE: Final = 0.01
#: The fraction of all computed bytes that an extra wait must free.
_FREED: Final = 0.001
#: Several streams may take more bytes than one stream, up to this fraction of all bytes of the program. A program of
#: less than ``LEAST_BYTES``, 8 % of a GPU of 80 GB, counts as so large. The price counts the same bytes: 1 % of them
#: costs as much as 1 % of the time.
MORE_FRACTION: Final = 0.02
LEAST_BYTES: Final = 6 << 30
#: The fractions of these bytes that are tried as limits.
_PARTS: Final = (1.0, 0.25, 0.0)
_MOST_EVENTS: Final = 60_000  # of a plan


def streams(program: Program, build: Build) -> Program:
    """The pass. Linear in nodes."""
    assert program.schedule is not None, "streams are assigned on a schedule"
    if not traits_of(build.target).has_streams or build.streams == 1:
        return program
    machine = machine_for(build)
    counts = AUTO if build.streams == "auto" else (int(build.streams),)
    tables = _Tables(program, program.schedule, machine, limited=build.budget is not None)
    single = sum(each.seconds for each in tables.needs.values())
    if not single:
        return program  # no node takes time
    search = _Search(program, build, single)
    for most in tables.mosts:
        plans = [_ListSchedule(tables, count, most) for count in counts]
        search.take([p for p in plans if p.seconds <= (1 - _GAIN) * single and len(p.waits) <= _MOST_EVENTS])
    return search.best()


class _Search:
    """Plans memory for schedules on streams, and prices those that fit. ``single``: the modelled seconds of one
    stream."""

    def __init__(self, program: Program, build: Build, single: float) -> None:
        self.program, self.build, self.single = program, build, single
        self.alone = work_bound(program, build)  # bytes of work on one stream
        self._tried: list[Mapping[Node, tuple[Node, ...]]] = []
        self._found: list[tuple[float, Program]] = []  # price, plan

    def best(self) -> Program:
        """The plan with the least price; the program as it was if none fits."""
        return min(self._found, key=lambda each: each[0])[1] if self._found else self.program

    def take(self, plans: list[_ListSchedule]) -> None:
        """Keeps the first of these schedules that fits. Tries the fastest first, but one with fewer streams before it
        if that is nearly as fast."""
        while plans:
            least = min(plan.seconds for plan in plans)
            plan = next(plan for plan in plans if plan.seconds <= (1 + _GAIN_OF_MORE) * least)
            plans.remove(plan)
            if plan.waits not in self._tried:
                self._tried.append(plan.waits)
                if self._fits(plan):
                    return
            elif any(plan.waits == planned.waits for _, planned in self._found):
                return

    def _fits(self, plan: _ListSchedule) -> bool:
        """Plans the schedule's memory. Whether it is within the limits; if so, keeps the plan with its price."""
        changed = dataclasses.replace(self.program, streams=plan.streams, waits=plan.waits)
        planned = memory(changed, self.build)
        assert planned.memory is not None
        io, work = planned.memory.io_bytes, planned.memory.work_bytes
        rest, budget = self.build.state_bytes + io, self.build.budget
        if work > most_bytes(self.alone, rest) or (budget is not None and io + work > budget):
            return False
        bytes_more = (work - self.alone) / max(LEAST_BYTES, self.alone + rest)
        self._found.append((plan.seconds / self.single + bytes_more, planned))
        return True


def most_bytes(alone: int, rest: int = 0, part: float = 1.0) -> int:
    """The bytes of work that several streams may take if one stream takes ``alone``. ``rest``: the other bytes of the
    program; ``part``: the fraction of the additional bytes that is allowed."""
    return alone + int(part * MORE_FRACTION * max(LEAST_BYTES, alone + rest))


def followed(graph: Graph, order: tuple[Node, ...]) -> dict[Node, tuple[Node, ...]]:
    """For each node that is not a view, the nodes that it must follow, each once: the producers of its operands and, if
    its result is a state's new value, the earlier readers of the old value."""
    content = contents(graph)
    states = {content[value]: source.value for source, value in graph.updates}
    readers: dict[Value, list[Node]] = {source.value: [] for source, _ in graph.updates}
    found: dict[Node, tuple[Node, ...]] = {}
    for node in order:
        if node.op.view:
            continue
        others = [content[v].producer for v in node.inputs]
        others += [reader for v in node.outputs if v in states for reader in readers[states[v]]]
        found[node] = tuple(dict.fromkeys(n for n in others if isinstance(n, Node) and n is not node))
        for read in dict.fromkeys(content[v] for v in node.inputs):
            if read in readers:
                readers[read].append(node)
    return found


@dataclass(slots=True)
class _Stream:
    """The nodes on a stream so far, when each ends, and how many bytes are free after the first n have ended. ``seen``:
    how many nodes of each stream have ended when this stream's last node has."""

    seen: list[int]
    nodes: list[Node]
    ends: list[float]
    freed: list[int]


class _Tables:
    """Analysis of the nodes that are not views. ``follows``: the nodes that each must follow. ``needs``: its time.
    ``freed``: bytes free after the node, i.e. computed values of which it is the last reader in order, and its scratch.
    ``alive``: bytes alive while it runs, if nodes run one after another. A ``wait`` costs so many seconds; ``enough``
    freed bytes justify one; ``mosts``: the byte limits to try."""

    def __init__(self, program: Program, order: tuple[Node, ...], machine: Machine, *, limited: bool) -> None:
        content = contents(program.graph)
        kept = {content[value] for value in program.graph.roots}
        self.follows = followed(program.graph, order)
        for before, node in pairwise([node for node in self.follows if fills(node, machine)]):
            self.follows[node] = tuple(dict.fromkeys((*self.follows[node], before)))
        self.needs = {node: need(node, machine) for node in self.follows}
        self.wait = waiting(machine)
        self.machine = machine
        last = {content[value]: node for node in self.follows for value in node.inputs}
        self.freed = {node: sum(program.scratch.get(node, ())) for node in self.follows}
        for value, node in last.items():
            if value not in kept and isinstance(value.producer, Node):
                self.freed[node] += value.type.bytes
        self.alive: dict[Node, int] = {}
        total = 0
        for node in self.follows:
            total += sum(v.type.bytes for v in node.outputs if v not in kept) + sum(program.scratch.get(node, ()))
            self.alive[node] = total
            total -= self.freed[node]
        peak = max(self.alive.values(), default=0)
        self.mosts = (peak,) if limited else tuple(most_bytes(peak, part=part) for part in _PARTS)
        self.enough = _FREED * sum(self.freed.values())


class _ListSchedule:
    """Streams and waits for at most ``count`` streams, and the modelled ``seconds`` until all nodes have ended. They
    hold at most ``most`` bytes as far as waits can ensure that."""

    def __init__(self, tables: _Tables, count: int, most: int) -> None:
        self.count, self.most = count, most
        self.streams: dict[Node, int] = {}
        self.waits: dict[Node, tuple[Node, ...]] = {}
        self._all = [_Stream([0] * count, [], [], [0]) for _ in range(count)]
        self._place: dict[Node, tuple[int, int]] = {}  # stream, and index on it
        self._seen: dict[Node, list[int]] = {}
        busy = Busy()
        for node in tables.follows:
            number, begin, waits = self._chosen(tables, node, busy)
            begin, waits = self._freeing(tables, tables.alive[node], number, begin, waits)
            self._put(node, number, busy.add(begin, tables.needs[node]), waits, tables.freed[node])
        self.seconds = max((s.ends[-1] for s in self._all if s.ends), default=0.0)
        self.seconds += joining(self.streams, tables.machine)

    def _chosen(self, tables: _Tables, node: Node, busy: Busy) -> tuple[int, float, list[Node]]:
        """The stream on which a node ends first, of equal ones that with the fewest waits; its start and its waits."""
        wait = tables.wait
        found: list[tuple[float, int, int, float, list[Node]]] = []
        for number, stream in enumerate(self._all):
            waits = self._waits(number, tables.follows[node])
            begin = max((stream.ends[-1] if stream.ends else 0.0, *(self._end(n) + wait for n in waits)))
            end = busy.end(begin, tables.needs[node]) + wait * len(waits)
            found.append((end, len(waits), number, begin, waits))
            if not stream.nodes:
                break  # the others are empty, too
        _, _, number, begin, waits = min(found)
        return number, begin, waits

    def _freeing(
        self, tables: _Tables, alive: int, number: int, begin: float, waits: list[Node]
    ) -> tuple[float, list[Node]]:
        """Start time and waits of a node, adding waits that free other streams' memory if they cost no modelled time or
        the limit requires it. ``alive``: bytes of the node and all before it."""
        own = self._all[number]
        for place, other in enumerate(self._all):
            if other is own:
                continue
            seen = self._joined(number, waits)
            if other.freed[-1] - other.freed[seen[place]] <= tables.enough:
                continue
            held = [s.freed[-1] - s.freed[n] for s, n in zip(self._all, seen) if s is not own]
            ended = len(other.ends) if alive + sum(held) > self.most else bisect_right(other.ends, begin - tables.wait)
            if other.freed[ended] - other.freed[seen[place]] > tables.enough:
                waits = self._needed([*waits, other.nodes[ended - 1]])
                begin = max(begin, other.ends[ended - 1] + tables.wait)
        return begin, waits

    def _end(self, node: Node) -> float:
        stream, number = self._place[node]
        return self._all[stream].ends[number]

    def _waits(self, number: int, others: Iterable[Node]) -> list[Node]:
        """The nodes of ``others`` for which a node on this stream must wait: the last of each other stream, unless it
        is known to have ended or another wait implies that."""
        seen = self._all[number].seen
        latest: dict[int, Node] = {}
        for node in others:
            stream, place = self._place[node]
            if stream != number and place >= max(seen[stream], self._number(latest.get(stream)) + 1):
                latest[stream] = node
        return self._needed([*latest.values()])

    def _needed(self, waits: list[Node]) -> list[Node]:
        """The nodes of ``waits`` that are not implied by another one of them."""
        if len(waits) < 2:
            return waits

        def follows(node: Node, other: Node) -> bool:
            stream, number = self._place[node]
            return node is not other and self._seen[other][stream] > number

        return [node for node in waits if not any(follows(node, other) for other in waits)]

    def _number(self, node: Node | None) -> int:
        return -1 if node is None else self._place[node][1]

    def _joined(self, number: int, waits: Iterable[Node]) -> list[int]:
        """How many nodes of each stream have ended when a node starts."""
        seen = self._all[number].seen
        for node in waits:
            seen = list(map(max, seen, self._seen[node]))
        return seen

    def _put(self, node: Node, number: int, end: float, waits: list[Node], freed: int) -> None:
        stream, seen = self._all[number], self._joined(number, waits)
        self._place[node] = number, len(stream.nodes)
        stream.nodes.append(node)
        stream.ends.append(end)
        stream.freed.append(stream.freed[-1] + freed)
        stream.seen = self._seen[node] = [*seen[:number], len(stream.nodes), *seen[number + 1 :]]
        if number:
            self.streams[node] = number
        if waits:
            self.waits[node] = tuple(waits)
