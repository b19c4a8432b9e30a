"""Lowers nodes to GPU kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cuda.attention import lower as attention
from dslc.compiler.codegen.cuda.contraction import lower as contractions
from dslc.compiler.codegen.cuda.ops import concat as concats
from dslc.compiler.codegen.cuda.ops import indexing, pooling
from dslc.compiler.codegen.cuda.ops import multi_tensor as foreach
from dslc.compiler.codegen.cuda.ops import pick as picking
from dslc.compiler.codegen.cuda.ops import random as drawing
from dslc.compiler.codegen.cuda.ops import topk as ordering
from dslc.compiler.codegen.cuda.region.kernel import sized, writes
from dslc.compiler.codegen.cuda.region.merge_axes import joined
from dslc.compiler.codegen.cuda.region.promote_f32 import computed_inside
from dslc.compiler.codegen.cuda.region.row_column_sweep import sweep
from dslc.compiler.codegen.cuda.region.split_rows import split
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region import cross_entropy, interpolation, pointwise
from dslc.compiler.codegen.region import grad_norm as clipping
from dslc.compiler.codegen.region import normalization as norms
from dslc.compiler.codegen.region import one_hot as classes
from dslc.compiler.codegen.region import optimizer as updates
from dslc.compiler.codegen.region import pooling as pools
from dslc.compiler.codegen.region import reduction as rows
from dslc.compiler.codegen.region import scan as scans
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ops.fused_sums import FusedSums

_LOWERED: Final[Mapping[str, Callable[[Node], list[Launch] | None]]] = {
    **pointwise.LOWERED,
    **pointwise.BITS,
    **rows.LOWERED,
    **norms.LOWERED,
    **scans.LOWERED,
    **pools.LOWERED,
    **interpolation.LOWERED,
    **classes.LOWERED,
    **cross_entropy.LOWERED,
    **updates.LOWERED,
    **foreach.LOWERED,
    **picking.LOWERED,
    **clipping.LOWERED,
    **attention.LOWERED,
    **indexing.LOWERED,
    **ordering.LOWERED,
    **drawing.LOWERED,
    **pooling.LOWERED,
    **contractions.LOWERED,
    **concats.LOWERED,
}


def lower(node: Node) -> list[Launch] | None:
    """The launches that compute a node, in order; None if it has no kernel. Sizes must be ints."""
    if not any(type.bytes for type in node.types):
        return []
    chain = isinstance(node.op, Pointwise) or node.op.name == "fused"
    if chain:
        launches: list[Launch] | None = pointwise.pointwise(node)
    else:
        found = _LOWERED.get(node.op.name)
        launches = None if found is None else found(node)
    if launches is None:
        return None
    return [sized(launch) for launch in (launches if chain else _prepared(node, launches))]


def _prepared(node: Node, launches: list[Launch]) -> list[Launch]:
    """The launches with f32 inside ops and long rows split; drops launches that write nothing."""
    conflicts = [
        (node.inputs[i], node.outputs[o]) for i, o in node.op.inplace if i < len(node.inputs) and o < len(node.outputs)
    ]
    launches = [x for x in launches if not isinstance(x.spec, Region) or writes(x.spec)]
    launches = [replace(x, spec=joined(x.spec)) if isinstance(x.spec, Region) else x for x in launches]
    if not isinstance(node.op, FusedSums):  # the values of FusedSums are results of ops
        launches = [replace(x, spec=computed_inside(x.spec)) if isinstance(x.spec, Region) else x for x in launches]
    blocks = {block for launch in launches for block in launch.scratch}
    swept = sweep(launches[0], launches[1], len(blocks)) if _regions(launches) == 2 == len(launches) else None
    prepared: list[Launch] = []
    blocks |= {block for launch in swept or () for block in launch.scratch}
    for launch in swept or launches:
        several = split(launch, conflicts, len(blocks)) if isinstance(launch.spec, Region) else [launch]
        blocks |= {block for each in several for block in each.scratch}
        prepared += several
    return prepared


def _regions(launches: list[Launch]) -> int:
    return sum(isinstance(x.spec, Region) for x in launches)
