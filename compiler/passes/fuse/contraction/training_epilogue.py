"""Lets convolutions of training add a bias, or a bias and a residual, if the addition would otherwise need its own
kernel.

Before, a batchnorm and its gradient read the sum::

    %1 = conv_last %x, %w {...} : f32[32, 1024, 1024]  # s3.conv forward
    %2 = add %1, %bias : f32[32, 1024, 1024]  # s3.conv forward

After::

    %2 = contraction %x, %w, %bias {product="conv_last", ..., body=...} : f32[32, 1024, 1024]  # s3.conv forward

The sum must be the convolution's only reader. The pass comes after those that compute a sum inside its readers, which
costs even less, so it takes what they leave. The rule which kernels add it is in ``convolution_epilogue.py``, the pass
for ``predict``, which joins activations, too. In training, gradients compare the result of an activation with 0, and
its kernel also writes a bitmask of that comparison. A convolution that the backward pass computes again without its
bias stays as it is both times, since another kernel may have other bits. Linear in nodes and reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import key_of
from dslc.compiler.ir.graph import Graph, Node, Phase
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.compound.contraction import product_and_epilogue, summands
from dslc.compiler.passes.conditions import batches_launches
from dslc.compiler.passes.fuse.contraction.convolution_epilogue import (
    CONVOLUTIONS,
    convolution_of,
    convolution_rule,
)
from dslc.compiler.passes.fuse.contraction.pointwise_join import join_readers


def training_epilogue(program: Program, build: Build) -> Program:
    """The pass. Deterministic and idempotent."""
    if program.entry == "predict" or not batches_launches(build):
        return program
    rule = convolution_rule(build)

    def added(again: Collection[str]) -> Graph:
        def adds(product: Node, reader: Node, joined: Node) -> bool:
            biased = "bias" in (summands(joined) or ())
            return biased and rule(product, reader, joined) and not (again and _problem(joined) in again)

        return join_readers(program.graph, convolution_of, adds)

    graph = added(())
    if graph is not program.graph and (again := _computed_again(graph)):
        graph = added(again)
    return program if graph is program.graph else dataclasses.replace(program, graph=graph)


def _problem(joined: Node) -> str:
    """The key of the convolution of a ``contraction``."""
    return key_of(product_and_epilogue(joined)[0])


def _computed_again(graph: Graph) -> set[str]:
    """The problems of convolutions that the backward pass computes again, alone."""
    return {key_of(node) for node in graph.nodes if node.phase is Phase.MIRROR and node.op.name in CONVOLUTIONS}
