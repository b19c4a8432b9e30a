"""Lowers nodes to dslc's own CPU kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import tasks_of
from dslc.compiler.codegen.cpu.llvm.scalar_ops import can_emit
from dslc.compiler.codegen.cpu.llvm.writer import SUPPORTED
from dslc.compiler.codegen.cpu.ops.random import DrawLaunch
from dslc.compiler.codegen.cpu.region.size_generic import RegionLaunch
from dslc.compiler.codegen.cpu.region.split_choice import split_choice
from dslc.compiler.codegen.launch import Launch, SizeGeneric, inplace_pairs
from dslc.compiler.codegen.lowerings import Lowering, lowerings
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.region.random import Draw
from dslc.compiler.codegen.region.split_rows import split_rows
from dslc.compiler.ir.graph import Node
from dslc.compiler.ops.compound.fused import has_bits, is_elementwise

LOWERINGS: Final[Mapping[str, Lowering]] = lowerings("cpu")
#: The launches of the descriptions that all targets share.
SHARED: Final[Mapping[type, Callable[[Any], SizeGeneric]]] = {Region: RegionLaunch, Draw: DrawLaunch}
MAX_ARGUMENTS: Final = 1024  # most arguments of one kernel that the plan can hold


def lower(node: Node) -> list[Launch] | None:
    """The launches that compute a node, in order; None if no kernel exists for it. Sizes must be ints."""
    if not _has_kernel_for_types(node):
        return None
    if not any(t.bytes for t in node.types):
        return []
    launches = _described(node)
    if launches is None or any(len(x.reads) + len(x.writes) > MAX_ARGUMENTS for x in launches):
        return None
    launches = [_without_canonical_strides(x) for x in launches]
    launches = [x for x in launches if not isinstance(x.spec, Region) or x.spec.rows]
    launches = [_on_cpu(x) for x in split_rows(launches, split_choice, inplace_pairs(node))]
    return [x for x in launches if tasks_of(x.spec)]


def _has_kernel_for_types(node: Node) -> bool:
    """False for a dtype that no kernel takes, and for 16-bit floats of an op that does not compute in them."""
    types = (*node.input_types, *node.types)
    in_halves = is_elementwise(node.op) or node.op.moves or node.op.in_halves
    return all(t.dtype in SUPPORTED and (in_halves or not t.dtype.is_half) for t in types)


def _described(node: Node) -> list[Launch] | None:
    """The launches as regions that all targets share, or as this target's kernels; None without a lowering."""
    if "body" in node.attrs and has_bits(node.attrs):
        return None
    if is_elementwise(node.op):
        supported = all(can_emit(expr, dtypes) for expr, dtypes in pointwise.trees(node))
        return pointwise.pointwise(node) if supported else None
    found = LOWERINGS.get(node.op.name)
    return None if found is None else found(node)


def _on_cpu(launch: Launch) -> Launch:
    """The launch with the CPU's description in place of one that all targets share."""
    kind = SHARED.get(type(launch.spec))
    return launch if kind is None else launch.with_spec(kind(launch.spec))


def _without_canonical_strides(launch: Launch) -> Launch:
    """The launch without ``canonical_strides``, so that it is identified by its merged axes only."""
    if not isinstance(launch.spec, Region) or not launch.spec.canonical_strides:
        return launch
    return launch.with_spec(replace(launch.spec, canonical_strides=()))
