"""Computes a pointwise producer inside its readers if that moves fewer bytes than storing its result.

Before, y and dz are in memory::

    %1 = fused %y, %dz {where(y > 0, dz, 0)} : bf16[8, 14, 14, 64]
    %2, %3 = fused_sums %1, %x, ... {...} : f32[64], f32[64]
    %4 = fused %1, %x, ... {...} : bf16[8, 14, 14, 64]

After::

    %2, %3 = fused_sums %y, %dz, %x, ... {where(y > 0, dz, 0), ...} : f32[64], f32[64]
    %4 = fused %y, %dz, %x, ... {where(y > 0, dz, 0), ...} : bf16[8, 14, 14, 64]

Readers are pointwise nodes with one result, and sums. The other ops that take neighbours (``row_bodies.py``) compute
what has more bytes than its inputs, such as a cast to f32, if ``fits`` says so. They also compute a value that vanishes
if it comes from one large tensor, as a mask of the maxima of rows does. There are two rules:

- The value vanishes: it is no result of the program, and each of its readers computes it. The producer's inputs, read
  once per reader, must have at most as many bytes as making, writing and reading the value. So each reader that needs
  f32 casts a 16-bit tensor itself. If there is one reader, it is a reduction, or one of the two nodes draws random
  numbers: ``fuse`` has merged all other pairs. So dropout is fused, and its mask is drawn again instead of stored.
- The value costs nothing: a reader already loads everything that it is computed from, except for small tensors such as
  a value per channel. The steps must be few and cheap: a kernel that waits for memory hides some of them, but not a
  tanh. Other readers may still load the value::

    %4 = fused %x, %mean, %scale, %bias {relu((x - mean) * scale + bias)} : bf16[8, 14, 14, 64]  # relu forward
    %8, %9 = fused_sums %dy, %4, %x, %mean, %invstd {where(y <= 0, 0, dy), ...} : f32[64], f32[64]

    %8, %9 = fused_sums %dy, %x, %mean, %scale, %bias, %invstd {where(relu((x - mean) * scale + bias) <= 0, ...), ...}

Results keep their bits. GPU only; linear in nodes and reads, except for chains of values that vanish.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ops.compound.fused import MAX_STEPS
from dslc.compiler.ops.compound.fused_sums import full_shape, fused_sums
from dslc.compiler.passes.fuse.body import (
    body_of,
    draws,
    has_neighbours,
    inlined,
    is_pointwise_or_draw,
    ops_of,
    with_producers,
)
from dslc.compiler.passes.fuse.reduction.row_bodies import Fits, joins, times_computed
from dslc.compiler.passes.queries import SMALL_BYTES, is_small

_MAX_FREE_STEPS: Final = 12  # of a value that costs nothing


def inline(graph: Graph, fits: Fits = lambda node: True) -> Graph:
    """The graph in which no more producers can move into their readers. Deterministic and idempotent."""
    while chosen := _chosen(graph, fits):
        graph = inlined(graph, chosen)
    return graph


def _chosen(graph: Graph, fits: Fits) -> dict[Node, list[Node]]:
    """A reader -> the producers of the inputs that it will compute. Of a chain of values that vanish, the last."""
    readers, roots = graph.readers(), set(graph.roots)
    found: dict[Node, set[Node]] = {}
    vanishing: set[Node] = set()
    for made in reversed(graph.nodes):
        own = readers.get(made.out, []) if is_pointwise_or_draw(made) else []
        if not own or any(reader in vanishing for reader in own):
            continue
        late = len(own) == 1 and is_small(made.out)
        several = len(own) > 1 and made.out not in roots and _reads_as_much(made)
        able = [reader for reader in own if _may_compute(reader, made, found.get(reader, set()), fits, late, several)]
        vanishes = made.out not in roots and able == own and _saves_bytes(made, own)
        takers = able if vanishes else [reader for reader in able if not times_computed(reader) or _widens(made)]
        if vanishes:
            vanishing.add(made)
        for reader in takers:
            if vanishes or _costs_nothing(made, reader):
                found.setdefault(reader, set()).add(made)
    # the order of a body is that of its node's inputs
    return {node: [v.producer for v in dict.fromkeys(node.inputs) if v.producer in own] for node, own in found.items()}


def _may_compute(reader: Node, made: Node, others: Collection[Node], fits: Fits, late: bool, several: bool) -> bool:
    """Whether the reader's kernel can compute the value next to ``others``. ``late``: of the ops that ``row_bodies``
    joins, that pass does it: before, sums of small tensors may become one kernel. ``several``: so does such an op if
    the value has no more bytes than what it is computed from."""
    if sum(len(body_of(n)) for n in (reader, made, *others)) > MAX_STEPS:
        return False
    if times_computed(reader):
        wider = made.phase is reader.phase and _widens(made)
        if late or not (several or wider) or not joins(made, reader):
            return False
        producers = [v.producer for v in dict.fromkeys(reader.inputs) if v.producer in (made, *others)]
        return fits(with_producers(reader, producers))
    if reader.op is fused_sums:
        drawn = draws(made) or draws(reader)
        return "finish" not in reader.attrs and (not drawn or _is_summed(made.out, made, reader))
    operand = reader.op.name != "dropout" or made.out is reader.inputs[0]  # not one of dropout's scalars
    return is_pointwise_or_draw(reader) and operand


def _widens(made: Node) -> bool:
    """Whether a value has more bytes than what it is computed from. Other values are left to the passes that let a sum
    store its operand, too."""
    return sum(v.type.bytes for v in dict.fromkeys(made.inputs)) < made.out.type.bytes


def _reads_as_much(made: Node) -> bool:
    """Whether a value is computed from about as many bytes as it has, and no fewer: from one large tensor."""
    own, read = made.out.type.bytes, sum(v.type.bytes for v in dict.fromkeys(made.inputs))
    return own <= read <= own + max(SMALL_BYTES, own // 4)


def _is_summed(value: Value, made: Node, sums: Node) -> bool:
    """Whether the value has the shape of the summed tensor and another operand has it, too: that operand's layout
    decides the order of the sums."""
    read = {v.type.shape for v in (*sums.inputs, *made.inputs) if v is not value}
    return value.type.ints == full_shape(sums) and value.type.shape in read and has_neighbours(value)


def _saves_bytes(made: Node, readers: Sequence[Node]) -> bool:
    """Whether fewer bytes are moved if each reader computes the value."""
    type, drawn = made.types[0], draws(made) or any(map(draws, readers))
    whole = [r for r in readers if r.op is not fused_sums and not times_computed(r)]
    if any(r.types[0].shape != type.shape for r in whole) or not made.inputs:
        return False
    if len(readers) == 1 and not times_computed(readers[0]):
        return drawn or not whole
    read, count = sum(v.type.bytes for v in dict.fromkeys(made.inputs)), sum(times_computed(r) or 1 for r in readers)
    return not drawn and read * count <= read + type.bytes * (1 + count)


def _costs_nothing(made: Node, reader: Node) -> bool:
    """Whether the reader computes the value from what it reads in any case."""
    if (
        times_computed(reader) > 1
        or is_small(made.out)
        or len(body_of(made)) > _MAX_FREE_STEPS
        or not all(op.cheap for op in ops_of(made))
    ):
        return False
    large = any(v.type.shape == made.types[0].shape for v in made.inputs)
    return large and all(v in reader.inputs or is_small(v) for v in made.inputs)
