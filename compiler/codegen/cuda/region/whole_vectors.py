"""Schedules of long pointwise regions whose length, or whose rows' length, no vector divides.

A thread moves 16 bytes at once only if all vectors are whole. An elementwise op on bf16[2049, 2051], dense in memory,
is one axis of 4,202,499 elements: 4,202,496 are moved in vectors of eight, and three threads have one more element. So
are those of arguments that have one value for each row, such as the gradient of a sum: a vector in which a row ends has
two values of them. In other regions of several axes, such as a concat of odd rows, the places of neighbours are no
whole vectors: a thread has several short vectors, one block of threads apart, so that neighbouring threads move
neighbouring bytes and a block does not end after one element per thread. If the rows are long, a block has a piece of
one row, so no thread divides the number of each element to find its row. If they are short, but the results are in
order, a thread writes a whole vector and finds the rows in which it begins and ends; then only the loads are short.
Each element is computed as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cuda.region.schedule import flattened, narrow, schedule, vector_of
from dslc.compiler.codegen.cuda.region.thread_mapping import BLOCK_THREADS, Flat
from dslc.compiler.codegen.region.ir import Access, Let, Region, dense
from dslc.compiler.codegen.region.queries import used_values

#: Elements from which fewer threads still keep the GPU busy: 2 for each of an H200's 270,336 threads.
_LEAST: Final = 1 << 19
_SHORT: Final = 4  # parts of a vector from which whole words of the result, read by elements, are faster than parts
_FULL: Final = 4  # blocks of one row from which a block has a piece of one row: most of its threads have elements


def whole_vectors(region: Region) -> Flat | None:
    """The schedule of such a region without reductions; None if its own one is as good."""
    own, vector = schedule(region), vector_of(region)
    if not isinstance(own, Flat) or own.count < _LEAST:
        return None
    flat = flattened(region)
    if flat.outer[-1] % vector and _is_plain(flat, vector):
        return Flat(own.count, vector, 1, rest=own.count % vector)
    found = narrow(region)
    return _in_lines(found, flat, vector) if found else None


def _in_lines(found: Sequence[Flat], region: Region, vector: int) -> Flat:
    """For long lines, the one of these schedules that leaves the fewest threads without an element, with a line for
    each block and no more vectors than its pieces need. Of short ones, whole vectors of the results if these are in
    order and the first schedule's are shorter than halves of them, else the first schedule."""
    line = region.outer[-1]
    each = line // BLOCK_THREADS >= _FULL and all(a.repeat == 1 for a in (*region.inputs, *region.outputs))
    if not each or len(region.outer) == 1:
        if found[0].held < _SHORT or line < vector or not _is_written_in_order(region, vector):
            return found[0]
        return Flat(found[0].count, vector, 1, rest=found[0].count % vector)
    whole = (replace(flat, line=line) for flat in found)
    full = [replace(flat, held=-(-line // (flat.pieces * BLOCK_THREADS * flat.vector))) for flat in whole]
    return min(full, key=lambda flat: (flat.pieces * flat.held, flat.pieces))


def _is_plain(region: Region, vector: int) -> bool:
    """Whether vectors begin at whole words of all arguments but those with one value for each row, and no element
    depends on its place."""
    if region.indices or any(a.repeat > 1 or a.bits or a.mixed_radix for a in (*region.inputs, *region.outputs)):
        return False
    counted = any(region.index in used_values(stage) for stage in region.stages)
    if counted or any(not isinstance(let, Let) for stage in region.stages for let in stage.lets):
        return False
    values = [a for a in region.inputs if a.strides[-1] == 0 and region.outer[-1] >= vector]
    return all(_is_in_order(a, region, vector) for a in (*region.inputs, *region.outputs) if a not in values)


def _is_written_in_order(region: Region, vector: int) -> bool:
    """Whether vectors begin at whole words of the results, and the rows of all arguments are contiguous."""
    contiguous = all(a.strides[-1] in (0, 1) and a.repeat == 1 for a in region.inputs)
    return contiguous and all(_is_in_order(a, region, vector) for a in region.outputs)


def _is_in_order(access: Access, region: Region, vector: int) -> bool:
    return access.strides == dense(region.outer) and access.offset % vector == 0
