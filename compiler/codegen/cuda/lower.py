"""Lowers nodes to GPU kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dslc.compiler.codegen.cuda.ops.package_kernels import own_kernel
from dslc.compiler.codegen.cuda.ops.random import DrawKernel
from dslc.compiler.codegen.cuda.region.axis_pieces import Unfit
from dslc.compiler.codegen.cuda.region.kernel import sized, writes
from dslc.compiler.codegen.cuda.region.merge_axes import merge_axes
from dslc.compiler.codegen.cuda.region.neighbours import with_neighbours
from dslc.compiler.codegen.cuda.region.promote_f32 import promote_f32
from dslc.compiler.codegen.cuda.region.reduction.row_column_sweep import sweep
from dslc.compiler.codegen.cuda.region.split_choice import split_choice
from dslc.compiler.codegen.launch import Launch, inplace_pairs
from dslc.compiler.codegen.lowerings import Lowering, lowerings
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.region.cut import Chooser
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.region.random import Draw
from dslc.compiler.codegen.region.split_rows import split_rows
from dslc.compiler.ir.graph import Node
from dslc.compiler.ops.compound.fused import is_elementwise
from dslc.compiler.ops.compound.fused_rows import FusedRows, core_of
from dslc.compiler.ops.compound.fused_sums import FusedSums
from dslc.compiler.ops.packages.composed import Composed

LOWERINGS: Final[Mapping[str, Lowering]] = lowerings("cuda")


def lower(node: Node, choose: Chooser = split_choice) -> list[Launch] | None:
    """The launches that compute a node, in order; None if it has no kernel. Sizes must be ints. ``choose``: how long
    rows are split."""
    if not any(type.bytes for type in node.types):
        return []
    elementwise = is_elementwise(node.op)
    if elementwise:
        launches: list[Launch] | None = pointwise.pointwise(node)
    elif isinstance(node.op, FusedRows):
        return _with_neighbours(node, choose)
    elif isinstance(node.op, Composed):
        launches = own_kernel(node)
    else:
        found = LOWERINGS.get(node.op.name)
        launches = None if found is None else found(node)
    if launches is None:
        return None
    return _size_generic(launches) if elementwise else finished(node, launches, choose)


def finished(node: Node, launches: list[Launch], choose: Chooser = split_choice) -> list[Launch]:
    """The launches of a node that is not pointwise as the GPU runs them, from those of its lowering."""
    return _size_generic(_prepared(node, launches, choose))


def _with_neighbours(node: Node, choose: Chooser) -> list[Launch] | None:
    """The launches of an op with pointwise steps before and after it; None if its kernels cannot compute them."""
    core, steps = core_of(node)
    found = LOWERINGS.get(core.op.name)
    launches = None if found is None else found(core)
    if launches is None:
        return None
    try:
        return _size_generic(with_neighbours(_prepared(core, launches, choose), core, steps, node.out))
    except Unfit:
        return None


def _size_generic(launches: list[Launch]) -> list[Launch]:
    """The launches, of kernels that get their sizes as arguments where these exist."""
    found: list[Launch] = []
    for launch in launches:
        match launch.spec:
            case Region():
                found.append(sized(launch))
            case Draw() as draw:
                found.append(launch.of(DrawKernel(draw)))
            case _:
                found.append(launch)
    return found


def _prepared(node: Node, launches: list[Launch], choose: Chooser) -> list[Launch]:
    """The launches with f32 inside ops and long rows split; drops launches that write nothing."""
    launches = [x for x in launches if not isinstance(x.spec, Region) or writes(x.spec)]
    launches = [x.of(merge_axes(x.spec)) if isinstance(x.spec, Region) else x for x in launches]
    if not isinstance(node.op, FusedSums):  # the values of FusedSums are results of ops
        launches = [x.of(promote_f32(x.spec)) if isinstance(x.spec, Region) else x for x in launches]
    blocks = {block for launch in launches for block in launch.scratch}
    swept = sweep(launches[0], launches[1], len(blocks)) if _regions(launches) == 2 == len(launches) else None
    return split_rows(swept or launches, choose, inplace_pairs(node))


def _regions(launches: list[Launch]) -> int:
    return sum(isinstance(x.spec, Region) for x in launches)
