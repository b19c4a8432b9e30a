"""Lets cuDNN add to a convolution of ``predict`` what is added to it: a bias for each channel, a residual, or both, and
then apply relu.

Before, with channels last::

    %1 = conv_last %x, %w {...} : bf16[1, 56, 56, 64]  # conv forward
    %2 = fused %1, %bias, %rest {relu((%1 + %bias) + %rest)} : bf16[1, 56, 56, 64]  # relu forward

After::

    %2 = contraction %x, %w, %bias, %rest {product="conv_last", ..., body=...} : bf16[1, 56, 56, 64]  # relu forward

The pointwise node must be the only reader of the convolution. cuDNN adds in f32 and rounds once. Measured times decide
if all of them are known. Training keeps its nodes: gradients read the values in between. Linear in nodes and reads.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.conditions import calls_libraries
from dslc.compiler.passes.fuse.body import is_pointwise
from dslc.compiler.passes.fuse.contraction.library_sums import takes
from dslc.compiler.passes.fuse.contraction.pointwise_readers import with_readers

_CONVOLUTIONS: Final = ("conv", "conv_last")


def convolution_sums(program: Program, build: Build) -> Program:
    """The pass. Deterministic and idempotent."""
    if program.entry != "predict" or not calls_libraries(build):
        return program
    graph = with_readers(program.graph, _convolution, takes(build))
    return program if graph is program.graph else dataclasses.replace(program, graph=graph)


def _convolution(node: Node) -> Node | None:
    """The last convolution that a pointwise node reads: what the others give is there by then."""
    if not is_pointwise(node) or len(node.outputs) > 1:
        return None
    made = [value.producer for value in dict.fromkeys(node.inputs) if value.type == node.types[0]]
    found = [n for n in made if isinstance(n, Node) and n.op.name in _CONVOLUTIONS and n.phase is node.phase]
    return found[-1] if found else None
