"""Errors that a planner could make, put into finished programs at random: each a function that gives the changed
program, or None where there is nothing to change. Whether what comes out is an error is for others to say
(``byte_judge.py``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.program import MemoryPlan, Move, Place, Program
from dslc.compiler.passes.plan.schedule import contents

Error: TypeAlias = Callable[[random.Random, Program], "Program | None"]


def _plan(program: Program) -> MemoryPlan:
    assert program.memory is not None
    return program.memory


def _order(program: Program) -> list[Node]:
    assert program.schedule is not None
    return [*program.schedule]


def _with(program: Program, **changes: object) -> Program:
    return replace(program, memory=replace(_plan(program), **changes))  # type: ignore[arg-type]


def _moved(program: Program, moved: Mapping[Value, Place]) -> Program:
    """These values, and all views of them, elsewhere."""
    content = contents(program.graph)
    return _with(program, places={v: moved.get(content[v], place) for v, place in _plan(program).places.items()})


def _computed(program: Program, region: str = "work") -> list[Value]:
    """What nodes write into a region; no views."""
    places = _plan(program).places
    return [
        v for n in _order(program) if not n.op.view for v in n.outputs
        if v in places and places[v].region == region and v.type.bytes
    ]  # fmt: skip


def _waiting(rng: random.Random, program: Program) -> tuple[Node, Node] | None:
    """A node, and one that it waits for."""
    pairs = [(node, other) for node, others in program.waits.items() for other in others]
    return rng.choice(pairs) if pairs else None


def dropped_event(rng: random.Random, program: Program) -> Program | None:
    pair = _waiting(rng, program)
    if pair is None:
        return None
    node, gone = pair
    return replace(program, waits={**program.waits, node: tuple(n for n in program.waits[node] if n is not gone)})


def early_event(rng: random.Random, program: Program) -> Program | None:
    """Recorded after the preceding node."""
    pair = _waiting(rng, program)
    if pair is None:
        return None
    node, late = pair
    stream = program.streams.get(late, 0)
    same = [n for n in _order(program) if not n.op.view and program.streams.get(n, 0) == stream]
    at = same.index(late)
    others = [n for n in program.waits[node] if n is not late] + same[max(0, at - 1) : at]
    return replace(program, waits={**program.waits, node: tuple(others)})


def late_event(rng: random.Random, program: Program) -> Program | None:
    """Waited for by the next node on the same stream."""
    pair = _waiting(rng, program)
    if pair is None:
        return None
    node, other = pair
    stream = program.streams.get(node, 0)
    same = [n for n in _order(program) if not n.op.view and program.streams.get(n, 0) == stream]
    following = same[same.index(node) + 1 :][:1]
    waits = {**program.waits, node: tuple(n for n in program.waits[node] if n is not other)}
    waits.update({n: (*waits.get(n, ()), other) for n in following})
    return replace(program, waits=waits)


def backward_event(rng: random.Random, program: Program) -> Program | None:
    """A wait for a node that comes later, or for itself."""
    working = [n for n in _order(program) if not n.op.view]
    if not program.streams or not working:
        return None
    at = rng.randrange(len(working))
    node, later = working[at], rng.choice(working[at:])
    return replace(program, waits={**program.waits, node: (*program.waits.get(node, ()), later)})


def wrong_stream(rng: random.Random, program: Program) -> Program | None:
    working = [n for n in _order(program) if not n.op.view]
    if not working:
        return None
    node = rng.choice(working)
    streams = {**program.streams, node: rng.choice((1, 2, 3, -1))}
    if program.streams.get(node) and rng.random() < 0.5:
        del streams[node]
    return replace(program, streams=streams)


def wrong_order(rng: random.Random, program: Program) -> Program | None:
    """A node earlier or later than it may be."""
    order = _order(program)
    if len(order) < 2:
        return None
    at = rng.randrange(len(order))
    node = order.pop(at)
    near = rng.random() < 0.5
    order.insert(
        min(len(order), max(0, at + rng.choice((-2, -1, 1, 2)))) if near else rng.randrange(len(order) + 1), node
    )
    return replace(program, schedule=tuple(order))


def dropped_node(rng: random.Random, program: Program) -> Program | None:
    order = _order(program)
    if not order:
        return None
    at = rng.randrange(len(order))
    order[at : at + 1] = rng.choice(([], [order[at]] * 2))
    return replace(program, schedule=tuple(order))


def swapped_offsets(rng: random.Random, program: Program) -> Program | None:
    values = _computed(program)
    if len(values) < 2:
        return None
    a, b = rng.sample(values, 2)
    places = _plan(program).places
    return _moved(program, {a: places[b], b: places[a]})


def shifted_offset(rng: random.Random, program: Program) -> Program | None:
    values = [*_plan(program).places]
    if not values:
        return None
    value = contents(program.graph)[rng.choice(values)]
    place = _plan(program).places[value]
    shift = rng.choice((-64, 64, 128, -8, 4, -(1 << 20), 1 << 40))
    return _moved(program, {value: Place(place.region, place.offset + shift)})


def shared_bytes(rng: random.Random, program: Program) -> Program | None:
    """A value where another one lies, or a part of it."""
    values = _computed(program)
    if len(values) < 2:
        return None
    value, other = rng.sample(values, 2)
    place = _plan(program).places[other]
    inside = 64 * rng.randrange(1 + other.type.bytes // 64) if rng.random() < 0.3 else 0
    return _moved(program, {value: Place(place.region, place.offset + inside)})


def short_buffer(rng: random.Random, program: Program) -> Program | None:
    plan = _plan(program)
    short = rng.choice((1, 64, 4096))
    if rng.random() < 0.5 and plan.work_bytes:
        return _with(program, work_bytes=max(0, plan.work_bytes - short))
    return _with(program, io_bytes=max(0, plan.io_bytes - short))


def past_its_buffer(rng: random.Random, program: Program) -> Program | None:
    """A value so near the end of its region that its last bytes are outside."""
    plan = _plan(program)
    region = rng.choice(("work", "io"))
    values = _computed(program, region)
    if not values:
        return None
    size = {"work": plan.work_bytes, "io": plan.io_bytes}[region]
    value = rng.choice(values)
    return _moved(program, {value: Place(region, size - 64 * rng.randint(0, value.type.bytes // 64))})  # type: ignore[arg-type]


def in_place_of_what_is_read(rng: random.Random, program: Program) -> Program | None:
    """An output on an input of the same node."""
    content = contents(program.graph)
    nodes = [
        n for n in _order(program) if not n.op.view and n.inputs and any(v in _computed(program) for v in n.outputs)
    ]
    if not nodes:
        return None
    node = rng.choice(nodes)
    return _moved(program, {rng.choice(node.outputs): _plan(program).places[content[rng.choice(node.inputs)]]})


def onto_a_state(rng: random.Random, program: Program) -> Program | None:
    """A value on a parameter or another state, on data, or on the step block."""
    values = _computed(program)
    inputs = [i.value for i in program.graph.inputs]
    if not values or not inputs:
        return None
    return _moved(program, {rng.choice(values): _plan(program).places[rng.choice(inputs)]})


def missing_move(rng: random.Random, program: Program) -> Program | None:
    moves = [*_plan(program).moves]
    if not moves:
        return None
    at = rng.randrange(len(moves))
    places = [*_plan(program).places.values()]
    match rng.randrange(4):
        case 0:
            del moves[at]
        case 1:
            rng.shuffle(moves)
        case 2:
            moves[at] = Move(moves[at].type, rng.choice(places), moves[at].target, moves[at].name)
        case _:
            moves[at] = Move(moves[at].type, moves[at].source, rng.choice(places), moves[at].name)
    return _with(program, moves=tuple(moves))


def result_elsewhere(rng: random.Random, program: Program) -> Program | None:
    plan = _plan(program)
    if not plan.results:
        return None
    name = rng.choice([*plan.results])
    results = {**plan.results, name: rng.choice([*plan.places.values()])}
    if rng.random() < 0.2:
        del results[name]
    return _with(program, results=results)


def no_place(rng: random.Random, program: Program) -> Program | None:
    places = dict(_plan(program).places)
    if not places:
        return None
    del places[rng.choice([*places])]
    return _with(program, places=places)


def moved_scratch(rng: random.Random, program: Program) -> Program | None:
    """A block of scratch memory elsewhere, or one too few."""
    plan = _plan(program)
    nodes = [n for n, blocks in plan.scratch.items() if blocks]
    if not nodes:
        return None
    node = rng.choice(nodes)
    blocks = [*plan.scratch[node]]
    at = rng.randrange(len(blocks))
    if rng.random() < 0.2:
        del blocks[at]
    else:
        shift = Place(blocks[at].region, blocks[at].offset + rng.choice((-64, 64, -4096, 4096)))
        blocks[at] = rng.choice((shift, rng.choice([*plan.places.values()])))
    return _with(program, scratch={**plan.scratch, node: tuple(blocks)})


def short_scratch(rng: random.Random, program: Program) -> Program | None:
    """A kernel that works in more bytes than were planned for it."""
    nodes = [n for n, blocks in program.scratch.items() if blocks]
    if not nodes:
        return None
    node = rng.choice(nodes)
    larger = tuple(size + rng.choice((64, size, 1 << 16)) for size in program.scratch[node])
    return replace(program, scratch={**program.scratch, node: larger})


ERRORS: Final[tuple[Error, ...]] = (
    dropped_event, early_event, late_event, backward_event, wrong_stream, wrong_order, dropped_node, swapped_offsets,
    shifted_offset, shared_bytes, short_buffer, past_its_buffer, in_place_of_what_is_read, onto_a_state, missing_move,
    result_elsewhere, no_place, moved_scratch, short_scratch,
)  # fmt: skip
