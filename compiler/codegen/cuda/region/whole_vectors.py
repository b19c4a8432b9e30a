"""Schedules of long pointwise regions whose length, or whose rows' length, no vector divides.

A thread moves 16 bytes at once only if all vectors are whole. An elementwise op on bf16[2049, 2051], dense in memory,
is one axis of 4,202,499 elements: 4,202,496 are moved in vectors of eight, and three threads have one more element. So
are those of arguments that have one value for each row, such as the gradient of a sum: a vector in which a row ends has
two values of them. In other regions of several axes, such as a concat of odd rows, the places of neighbours are no
whole vectors: a thread has several short vectors, one block of threads apart, so that neighbouring threads move
neighbouring bytes and a block does not end after one element per thread. If the rows are long, a block has a piece of
one row, so no thread divides the number of each element to find its row. Each element is computed as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cuda.region.schedule import flattened, has_row_values, narrow, schedule, vector_of
from dslc.compiler.codegen.cuda.region.thread_mapping import BLOCK_THREADS, Flat
from dslc.compiler.codegen.region.ir import Let, Region, dense
from dslc.compiler.codegen.region.queries import used_values

#: Elements from which fewer threads still keep the GPU busy: 2 for each of an H200's 270,336 threads.
_LEAST: Final = 1 << 19
_SHORT: Final = 4  # parts of a vector that neighbouring threads move together; two of its halves are as fast apart


def whole_vectors(region: Region) -> Flat | None:
    """The schedule of such a region without reductions; None if its own one is as good."""
    own, vector = schedule(region), vector_of(region)
    if not isinstance(own, Flat) or own.count < _LEAST:
        return None
    flat = flattened(region)
    if flat.outer[-1] % vector and _is_plain(flat, vector):
        return Flat(own.count, vector, 1, rest=own.count % vector)
    found = narrow(region)
    return _in_lines(found, flat) if found and found[0].held >= _SHORT else None


def _in_lines(found: Sequence[Flat], region: Region) -> Flat:
    """The first of these schedules, or, for long lines, the one that leaves the fewest threads without an element, with
    a line for each block."""
    line = region.outer[-1]
    each = line // BLOCK_THREADS >= _SHORT and all(a.repeat == 1 for a in (*region.inputs, *region.outputs))
    if not each or len(region.outer) == 1:
        return found[0]
    return min((replace(flat, line=line) for flat in found), key=lambda flat: (flat.pieces * flat.held, flat.pieces))


def _is_plain(region: Region, vector: int) -> bool:
    """Whether vectors begin at whole words of all arguments but those with one value for each row, and no element
    depends on its place."""
    accesses = (*region.inputs, *region.outputs)
    if region.indices or any(a.repeat > 1 or a.bits or a.mixed_radix for a in accesses):
        return False
    in_order = [a for a in accesses if not has_row_values(a, region.outer, vector)]
    counted = any(region.index in used_values(stage) for stage in region.stages)
    if counted or any(a.strides != dense(region.outer) or a.offset % vector for a in in_order):
        return False
    return all(isinstance(let, Let) for stage in region.stages for let in stage.lets)
