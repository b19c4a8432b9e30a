"""Nodes that run beside others: on a second stream of a GPU, from where they stand in the order until they are joined.

Before, one after another on stream 0::

    conv_wgrad c2, conv_dgrad c2, relu_grad b1, conv_wgrad c1, conv_dgrad c1, ..., sgd_update c2.weight

After, ``program.sides``: each weight's gradient on stream 1, behind all that stands before it, and beside what stands
behind it, until stream 0 waits for it::

    stream 0   conv_dgrad c2, relu_grad b1 | conv_dgrad c1, ...                | sgd_update c2.weight
    stream 1   conv_wgrad c2               | conv_wgrad c1                     |

Stream 0 waits for a node before its first reader, and at the latest where the next such node begins: so what both read
is kept a little longer, and no more. A node goes aside where the roofline model has work for stream 0 in the meantime:
products, whose last blocks leave much of a GPU idle. Memory is planned afterwards, and knows which lives overlap; the
bits stay. The CPU shares work out by itself.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from dslc.compiler.cost import CONTRACTIONS, MACHINES, seconds
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.program import Program, Side
from dslc.compiler.passes.schedule import contents

#: Of a node's modelled time: how much other work there must be until it is read.
_BESIDE: Final = 0.5


def streams(program: Program, build: Build) -> Program:
    """The pass. Linear in nodes."""
    assert program.schedule is not None, "streams are assigned on a schedule"
    if build.target == "cpu" or build.streams == 1:
        return program
    order = program.schedule
    machine = MACHINES[build.target]
    begun = [0.0]
    for node in order:
        begun.append(begun[-1] + seconds(node, machine))
    read = first_reads(program.graph, order)
    chosen: list[tuple[int, int]] = []
    for time, node in enumerate(order):
        if node.op.name not in CONTRACTIONS:
            continue
        end = read[node]
        own = begun[time + 1] - begun[time]
        if begun[end] - begun[time + 1] >= _BESIDE * own:
            chosen.append((time, end))
    sides: dict[Node, Side] = {}
    for (time, end), following in zip(chosen, [*(t for t, _ in chosen[1:]), len(order)]):
        until = min(end, following)
        if until > time + 1 and begun[until] - begun[time + 1] >= _BESIDE * (begun[time + 1] - begun[time]):
            sides[order[time]] = Side(1, until)
    return dataclasses.replace(program, sides=sides)


def first_reads(graph: Graph, order: tuple[Node, ...]) -> dict[Node, int]:
    """Of each node: the place in the order of the first node that reads its bytes; the end where none does, or where
    they are a result."""
    content = contents(graph)
    first: dict[Value, int] = {}
    for time in range(len(order) - 1, -1, -1):
        if not order[time].op.view:
            for value in order[time].inputs:
                first[content[value]] = time
    return {node: min((first.get(v, len(order)) for v in node.outputs), default=len(order)) for node in order}
