"""Fuses a row region with a column reduction over the same tensors, in one pass over memory.

The gradient of a layer norm is two regions over the same tensors: one of rows, and one of columns for the gradients of
weight and bias. Here every block processes many rows. Each thread accumulates its columns' sums in registers and
finally stores them as one row of partial sums::

    rows      outer (8192) inner (1024)    x, dy -> dx             sweep     x, dy -> dx, scratch [528, 1024] twice
    columns   outer (1024) inner (8192)    x, dy -> dw, db         columns   outer (1024) inner (528) -> dw, db
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cuda.region.reduction.sweep import MULTIPROCESSORS, RESIDENT, Sweep, schedule_of
from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Columns, Rows
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.ir import Access, Let, Region, Stage, dense
from dslc.compiler.codegen.region.queries import substituted, used_values
from dslc.compiler.ir.scalar import argument

_MIN_ROWS: Final = 8  # rows per team below which the partial sums cost too much


def sweep(rows: Launch, columns: Launch, scratch: int) -> list[Launch] | None:
    """Launches that replace one of rows and one of columns; None if that does not pay or does not apply.

    ``scratch``: index of the first free scratch block.
    """
    merged = _fused_region(rows, columns)
    if merged is None:
        return None
    cut = schedule_of(merged)
    if not isinstance(cut, Rows) or cut.chunks != 1:
        return None
    teams = cut.teams * max(MULTIPROCESSORS, MULTIPROCESSORS * RESIDENT // (cut.team * cut.teams))
    least = -(-cut.rows // teams)
    if least < _MIN_ROWS:
        return None
    even = (n for n in range(least, 2 * least) if cut.rows % (n * cut.teams) == 0)
    steps = next(even, least)
    spec = Sweep(merged, steps)
    length = math.prod(merged.inner)
    partial = [Scratch(scratch + i, spec.teams * length * d.itemsize) for i, d in enumerate(spec.partial)]
    return [Launch(spec, rows.reads, (*rows.writes, *partial)), _combine_partial(columns, partial, spec)]


def _fused_region(rows: Launch, columns: Launch) -> Region | None:
    """The region of rows with the columns' element stage as its last stage, if both read the same tensors; else
    None."""
    a: Region = rows.spec
    b: Region = columns.spec
    if any(x.mixed_radix for x in (*a.inputs, *b.inputs)):
        return None
    if a.indices or b.indices or len(a.outer) != 1 or len(a.inner) != 1 or (b.outer, b.inner) != (a.inner, a.outer):
        return None
    if not isinstance(schedule(a), Rows) or not isinstance(schedule(b), Columns):
        return None
    [first, *others] = b.stages
    if not first.element or not first.reduces or first.stores or first.flags or any(s.element for s in others):
        return None
    if not all(isinstance(let, Let) for let in first.lets) or b.index in used_values(first):
        return None
    numbers: dict[int, int] = {}
    for n, (value, access) in enumerate(zip(columns.reads, b.inputs)):
        turned = replace(access, strides=(access.strides[1], access.strides[0]))
        same = [m for m, (v, own) in enumerate(zip(rows.reads, a.inputs)) if v is value and own == turned]
        if same:
            numbers[n] = same[0]
        elif n in used_values(first):
            return None
    start = a.first + sum(len(s.lets) + len(s.reduces) for s in a.stages)
    numbers.update({b.first + i: start + i for i in range(len(first.lets))})
    last = Stage(
        True,
        tuple(
            replace(let, expr=substituted(let.expr, lambda n: argument(numbers[n])))
            for let in first.lets
            if isinstance(let, Let)
        ),
        tuple(replace(r, value=numbers[r.value]) for r in first.reduces),
    )
    return replace(a, stages=(*a.stages, last))


def _combine_partial(columns: Launch, blocks: list[Scratch], spec: Sweep) -> Launch:
    """The launch that adds the partial results and then runs the columns' other stages."""
    region: Region = columns.spec
    [first, *others] = region.stages
    kept = [n for n, a in enumerate(region.inputs) if not a.strides[1]]  # inputs per column, for later stages
    count = len(blocks) + len(kept)
    partial = [Access(d, (*dense(region.outer), region.outer[0])) for d in spec.partial]
    old = region.first + len(first.lets)  # index of the first reduction
    numbers = {n: len(blocks) + i for i, n in enumerate(kept)}
    lets = tuple(Let(argument(i), d) for i, d in enumerate(spec.partial))
    reduces = tuple(replace(r, value=count + 1 + i) for i, r in enumerate(first.reduces))
    later = sum(len(s.lets) for s in others)
    numbers.update({old + i: count + 1 + len(lets) + i for i in range(len(reduces) + later)})

    def renumbered(stage: Stage) -> Stage:
        return Stage(
            False,
            tuple(
                replace(x, expr=substituted(x.expr, lambda n: argument(numbers[n])))
                for x in stage.lets
                if isinstance(x, Let)
            ),
            (),
            tuple(replace(x, value=numbers[x.value]) for x in stage.stores),
            tuple(replace(x, value=numbers[x.value]) for x in stage.flags),
        )

    new = Region(
        region.outer,
        (spec.teams,),
        (*partial, *(region.inputs[n] for n in kept)),
        region.outputs,
        (Stage(True, lets, reduces), *(renumbered(s) for s in others)),
    )
    return Launch(new, (*blocks, *(columns.reads[n] for n in kept)), columns.writes)
