"""Joins nodes of few rows that follow one another into a chain, which one resident kernel computes.

Before, for one token, each node a launch or two::

    %1 = layernorm %0, ... : bf16[1, 1, 768], ...
    %2 = contraction %1, %w, %b {product="matmul", ...} : bf16[1, 1, 2304]
    %3, %4 = put_rows %keys, %values, %2, %2, %at : f32[1024, 1, 12, 64], f32[1024, 1, 12, 64]
    %5 = few_queries_sdpa %2, %3, %4, %mask : bf16[1, 1, 768]
    %6 = contraction %5, ... : bf16[1, 1, 768]

After::

    %1, %2, %3 = chain %0, %w, %b, ... : bf16[1, 1, 768], f32[1024, 1, 12, 64], f32[1024, 1, 12, 64]

Products of few rows take as long as their weights take to come from memory, and a launch costs as much again. In one
kernel, blocks wait for one another instead, and meanwhile load the weights of the next products. The target says which
nodes such a kernel computes, and where this is faster by the time model. A node outside of the chain ends it, if the
node needs a result of the chain and a later member would need the node's result. The pass takes time in proportion to
nodes times chains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from dslc.compiler.codegen.targets import target_of, traits_of
from dslc.compiler.ir.bodies.chain import chain
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Body, Graph, Input, Kind, Node, Value, origins_of
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.rebuild import reading

Member: TypeAlias = Callable[[Node], bool]
#: Of a chain's body: how many of its nodes, from the first on, may be a chain.
Fits: TypeAlias = Callable[[Graph], int]
_MOST_CHAINS: Final = 64  # of a graph


def chains(program: Program, build: Build) -> Program:
    """The pass, for ``predict``."""
    if program.entry != "predict" or not build.fuse or not traits_of(build.target).blocks_may_wait:
        return program
    target = target_of(build.target)
    return dataclasses.replace(program, graph=with_chains(program.graph, target.may_chain, target.chain_length))


def with_chains(graph: Graph, is_member: Member, fits: Fits) -> Graph:
    """The graph with chains. ``is_member``: whether a node may be part of one. Deterministic."""
    ended: set[Node] = set()  # nodes that begin no chain
    for _ in range(_MOST_CHAINS):
        nodes = _next(graph, is_member, fits, ended)
        if not nodes:
            break
        graph = _joined(graph, nodes)
    return graph


def _next(graph: Graph, is_member: Member, fits: Fits, ended: set[Node]) -> list[Node]:
    """The nodes of the next chain, in order; none if there is no more."""
    while nodes := _run(graph, is_member, ended):
        ended.add(nodes[0])
        while len(nodes) > 1:
            count = fits(_body(graph, nodes)[0])
            if count == len(nodes):
                return nodes
            nodes = nodes[:count]
    return []


def _run(graph: Graph, is_member: Member, ended: set[Node]) -> list[Node]:
    """Members from the first that may begin a chain on, as far as no other node must run between them."""
    nodes: list[Node] = []
    made: set[Value] = set()  # by members
    after: set[Value] = set()  # by others, from what members make
    for node in graph.nodes:
        late = not after.isdisjoint(node.inputs)
        free = not late and (nodes or node not in ended) and not node.op.view and node.op is not chain
        if free and is_member(node):
            nodes.append(node)
            made.update(node.outputs)
        elif late or not made.isdisjoint(node.inputs):
            after.update(node.outputs)
    return nodes


def _body(graph: Graph, nodes: Sequence[Node]) -> tuple[Graph, tuple[Value, ...], tuple[Value, ...]]:
    """The body of a chain of these nodes, what it reads, and the values that others read."""
    own = {v for node in nodes for v in node.outputs}
    members = set(nodes)
    read = tuple(dict.fromkeys(v for node in nodes for v in node.inputs if v not in own))
    needed = {v for node in graph.nodes if node not in members for v in node.inputs} | {*graph.roots}
    given = tuple(v for node in nodes for v in node.outputs if v in needed)
    sources = tuple(Input(f"x{n}", Kind.DATA, v.type) for n, v in enumerate(read))
    new = {v: source.value for v, source in zip(read, sources)}
    inner = []
    for node in nodes:
        fresh = node.reading(new)
        fresh = fresh if fresh is not node else node.replaced()
        new.update(zip(node.outputs, fresh.outputs))
        inner.append(fresh)
    return Graph(sources, tuple(inner), {f"y{n}": new[v] for n, v in enumerate(given)}), read, given


def _joined(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """The graph with these nodes as a chain."""
    body, read, given = _body(graph, nodes)
    last = nodes[-1]
    made = Node(
        chain, read, tuple(v.type for v in given), {"body": Body(body)},
        name=last.name, span=last.span, phase=last.phase, origins=origins_of(nodes),
    )  # fmt: skip
    return reading(graph, dict(zip(given, made.outputs)))
