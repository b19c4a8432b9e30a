"""Drops pairs of transposes that move the channels of images last and back, on a GPU.

Before::

    %1 = transpose %0 {perm=(0, 3, 1, 2)} : f32[8, 64, 14, 14]
    %2 = avgpool %1 {...} : f32[8, 64, 7, 7]
    %3 = transpose %2 {perm=(0, 2, 3, 1)} : f32[8, 7, 7, 64]

After::

    %1 = avgpool_last %0 {...} : f32[8, 7, 7, 64]

The rules are those of ``transposes.py``, for these transposes alone. The pass ``channels_last`` has placed the
convolutions before, so they stay, and so do adaptive pools, whose kernels add large windows faster with channels first.
Results keep their bits up to the order of sums in reductions, interpolation and pools. Linear in nodes and reads.
"""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.graph import Graph
from dslc.compiler.ops.spatial.adaptive_pool import AdaptiveAvgPool, AdaptiveAvgPoolGrad, AdaptiveMaxPool
from dslc.compiler.ops.spatial.channels_last import to_first
from dslc.compiler.ops.spatial.conv import Convolution
from dslc.compiler.passes.lower.layout.transposes import without

_FIRST: Final = (Convolution, AdaptiveAvgPool, AdaptiveAvgPoolGrad, AdaptiveMaxPool)


def image_transposes(graph: Graph) -> Graph:
    """The graph without such transposes; the same object if there are none."""
    return without(graph, lambda perm: perm == to_first(len(perm)), lambda node: not isinstance(node.op, _FIRST))
