"""Sides: what runs beside what, that any order which the events allow gives the same bits, and planted races."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.emit import plain_attr, plan_of
from dslc.compiler.ir.graph import Kind, Node, Value
from dslc.compiler.ir.program import Place, Program, Side
from dslc.compiler.ir.verify import VerifyError, verify_program
from dslc.compiler.layout import layout_state
from dslc.compiler.options import Options, precision_of
from dslc.compiler.passes.streams import first_reads
from dslc.runtime.cuda.graph import Mark, dependencies
from dslc.runtime.dtypes import numpy_dtype
from dslc.runtime.plan import Copy, EventRecord, EventWait, Plan

MODEL = """nn 1
dim B in 1..64 = 4
block unit(x: [B, C, H, W], out: int, s: int = 1) -> [B, out, H/s, W/s] {
  y = x |> conv(out, 3, stride=s, pad=1, bias=false) as a |> batchnorm as bn |> relu |> conv(out, 3, pad=1) as b
  skip = x if C == out and s == 1 else x |> conv(out, 1, stride=s) as proj
  return relu(y + skip)
}
model Net(image: [B, 3, 8, 8]) -> [B, 5] {
  return image |> conv(8, 3, pad=1) as stem |> unit(8) as one |> unit(16, 2) as two
    |> mean(over=[2, 3]) |> linear(12) as h |> gelu |> dropout(0.25) |> linear(5) as head
}
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = adamw(lr=0.01)
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], tuple[Program, Any]]:
    path = tmp_path_factory.mktemp("net") / "net.nn"
    path.write_text(MODEL)
    checked = check_file(Path(path))

    def made(streams: int) -> tuple[Program, Any]:
        options = Options(target="sm_90", provider="own", streams=streams, mirror="never")
        program, _ = pipeline.compile_entry(checked, "train_step", {"B": 4}, options)
        layout = layout_state(checked, precision_of(checked, options).params)
        return program, pipeline.build_options(checked, options, layout, "sm_90")

    return made


class Bytes:
    """The regions of a program, and its nodes run on them by their meanings."""

    def __init__(self, program: Program, build: Any) -> None:
        assert program.memory is not None
        self.program, self.memory = program, program.memory
        sizes = {"state": build.state_bytes, "io": self.memory.io_bytes, "work": self.memory.work_bytes}
        self.regions = {name: np.full(size, 0xA5, np.uint8) for name, size in sizes.items()}
        rng = np.random.default_rng(3)
        for source in program.graph.inputs:
            type = source.value.type
            dtype = numpy_dtype(type.dtype.value)
            if source.kind is Kind.SCALAR:
                x = np.asarray(0.01 if type.dtype.is_float else 1, dtype)
            elif type.dtype.is_float:
                x = np.abs(rng.standard_normal(type.ints)).astype(dtype) + dtype.type(0.1)
            else:
                x = rng.integers(0, 5, type.ints).astype(dtype)
            self.bytes(self.memory.places[source.value], type.bytes)[...] = np.frombuffer(x.tobytes(), np.uint8)

    def bytes(self, place: Place, size: int) -> np.ndarray:
        return self.regions[place.region][place.offset : place.offset + size]

    def value(self, value: Value) -> np.ndarray:
        raw = self.bytes(self.memory.places[value], value.type.bytes).tobytes()
        return np.frombuffer(raw, numpy_dtype(value.type.dtype.value)).reshape(value.type.ints)

    def begin(self, node: Node) -> None:
        """From now on the node may write: what it writes into is lost, as far as nothing of its own lies there."""
        for place, size in zip(self.memory.scratch.get(node, ()), self.program.scratch.get(node, ())):
            self.bytes(place, size)[...] = 0xA5

    def run(self, node: Node) -> None:
        with np.errstate(all="ignore"):
            found = node.op.meaning(
                [self.value(v) for v in node.inputs], {k: plain_attr(v) for k, v in node.attrs.items()}
            )
        for value, x in zip(node.outputs, found, strict=True):
            x = np.ascontiguousarray(x, numpy_dtype(value.type.dtype.value))
            self.bytes(self.memory.places[value], value.type.bytes)[...] = x.reshape(-1).view(np.uint8)

    def results(self) -> dict[str, bytes]:
        outputs = self.program.graph.outputs
        found = {n: self.bytes(self.memory.results[n], v.type.bytes).tobytes() for n, v in outputs.items()}
        return found | {"state": self.regions["state"].tobytes()}


def actions(program: Program) -> tuple[Plan, list[tuple[Node | Copy, bool, bool]], list[tuple[int, ...]]]:
    """The plan's steps (what, whether its first, whether its last) and which each follows, as the runtime sees it."""
    assert program.schedule is not None
    plan = plan_of(program)
    nodes: Iterator[Node] = (n for n in program.schedule if not n.op.view)
    owners: dict[int, Node | Copy] = {}
    for index, work in enumerate(plan.work):
        end = plan.work[index + 1].first if index + 1 < len(plan.work) else len(plan.instructions)
        first = plan.instructions[work.first]
        owner = first if isinstance(first, Copy) else next(n for n in nodes if n.op.name == work.op)
        for i in range(work.first, end):
            owners[i] = owner
    placed: list[Any] = []
    for i, instruction in enumerate(plan.instructions):
        if isinstance(instruction, EventRecord | EventWait):
            placed.append((instruction.stream, Mark(instruction.event, isinstance(instruction, EventWait))))
        else:
            placed.append((instruction.stream, owners[i]))  # type: ignore[union-attr]
    steps, after = dependencies(placed)
    firsts: set[Any] = set()
    flags = []
    for i, step in enumerate(steps):
        last = step not in steps[i + 1 :] if len(steps) - i < 40 else step not in steps[i + 1 : i + 40]
        flags.append((step, step not in firsts, last))
        firsts.add(step)
    return plan, flags, after  # type: ignore[return-value]


