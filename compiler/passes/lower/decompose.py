"""Decomposes normalisations of images into reductions and pointwise ops, which then fuse with their neighbours.

Before::

    %1, %2, %3, %4, %5 = batchnorm_last %x, %w, %b, %rm, %rv {...} : bf16[8, 14, 14, 64], f32[64], ...
    %6 = relu %1 : bf16[8, 14, 14, 64]

After, in short::

    %1, %2 = fused_sums %x, %rm {x - rm, (x - rm)^2 over=(0, 1, 2)} : f32[64], f32[64]
    mean, invstd and the new running statistics from them : f32[64]
    %6 = relu of (x - mean) * (invstd * w) + b : bf16[8, 14, 14, 64]

So the forward pass reads x twice and writes once, with the sum of a residual block and its relu fused. The gradient
reads its inputs twice and writes once. The variance is computed from sums of differences from a shift close to the
data, which keeps it accurate (Chan, Golub and LeVeque 1983: shifted data). For 16-bit data the shift is the running
mean. For wider data it is each channel's first element: the running mean starts at 0, so in the first steps a large
offset would cancel all digits. GPU only, because these steps are bound by memory.

Group normalisations of images with channels last become the same steps (``norms/groupnorm.py``); those with channels
first have kernels of their own, whose rows lie in memory one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.passes.lower.norms.batchnorm import BatchNorm
from dslc.compiler.passes.lower.norms.groupnorm import GroupNorm

_NORMS: Final[dict[str, type[BatchNorm | GroupNorm]]] = {
    **dict.fromkeys(("batchnorm", "batchnorm_last", "batchnorm_grad", "batchnorm_grad_last"), BatchNorm),
    **dict.fromkeys(("groupnorm_last", "groupnorm_grad_last"), GroupNorm),
}


def decompose(graph: Graph) -> Graph:
    """The graph without such normalisations; the same object if it has none."""

    def rule(node: Node) -> Sequence[Value] | None:
        if node.op.name not in _NORMS:
            return None
        norm = _NORMS[node.op.name](node)
        return norm.backward() if "_grad" in node.op.name else norm.forward()

    return graph.rewrite(rule)
