"""Lowers nodes to dslc's own CPU kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cpu.attention import lower as attentions
from dslc.compiler.codegen.cpu.contraction import conv_image as correlate
from dslc.compiler.codegen.cpu.contraction import lower as contractions
from dslc.compiler.codegen.cpu.llvm.scalar_ops import can_print
from dslc.compiler.codegen.cpu.llvm.writer import SUPPORTED, VECTOR_BYTES
from dslc.compiler.codegen.cpu.object.compile import tasks
from dslc.compiler.codegen.cpu.ops import indexing, pooling, random
from dslc.compiler.codegen.cpu.ops import literal as constants
from dslc.compiler.codegen.cpu.ops import multi_tensor as foreach
from dslc.compiler.codegen.cpu.ops import topk as order
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
from dslc.compiler.codegen.region.split_rows import can_spread, spread
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ops.fused import has_bits

_LOWERED: Final[Mapping[str, Callable[[Node], list[Launch] | None]]] = {
    **pointwise.LOWERED,
    **rows.LOWERED,
    **norms.LOWERED,
    **scans.LOWERED,
    **pools.LOWERED,
    **interpolation.LOWERED,
    **updates.LOWERED,
    **foreach.LOWERED,
    **correlate.LOWERED,
    **pooling.LOWERED,
    **random.LOWERED,
    **contractions.LOWERED,
    **attentions.LOWERED,
    **classes.LOWERED,
    **cross_entropy.LOWERED,
    **clipping.LOWERED,
    **indexing.LOWERED,
    **order.LOWERED,
}
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
        if not all(can_print(expr, dtypes) for expr, dtypes in pointwise.trees(node)):
            return None
        launches: list[Launch] | None = pointwise.pointwise(node)
    else:
        found = _LOWERED.get(node.op.name)
        launches = None if found is None else found(node)
        if launches is None and node.op.name == "literal":
            launches = constants.literal(node)
        if launches is None and node.op.name in correlate.LOWERED:  # strides that would take too many kernels
            launches = correlate.LOWERED[node.op.name](node)
    if launches is None or any(len(x.reads) + len(x.writes) > MAX_ARGUMENTS for x in launches):
        return None
    return _spread([x for x in map(_placed, launches) if tasks(x.spec)])


def _placed(launch: Launch) -> Launch:
    """The launch without ``whole``, so that it is identified by its merged axes only."""
    whole = isinstance(launch.spec, Region) and launch.spec.whole
    return replace(launch, spec=replace(launch.spec, whole=())) if whole else launch


_FEW: Final = 16  # a kernel with fewer tasks leaves threads idle
_WANTED: Final = 64  # tasks of a split kernel
_LEAST: Final = 4096  # fewest elements of a part
_WORTH: Final = 1 << 16  # fewest elements per task that are worth two more launches


def _spread(launches: Sequence[Launch]) -> list[Launch]:
    """Splits reductions of few long rows into parts (split reduction)."""
    found: list[Launch] = []
    free = max((x.number + 1 for launch in launches for x in launch.scratch), default=0)
    for launch in launches:
        parts = _parts(launch.spec)
        made = [launch] if parts < 2 else spread(launch, parts, free)
        free = max((free, *(x.number + 1 for m in made for x in m.scratch)))
        found += made
    return found


def _parts(spec: object) -> int:
    """The number of parts into which to split a kernel's rows; 1 if splitting does not pay."""
    if not isinstance(spec, Region) or not can_spread(spec) or tasks(spec) >= _FEW:
        return 1
    row = math.prod(spec.inner)
    if row * spec.rows < _WORTH * tasks(spec):
        return 1
    return min(-(-_WANTED // tasks(spec)), row * min(spec.rows, VECTOR_BYTES // 4) // _LEAST)
