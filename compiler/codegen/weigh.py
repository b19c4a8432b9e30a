"""The scratch memory of a program's kernels, without the kernels: enough to plan memory when a plan is tried.

Before: a graph. After: ``program.scratch``, as ``select`` would have it. Nodes that differ in names alone are looked at
once.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from dslc.compiler.codegen.select import blocks_of, refuse_missing
from dslc.compiler.codegen.target import target_of
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Attr, Input, Kind, Node
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import TensorType


def weigh(program: Program, build: Build) -> Program:
    """The pass. Raises BuildError E0603 where ``select`` would."""
    if program.target == "cpu" and build.provider == "reference":
        return program
    vendor = build.provider == "vendor" and program.target != "cpu"
    working = [n for n in program.graph.nodes if not n.op.view]
    blocks = {n: found for n in working if (found := _blocks(n, program.target, vendor)) is not None}
    refuse_missing(program, build, working, blocks)
    return dataclasses.replace(program, scratch={n: found for n, found in blocks.items() if found}, vendor=vendor)


def _blocks(node: Node, target: str, vendor: bool) -> tuple[int, ...] | None:
    """The bytes of a node's scratch blocks; None where it has no kernel."""
    number = {v: i for i, v in enumerate(dict.fromkeys(node.inputs))}
    read = tuple(number[v] for v in node.inputs)
    attrs = tuple(sorted(node.attrs.items()))
    return _blocks_of_alike(node.op.name, tuple(v.type for v in number), read, node.types, attrs, target, vendor)


@lru_cache(maxsize=4096)
def _blocks_of_alike(
    op: str,
    types: tuple[TensorType, ...],
    read: tuple[int, ...],
    results: tuple[TensorType, ...],
    attrs: tuple[tuple[str, Attr], ...],
    target: str,
    vendor: bool,
) -> tuple[int, ...] | None:
    """As ``_blocks``, for a node that reads the tensors ``read`` of those with the ``types``."""
    values = [Input(f"x{i}", Kind.DATA, type).value for i, type in enumerate(types)]
    node = Node(OPS[op], tuple(values[i] for i in read), results, dict(attrs))
    launches = target_of(target, vendor).lower(node)
    return None if launches is None else blocks_of(launches)
