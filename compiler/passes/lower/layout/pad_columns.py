"""Pads the columns of products of ``predict`` with weights to whole rows of bytes, so that a library reads and writes
aligned rows.

Before, with 30,522 words::

    %2 = matmul %x, %w {transpose_b=True, ...} : bf16[4096, 30522]  # head forward
    %3 = add %2, %bias : bf16[4096, 30522]  # head forward

After::

    %2 = pad %w {high=(6, 0), value=0.0, ...} : bf16[30528, 768]  # head forward
    %3 = matmul %x, %2 {transpose_b=True, ...} : bf16[4096, 30528]  # head forward
    %4 = slice %3 {stops=(4096, 30522), ...} : bf16[4096, 30522]  # head forward
    %5 = add %4, %bias : bf16[4096, 30522]  # head forward

The padded weights are prepared. Only where pointwise ops read the result, whose kernels read the slice in place, and
where products are a library's. ``pad_classes.py`` does it for a loss. Linear in nodes.
"""

from __future__ import annotations

import dataclasses
from math import prod
from typing import Final

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import OPS, Builder, Pointwise
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.attrs import bool_attr
from dslc.compiler.ops.products.linear import FEW_ROWS
from dslc.compiler.passes.conditions import calls_libraries
from dslc.compiler.passes.queries import values_of_weights
from dslc.compiler.passes.rebuild import reading

_ALIGNED: Final = 16  # bytes that products read at once


def pad_columns(program: Program, build: Build) -> Program:
    """The pass. Idempotent."""
    if program.entry != "predict" or program.prepared is not None or not (build.prepare and calls_libraries(build)):
        return program
    graph = program.graph
    fixed, readers, roots = values_of_weights(graph), graph.readers(), {*graph.roots}
    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.op.name != "matmul" or node.out in roots or node.inputs[1] not in fixed or not _is_odd(node):
            continue
        if all(isinstance(reader.op, Pointwise) and not reader.op.random for reader in readers[node.out]):
            instead[node.out] = _padded(node)
    return dataclasses.replace(program, graph=reading(graph, instead)) if instead else program


def _padded(node: Node) -> Value:
    """The result of a product of padded weights, without the columns that are added."""
    b, [data, weights], [result] = Builder().at(node, node.phase), node.inputs, node.types
    more = -result.ints[-1] % (_ALIGNED // result.dtype.itemsize)
    high = (more, 0) if bool_attr(node.attrs, "transpose_b") else (0, more)
    wide = b(OPS["pad"], weights, low=(0, 0), high=high, interior=(0, 0), value=0.0)
    zeros, ones = (0,) * result.rank, (1,) * result.rank
    return b(OPS["slice"], b(node.op, data, wide, **node.attrs), starts=zeros, stops=result.ints, steps=ones)


def _is_odd(node: Node) -> bool:
    """Whether the rows of a product of many rows are not aligned."""
    weights, result = node.inputs[1].type, node.types[0]
    row = result.ints[-1] * result.dtype.itemsize if result.ints else 0
    return weights.rank == 2 and result.dtype.is_half and prod(result.ints[:-1]) > FEW_ROWS and bool(row % _ALIGNED)
