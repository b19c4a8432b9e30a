"""An entry of a program compiled, encoded, decoded, checked and run by the runtime on blocks of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from fuzzing.interpreter import Arrays, kind_is_state

from dslc.compiler import pipeline
from dslc.compiler.artifact.labels import output_port
from dslc.compiler.artifact.plan import constants_of, plan_of
from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.check.model import Checked
from dslc.compiler.ir.build import Build, Pass, Precision
from dslc.compiler.ir.graph import Graph, Kind, Node, Value
from dslc.compiler.ir.program import Place, Program
from dslc.compiler.ir.scan import Loop, int_count, scan
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.plan.prepared_program import relocated
from dslc.compiler.passes.plan.schedule import contents
from dslc.compiler.passes.runner import run_passes
from dslc.runtime.artifact import plan_check
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.instructions import Instruction, LoopEnd
from dslc.runtime.artifact.instructions import Loop as LoopBegin
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.cpu.executor import BoundPlan

GARBAGE = 0xA5
NAN = 0xFF  # bytes of a nan, f32 or f64


@dataclass(frozen=True)
class Compiled:
    """``prepare``: the program that computes what ``program`` reads prepared; None if it reads nothing of this kind."""

    program: Program
    build: Build
    prepare: Program | None = None


def compiled(
    checked: Checked, entry: str, sizes: dict[str, int], dtype: DType, passes: Sequence[Pass] = PIPELINE
) -> Compiled:
    """The finished program of an entry, verified after each pass and at the end."""
    layout, options = layout_state(checked, dtype), Options(provider="reference", precision=dtype.value)
    build = pipeline.build_options(checked, options, layout)
    build = replace(build, precision=Precision(dtype, dtype))
    program, _ = run_passes(pipeline.cut(checked, entry, sizes), build, passes)
    verify_program(program, build)
    made = pipeline.compile_prepare(checked, [program], options, layout)
    if made is None:
        return Compiled(program, build)
    verify_program(made[0], build)
    return Compiled(relocated(program, made[0]), build, made[0])


def executed(
    made: Compiled, feeds: Arrays, *, poison: bool = False, change: Callable[[Plan], Plan] = lambda plan: plan
) -> dict[str, np.ndarray]:
    """Outputs by name, and new values of states as ``update NAME``; a state that nothing updates must stay.

    ``poison``: the work region and the outputs start full of nan, and after each instruction every byte of work that
    no later instruction may need is filled with nan; else they start full of garbage. ``change`` edits the plan.
    """
    program, build = made.program, made.build
    fill = NAN if poison else GARBAGE
    shared = {"state": _block(build.state_bytes, fill)}
    if program.memory is not None and program.memory.prepared_bytes:
        shared["prepared"] = _block(program.memory.prepared_bytes, fill)
    bound, regions = _bound(program, build, shared, fill, change)
    states = [i for i in program.graph.inputs if kind_is_state(i)]
    for source in states:
        raw = np.frombuffer(np.array(feeds[source.name], order="C").tobytes(), np.uint8)
        regions["state"][build.state[source.name] :][: raw.size] = raw
    for name, view in bound.inputs.items():
        view[...] = feeds[name]
    bound.set_scalars({name: feeds[name].item() for name in bound.scalars})
    if made.prepare is not None:
        _bound(made.prepare, build, shared, fill)[0].run()
    if poison:
        _poison_after_each_step(bound, program, regions)
    bound.run()
    ports = {output_port(program.entry, name): name for name in program.graph.outputs}
    found = {ports[name, kind]: view.copy() for name, kind, view in bound.outputs}
    updated = {i for i, _ in program.graph.updates}
    for source in states:
        before = np.array(feeds[source.name], order="C")
        raw = regions["state"][build.state[source.name] :][: before.nbytes]
        after = np.frombuffer(raw.tobytes(), before.dtype).reshape(before.shape)
        if source in updated:
            found[f"update {source.name}"] = after
        else:
            assert after.tobytes() == before.tobytes(), f"{source.name} changed, though nothing updates it"
    return found


def _bound(
    program: Program, build: Build, shared: dict[str, np.ndarray], fill: int,
    change: Callable[[Plan], Plan] = lambda plan: plan,
) -> tuple[BoundPlan, dict[str, np.ndarray]]:  # fmt: skip
    """The program's plan, encoded, decoded and checked, on the regions of ``shared`` and new ones of its own."""
    memory = program.memory
    assert memory is not None
    plan = Plan.decode(change(plan_of(program)).encode())
    constants = constants_of(program)
    blobs = {name: plan_check.BlobInfo("constant", len(data)) for name, data in constants.items()}
    prepares = program.entry == "prepare"
    plan_check.check(
        plan, build.state_bytes, 0, memory.io_bytes, memory.work_bytes, blobs=blobs,
        prepared_bytes=memory.prepared_bytes, writes_state=not prepares, prepares=prepares,
    )  # fmt: skip
    sizes = {"io": memory.io_bytes, "work": memory.work_bytes, "context": 0}
    regions = shared | {name: _block(size, fill) for name, size in sizes.items()}
    bound = BoundPlan(plan, regions, meanings(), constants.__getitem__, writes_state=not prepares, prepares=prepares)
    bound.load_constants()
    return bound, regions


