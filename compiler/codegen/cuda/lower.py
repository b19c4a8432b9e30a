"""Lowers nodes to GPU kernels.

A node becomes regions or descriptions of CUDA C++ kernels (``lower``). Regions are then rewritten for the GPU
(``_optimised``), and kernels that can take their sizes as arguments do so (``_size_generic``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.codegen.cuda.ops.package_kernels import own_kernel
from dslc.compiler.codegen.cuda.ops.random import DrawKernel
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
    if is_elementwise(node.op):
        return _size_generic(pointwise.pointwise(node))
    if isinstance(node.op, FusedRows):
        return _with_neighbours(node, choose)
    launches = own_kernel(node) if isinstance(node.op, Composed) else _by_lowering(node)
    return None if launches is None else for_gpu(node, launches, choose)


def for_gpu(node: Node, launches: list[Launch], choose: Chooser = split_choice) -> list[Launch]:
    """The launches of a node that is not pointwise as the GPU runs them, from those that its lowering returned."""
    return _size_generic(_optimised(node, launches, choose))


def _by_lowering(node: Node) -> list[Launch] | None:
    """What the function that ``@lowers`` the node's op returns; None without one."""
    lowering = LOWERINGS.get(node.op.name)
    return None if lowering is None else lowering(node)


def _with_neighbours(node: Node, choose: Chooser) -> list[Launch] | None:
    """The launches of an op with pointwise steps before and after it; None if its kernels cannot compute them."""
    core, steps = core_of(node)
    launches = _by_lowering(core)
    if launches is None:
        return None
    try:
        return _size_generic(with_neighbours(_optimised(core, launches, choose), core, steps, node.out))
    except Unfit:
        return None


def _optimised(node: Node, launches: list[Launch], choose: Chooser) -> list[Launch]:
    """The launches with fewer axes, values inside of ops in f32, and long rows split; without those that write
    nothing."""
    launches = [x for x in launches if not isinstance(x.spec, Region) or writes(x.spec)]
    launches = _each_region(launches, merge_axes)
    if not isinstance(node.op, FusedSums):  # the values of FusedSums are results of ops, which are rounded
        launches = _each_region(launches, promote_f32)
    blocks = {block for launch in launches for block in launch.scratch}
    is_pair = len(launches) == 2 and all(isinstance(x.spec, Region) for x in launches)
    swept = sweep(launches[0], launches[1], len(blocks)) if is_pair else None
    return split_rows(swept or launches, choose, inplace_pairs(node))


def _each_region(launches: list[Launch], rewrite: Callable[[Region], Region]) -> list[Launch]:
    return [x.with_spec(rewrite(x.spec)) if isinstance(x.spec, Region) else x for x in launches]


def _size_generic(launches: list[Launch]) -> list[Launch]:
    """The launches, of kernels that get their sizes as arguments where these exist."""
    found: list[Launch] = []
    for launch in launches:
        match launch.spec:
            case Region():
                found.append(sized(launch))
            case Draw() as draw:
                found.append(launch.with_spec(DrawKernel(draw)))
            case _:
                found.append(launch)
    return found