def executed(program: Program, build: Any, rng: random.Random | None) -> dict[str, bytes]:
    """The results of the steps in their order, or in a random one of those that the events allow."""
    memory = Bytes(program, build)
    plan, steps, after = actions(program)
    left = [len(a) for a in after]
    followers: list[list[int]] = [[] for _ in steps]
    for i, given in enumerate(after):
        for j in given:
            followers[j].append(i)
    ready = [i for i, count in enumerate(left) if not count]
    done = 0
    while ready:
        # mostly one side first, for long: else a race of neighbours alone would show
        at = 0 if rng is None else (rng.randrange(len(ready)) if rng.random() < 0.3 else rng.choice((0, -1)))
        i = ready.pop(at)
        done += 1
        step, first, last = steps[i]
        if isinstance(step, Copy):
            source, target = (plan.buffers[b] for b in (step.src, step.dst))
            held = memory.regions[source.region][source.offset : source.end].copy()
            memory.regions[target.region][target.offset : target.end] = held
        else:
            if first:
                memory.begin(step)
            if last:
                memory.run(step)
        for follower in followers[i]:
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
        if rng is None:
            ready.sort()
    assert done == len(steps)
    return memory.results()


def test_weights_gradients_run_beside_what_goes_on(compiled: Callable[[int], tuple[Program, Any]]) -> None:
    program, _ = compiled(2)
    assert program.schedule is not None
    place = {node: i for i, node in enumerate(program.schedule)}
    names = [node.op.name for node in program.sides]
    assert names.count("conv_wgrad") >= 3
    read = first_reads(program.graph, program.schedule)
    for node, side in program.sides.items():
        assert side.stream == 1 and place[node] + 1 < side.until <= read[node]
    _, steps, after = actions(program)
    follows: list[set[int]] = []
    for given in after:
        follows.append(set(given).union(*(follows[j] for j in given)))
    beside = {
        i for i, (step, _, _) in enumerate(steps) if step in program.sides
        for j in range(len(steps)) if j != i and j not in follows[i] and i not in follows[j]
    }  # fmt: skip
    assert len({id(steps[i][0]) for i in beside}) == len(program.sides), "each side has something beside it"


def test_one_stream_has_no_sides_and_no_events(compiled: Callable[[int], tuple[Program, Any]]) -> None:
    program, _ = compiled(1)
    assert not program.sides
    assert not any(isinstance(i, EventRecord | EventWait) for i in plan_of(program).instructions)


def test_any_order_that_the_events_allow_gives_the_same_bits(
    compiled: Callable[[int], tuple[Program, Any]], fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    plain = executed(*compiled(1), None)
    program, build = compiled(2)
    assert executed(program, build, None) == plain
    for number in range(fuzz_count(100)):
        assert executed(program, build, random.Random(fuzz_seed * 1000 + number)) == plain


def test_planted_races_are_found(compiled: Callable[[int], tuple[Program, Any]], fuzz_seed: int) -> None:
    """Waited for too late, begun beside what it needs, an output or scratch where something beside it lies."""
    program, build = compiled(2)
    assert program.schedule is not None and program.memory is not None
    verify_program(program, build)
    rng = random.Random(fuzz_seed)
    place = {node: i for i, node in enumerate(program.schedule)}
    read = first_reads(program.graph, program.schedule)
    planted = 0
    for node, side in program.sides.items():
        wrong: list[Program] = []
        if read[node] < len(program.schedule):
            wrong.append(replace(program, sides={**program.sides, node: Side(1, read[node] + 1)}))
        wrong.append(replace(program, sides={**program.sides, node: Side(0, side.until)}))
        wrong.append(replace(program, sides={**program.sides, node: Side(1, place[node])}))
        beside = [n for n in program.schedule[place[node] + 1 : side.until] if not n.op.view and n not in program.sides]
        for other in beside:
            target = rng.choice([v for v in (*other.outputs, *other.inputs) if v.type.bytes])
            mine = rng.choice([v for v in node.outputs])
            places = {**program.memory.places, mine: program.memory.places[target]}
            wrong.append(replace(program, memory=replace(program.memory, places=places)))
        for broken in wrong:
            planted += 1
            with pytest.raises(VerifyError):
                verify_program(broken, build)
    assert planted > 3 * len(program.sides)


def test_a_race_changes_results(compiled: Callable[[int], tuple[Program, Any]]) -> None:
    """The check of orders can fail: without the waits of stream 0 some order gives other bits."""
    program, build = compiled(2)
    assert program.schedule is not None
    late = {node: replace(side, until=len(program.schedule)) for node, side in program.sides.items()}
    broken = replace(program, sides=late)
    plain = executed(program, build, None)
    assert any(executed(broken, build, random.Random(i)) != plain for i in range(20))