def _block(size: int, fill: int) -> np.ndarray:
    raw = np.full(size + 64, fill, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def _poison_after_each_step(bound: BoundPlan, program: Program, regions: dict[str, np.ndarray]) -> None:
    """Inserts a fill after each step of the bound plan, by the lifetimes of the graph's values, not of the plan's."""
    dead = _Dead(plan_of(program).instructions).of(program, 0, regions["work"].size)
    work = regions["work"]
    steps = [bound._reading, bound._writing]
    assert sum(map(len, steps)) == len(dead), "one step for each instruction"
    number = 0
    for part in steps:
        for i, step in enumerate(part):
            part[i] = _poisoning(step, work, dead[number])
            number += 1


def _poisoning(step: Callable[[], None], work: np.ndarray, dead: np.ndarray) -> Callable[[], None]:
    def run() -> None:
        step()
        work[dead] = NAN

    return run


class _Dead:
    """Which bytes of work hold nothing that is read after each instruction of a plan whose loops are written out."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions
        self.at = 0

    def of(self, program: Program, base: int, size: int, inside: bool = False) -> list[np.ndarray]:
        """``base``, ``size``: the place of the program's work; ``inside``: it is the body of a loop."""
        memory = program.memory
        assert memory is not None and program.schedule is not None
        steps = [n for n in program.schedule if not n.op.view]
        dead = [np.flatnonzero(each) + base for each in _dead_bytes(program, steps, size, inside)]
        found: list[np.ndarray] = []
        for node, after in zip(steps, dead):
            mine = self._loop(node, program, base) if node.op is scan else [after]
            self.at += node.op is not scan
            found += [*mine[:-1], after] if mine else []
        if not inside:
            return found + dead[len(steps) :]
        while not isinstance(self.instructions[self.at], LoopEnd):
            found.append(NOTHING)
            self.at += 1
        self.at += 1
        return [*found[:-1], np.arange(base, base + size)] if found else []

    def _loop(self, node: Node, program: Program, base: int) -> list[np.ndarray]:
        memory, loop = program.memory, Loop.of(node)
        assert memory is not None
        pairs = zip(loop.carries, node.outputs)
        copies = sum(1 for v, result in pairs if v.type.bytes and memory.places[v] != memory.places[result])
        self.at += copies
        found = [NOTHING] * copies
        if self.at < len(self.instructions) and isinstance(self.instructions[self.at], LoopBegin):
            self.at += 1
            body, scratch = program.loops[node], memory.scratch.get(node, ())
            assert body.memory is not None
            place = base + (scratch[0].offset if scratch else 0)
            found += self.of(body, place, body.memory.work_bytes, inside=True) * int_count(node)
        return found


NOTHING = np.zeros(0, np.int64)


def _dead_bytes(program: Program, steps: Sequence[Node], size: int, inside: bool) -> list[np.ndarray]:
    """For each node and move of a program: which bytes of its work hold nothing that is read after it."""
    graph, memory = program.graph, program.memory
    assert memory is not None
    content = contents(graph)
    number = {node: i for i, node in enumerate(steps)}
    last: dict[Value, int] = {}  # content -> the last step that reads it
    for node in steps:
        for value in node.inputs:
            last[content[value]] = number[node]
    moved = {m.source: i for i, m in enumerate(memory.moves, len(steps))}  # the last move that reads a place
    roots = {content[v] for v in graph.roots}
    alive: list[tuple[int, int, Place, int]] = []  # (first step after which it is needed, the last that reads it, ...)
    end_of_all = len(steps) + len(memory.moves)
    held = [i.value for i in graph.inputs if i.kind is Kind.CONSTANT]
    alive += [(0, end_of_all, memory.places[v], v.type.bytes) for v in held]
    for node in steps:
        for value in node.outputs:
            place = memory.places[value]
            kept = end_of_all if inside else moved.get(place, 0)
            end = max(last.get(value, 0), kept if value in roots else 0)
            alive.append((number[node], end, place, value.type.bytes))
    for i, move in enumerate(memory.moves, len(steps)):
        alive.append((i, moved.get(move.target, 0), move.target, move.type.bytes))
    result = []
    for step in range(end_of_all):
        dead = np.ones(size, bool)
        for start, end, place, bytes_ in alive:
            if place.region == "work" and start <= step < end:
                dead[place.offset : place.offset + bytes_] = False
        result.append(dead)
    return result


def feeds_for(graph: Graph, seed: int, dtype: DType, high: dict[str, int]) -> dict[str, np.ndarray]:
    """Data whose numbers f32 holds exactly, and scalars. ``high``: the limit of each integer input."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, np.ndarray] = {}
    for source in graph.inputs:
        shape = source.value.type.ints
        match source.kind:
            case Kind.SCALAR:
                value = {"step": 3, "seed": seed, "row": 0}.get(source.name, 0.05)
                feeds[source.name] = np.asarray(value)
            case Kind.DATA if source.name in high:
                feeds[source.name] = rng.integers(0, max(1, high[source.name]), shape).astype(
                    numpy_dtype(source.value.type.dtype.value)
                )
            case Kind.DATA:
                feeds[source.name] = rng.uniform(-2, 2, shape).astype(np.float32).astype(numpy_dtype(dtype.value))
    return feeds
