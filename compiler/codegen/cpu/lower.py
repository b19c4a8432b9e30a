"""Lowers nodes to dslc's own CPU kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cpu.llvm.scalar_ops import can_emit
from dslc.compiler.codegen.cpu.llvm.writer import SUPPORTED, VECTOR_BYTES
from dslc.compiler.codegen.cpu.object.compile import kernel_of
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import Lowering, lowerings
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.region.split_rows import can_split, split_rows
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ops.fused import has_bits

LOWERINGS: Final[Mapping[str, Lowering]] = lowerings("cpu")
MAX_ARGUMENTS: Final = 1024  # most arguments of one kernel that the plan can hold


def lower(node: Node) -> list[Launch] | None:
    """The launches that compute a node, in order; None if no kernel exists for it. Sizes must be ints."""
    if any(t.dtype not in SUPPORTED for t in (*node.input_types, *node.types)):
        return None
    if not any(t.bytes for t in node.types):
        return []
    if "body" in node.attrs and has_bits(node.attrs):
        return None
    if isinstance(node.op, Pointwise) or node.op.name == "fused":
        if not all(can_emit(expr, dtypes) for expr, dtypes in pointwise.trees(node)):
            return None
        launches: list[Launch] | None = pointwise.pointwise(node)
    else:
        found = LOWERINGS.get(node.op.name)
        launches = None if found is None else found(node)
    if launches is None or any(len(x.reads) + len(x.writes) > MAX_ARGUMENTS for x in launches):
        return None
    return _split_rows([x for x in map(_without_canonical_strides, launches) if kernel_of(x.spec).tasks])


def _without_canonical_strides(launch: Launch) -> Launch:
    """The launch without ``canonical_strides``, so that it is identified by its merged axes only."""
    if not isinstance(launch.spec, Region) or not launch.spec.canonical_strides:
        return launch
    return replace(launch, spec=replace(launch.spec, canonical_strides=()))


_MIN_TASKS: Final = 16  # a kernel with fewer tasks leaves threads idle
_WANTED_TASKS: Final = 64  # tasks of a split kernel
_MIN_PART: Final = 4096  # fewest elements of a part
_MIN_WORK: Final = 1 << 16  # fewest elements per task that are worth two more launches


def _split_rows(launches: Sequence[Launch]) -> list[Launch]:
    """Splits reductions of few long rows into parts (split reduction)."""
    found: list[Launch] = []
    free = max((x.number + 1 for launch in launches for x in launch.scratch), default=0)
    for launch in launches:
        parts = _part_count(launch.spec)
        made = [launch] if parts < 2 else split_rows(launch, parts, free)
        free = max((free, *(x.number + 1 for m in made for x in m.scratch)))
        found += made
    return found


def _part_count(spec: object) -> int:
    """The number of parts into which to split a kernel's rows; 1 if splitting does not pay."""
    if not isinstance(spec, Region) or not can_split(spec):
        return 1
    tasks, row = kernel_of(spec).tasks, math.prod(spec.inner)
    if tasks >= _MIN_TASKS or row * spec.rows < _MIN_WORK * tasks:
        return 1
    return min(-(-_WANTED_TASKS // tasks), row * min(spec.rows, VECTOR_BYTES // 4) // _MIN_PART)
