"""Scatters that replace elements as one node, where kernels take lines of any length along any axis.

Before::

    %1 = scatter_reduce %none, %places, %ids {axis=0, how=max} : i32[1000, 64]  # the last place of each id, or -1
    %2 = gather %src, max(%1, 0) : f32[1000, 64]
    %3 = where %1 >= 0, %2, %x : f32[1000, 64]

After::

    %3 = scatter_last %src, %ids, %x {axis=0} : f32[1000, 64]

The rules, those of gradients among them, are in ``last_indices.py``. Results keep their bits.
"""

from __future__ import annotations

import dataclasses

from dslc.compiler.ir.graph import Graph
from dslc.compiler.passes.fuse.indexed.last_indices import last_indices


def replacements(graph: Graph) -> Graph:
    """The graph with such nodes; the same object if it has no such scatter. Linear in nodes."""
    changed = last_indices(graph, any_axis=True)
    return graph if changed is graph else dataclasses.replace(changed, nodes=changed.live_nodes())
