"""Streams: concurrent nodes, few waits, never slower by the model, the same bits in any order of the events."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from graphs.random_graphs import build_for, graph_of, input_of, random_graph
from places import ROOT

from dslc.compiler import pipeline
from dslc.compiler.artifact.labels import plain_attr
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.check.model import check_file
from dslc.compiler.cost import fills, machine_of
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Kind, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Place, Program, aligned
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.options import Options, precision_of
from dslc.compiler.passes.plan.memory import in_turn, memory
from dslc.compiler.passes.plan.schedule import contents, schedule
from dslc.compiler.passes.plan.stream_tables import StreamTables, followed
from dslc.compiler.passes.plan.stream_timeline import HappensBefore, finish, need, timeline
from dslc.compiler.passes.plan.streams import streams
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.instructions import Copy, EventRecord, EventWait
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.cuda.graphs.graph import Mark, dependencies

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


#: ``compiled(streams)``: the program of a training step, and its build.
Compiled: TypeAlias = Callable[[Any], tuple[Program, Any]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    path = tmp_path_factory.mktemp("net") / "net.nn"
    path.write_text(MODEL)
    checked = check_file(Path(path))

    @cache
    def made(streams: Any) -> tuple[Program, Any]:
        options = Options(target="sm_90", provider="own", streams=streams, mirror="never")
        program, _ = pipeline.compile_entry(checked, "train_step", {"B": 4}, options)
        layout = layout_state(checked, precision_of(checked, options).params)
        return program, pipeline.build_options(checked, options, layout, "sm_90")

    return made


class Bytes:
    """Runs a program's nodes on its memory regions with the reference implementations."""

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
        """From now on the node may write: the old bytes of its outputs are lost, except values of its own."""
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
    """The plan's steps (node, is first, is last) and the predecessors of each, as the runtime orders them."""
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
    """The results of the steps in their order, or in a random order that the events allow."""
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
        # usually run one stream far ahead: otherwise only races between neighbours would show
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


COUNTS = (2, 3, 4, "auto")


def seconds(program: Program) -> float:
    return finish(program, machine_of(program.target, "own"))


@pytest.mark.parametrize("count", COUNTS)
def test_weight_gradients_and_branches_run_concurrently(compiled: Compiled, count: Any) -> None:
    program, _ = compiled(count)
    _, steps, after = actions(program)
    follows: list[set[int]] = []
    for given in after:
        follows.append(set(given).union(*(follows[j] for j in given)))
    first = {step: i for i, (step, begins, _) in reversed([*enumerate(steps)]) if begins}
    last = {step: i for i, (step, _, ends) in enumerate(steps) if ends}

    def is_beside(a: Any, b: Any) -> bool:
        return last[a] not in follows[first[b]] and last[b] not in follows[first[a]]

    nodes = [step for step, begins, _ in steps if begins and isinstance(step, Node)]
    concurrent = {a for a in nodes for b in nodes if a is not b and is_beside(a, b)}
    wgrads = [n for n in nodes if n.op.name == "conv_wgrad"]
    assert sum(n in concurrent for n in wgrads) > len(wgrads) / 2
    assert any(n.name.endswith("proj") and n.phase is Phase.FORWARD for n in concurrent), "a branch"


@pytest.mark.parametrize("count", COUNTS)
def test_each_wait_is_needed(compiled: Compiled, count: Any) -> None:
    program, _ = compiled(count)
    assert program.schedule is not None
    for node, others in program.waits.items():
        for other in others:
            fewer = {**program.waits, node: tuple(n for n in others if n is not other)}
            assert not HappensBefore(program.schedule, program.streams, fewer).before(other, node)
    assert len(program.streams) >= 10 and set(program.streams.values()) == {
        *range(1, 1 + max(program.streams.values()))
    }


def test_streams_never_lose_by_the_model(compiled: Compiled) -> None:
    alone = seconds(compiled(1)[0])
    found = {count: seconds(compiled(count)[0]) for count in COUNTS}
    assert all(each < alone for each in found.values())
    assert found["auto"] <= 1.01 * min(found.values())


def test_one_stream_has_no_waits_and_no_events(compiled: Compiled) -> None:
    program, _ = compiled(1)
    assert not program.streams and not program.waits
    assert not any(isinstance(i, EventRecord | EventWait) for i in plan_of(program).instructions)


def test_a_chain_stays_on_one_stream() -> None:
    x = input_of("x", Kind.DATA, 64, 64)
    value = x.value
    for _ in range(20):
        value = Builder()(OPS["transpose"], value, perm=(1, 0))
    graph = graph_of([x], {"result.y": value})
    program = Program("predict", {}, graph, schedule=graph.nodes, target="sm_90")
    assert streams(program, Build(target="sm_90", streams=4)) is program


def branches(*rows: int, steps: int = 6, singles: int = 0) -> Program:
    """Chains of pointwise nodes that do not depend on each other, each of so many rows of 1,024; and ``singles``: large
    nodes whose results stay."""
    inputs = [input_of(f"x{i}", Kind.DATA, n, 1024) for i, n in enumerate((*rows, *(LARGE,) * singles))]
    values = {f"result.{i}": source.value for i, source in enumerate(inputs)}
    b = Builder()
    for step in range(steps):
        for name in [*values][: len(values) if not step else len(rows)]:
            values[name] = b(OPS["exp"], values[name])
    return schedule(Program("predict", {}, graph_of(inputs, values), target="sm_90"), Build(target="sm_90"))


SMALL, LARGE = 1, 1 << 14  # rows: 4 KiB; 64 MiB, which take 38 us to read and write
MACHINE = machine_of("sm_90", "own")


@pytest.mark.parametrize(("rows", "several"), [
    ((SMALL, SMALL), True), ((SMALL,) * 4, True), ((LARGE, LARGE), False), ((LARGE, LARGE, LARGE, LARGE), False),
    ((LARGE, SMALL), False),
])  # fmt: skip
def test_streams_are_for_nodes_that_leave_the_machine_idle(rows: tuple[int, ...], several: bool) -> None:
    """On an H200 two large kernels bound by memory take longer at once than one after the other."""
    program = branches(*rows)
    assert program.schedule is not None
    assert [fills(n, MACHINE) for n in program.schedule] == [n.types[0].ints[0] == LARGE for n in program.schedule]
    found = streams(program, Build(target="sm_90", streams="auto"))
    assert bool(found.streams) is several


@pytest.mark.parametrize("count", COUNTS)
def test_nodes_that_fill_the_machine_never_run_at_once(count: Any) -> None:
    """Not even in a program whose other nodes make several streams worth it."""
    program = streams(branches(*(SMALL,) * 12, steps=12, singles=4), Build(target="sm_90", streams=count))
    assert program.schedule is not None and program.streams
    happens = HappensBefore(program.schedule, program.streams, program.waits)
    large = [node for node in program.schedule if fills(node, MACHINE)]
    assert len(large) == 4 and all(map(happens.before, large, large[1:]))


def test_a_start_is_not_hidden_by_the_work_of_others() -> None:
    """The blocks of a kernel are placed after those of earlier kernels: the start of a small one then begins. The start
    of a product is hidden, and streams that join cost a wait."""
    x, y = input_of("x", Kind.DATA, LARGE, 1024), input_of("y", Kind.DATA, 1024, 1024)
    b = Builder()
    large, small = b.node(OPS["exp"], x.value), b.node(OPS["exp"], y.value)
    product = b.node(OPS["matmul"], y.value, y.value, transpose_a=False, transpose_b=False)
    first, second, third = (need(node, MACHINE) for node in (large, small, product))
    ends = [first.seconds, first.seconds + second.start + second.work]
    assert second.start > MACHINE.device.launch and third.start > 0
    found = timeline([large, small, product], {small: 1, product: 2}, {}, MACHINE)
    assert [found[n][1] for n in (large, small)] == pytest.approx(ends)
    assert timeline([large, product], {product: 2}, {}, MACHINE)[product][1] == pytest.approx(ends[0] + third.work)
    alone = Program("predict", {}, graph_of([x, y], {"result.y": large.outputs[0]}), schedule=(large,), target="sm_90")
    joined = finish(replace(alone, streams={large: 1}), MACHINE)
    assert joined == pytest.approx(first.seconds + 0.35 * MACHINE.device.launch)


def test_no_start_is_longer_than_the_work() -> None:
    """A kernel of 1 KiB takes no longer than a launch: the start was measured for large ones."""
    x = input_of("x", Kind.DATA, 256)
    found = need(Builder().node(OPS["exp"], x.value), MACHINE)
    assert found.seconds == pytest.approx(MACHINE.device.launch, rel=1e-2)


@pytest.mark.parametrize("count", COUNTS)
def test_any_order_that_the_events_allow_gives_the_same_bits(
    compiled: Compiled, count: Any, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    plain = executed(*compiled(1), None)
    program, build = compiled(count)
    assert executed(program, build, None) == plain
    for number in range(fuzz_count(100)):
        assert executed(program, build, random.Random(fuzz_seed * 1000 + number)) == plain


def test_a_race_changes_results(compiled: Compiled) -> None:
    """The test can fail: without the waits some order gives other bits."""
    program, build = compiled(2)
    broken = replace(program, waits={})
    plain = executed(program, build, None)
    assert any(executed(broken, build, random.Random(i)) != plain for i in range(20))


def test_bytes_alive_of_one_stream(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    """The limit that streams are held to is what the planner of memory counts: it writes in place."""
    rng = random.Random(fuzz_seed)
    less = 0
    for _ in range(fuzz_count(100)):
        graph = random_graph(rng, rng.randint(5, 40))
        build = replace(build_for(graph), target="sm_90")
        program = schedule(Program("predict", {}, graph, target="sm_90"), build)
        assert program.schedule is not None
        scratch = {node: (rng.randrange(1000),) for node in program.schedule if rng.random() < 0.3}
        program = replace(program, scratch=scratch)
        ranges, bound = in_turn(program, build)
        tables, content = StreamTables(program, machine_of("sm_90", "own"), ranges), contents(graph)
        order = [node for node in program.schedule if not node.op.view]
        kept = {content[value] for value in graph.roots}
        made = {v: i for i, node in enumerate(order) for v in node.outputs if v not in kept}
        read = {content[v]: i for i, node in enumerate(order) for v in node.inputs}
        for i, node in enumerate(order):
            held = [aligned(v.type.bytes) for v, at in made.items() if at <= i <= read.get(v, len(order))]
            apart = sum(held) + sum(map(aligned, scratch.get(node, ())))
            over = sum(aligned(v.type.bytes) for v in node.outputs)  # at most what it writes in place
            assert apart - over <= tables.alive[node] <= apart + sum(aligned(v.type.bytes) for v in kept)
            less += tables.alive[node] < apart
        for one, other in pairwise(order):
            assert tables.alive[one] - tables.freed[one] <= tables.alive[other]
        constants = sum(aligned(i.value.type.bytes) for i in graph.inputs if i.kind is Kind.CONSTANT)
        planned = memory(program, build).memory
        assert planned is not None and tables.peak + constants <= bound == planned.lower_bound
        assert tables.peak + constants == bound or planned.moves  # which may need copies at the end
    assert less


def test_streams_fit_though_a_large_tensor_is_written_in_place() -> None:
    """Two nodes far apart have scratch memory of 0.7 GB each; before, a tensor of 1 GB is written in place. With the
    bytes of two such tensors as the limit both ran at once, and no plan took as few bytes as were allowed."""
    b, count = Builder(), 400
    x, small = (input_of(name, Kind.DATA, length) for name, length in (("x", 1 << 28), ("small", 64)))
    total = b(OPS["sum"], b(OPS["relu"], b(OPS["exp"], x.value)), over=(0,), keep=False)
    ends, scratch = [], {}
    for _ in range(2):
        value = b(OPS["add"], small.value, total)
        for i in range(count):
            value = b(OPS["exp"], value)
            if i == count // 2:
                scratch[value.producer] = (700 << 20,)
        ends.append(value)
    graph = graph_of([x, small], {f"result.{i}": end for i, end in enumerate(ends)})
    build = replace(build_for(graph), target="sm_90", streams="auto")
    plain = replace(schedule(Program("predict", {}, graph, target="sm_90"), build), scratch=scratch)
    found = memory(streams(plain, build), build)
    assert found.streams and seconds(found) < 0.93 * seconds(plain)
    assert found.memory is not None and found.memory.work_bytes < 1.1 * (1 << 30)


def test_random_graphs_on_streams(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    """No races, never slower according to the model, and every node after its predecessors."""
    rng = random.Random(fuzz_seed)
    forked = 0
    for _ in range(fuzz_count(400)):
        graph = random_graph(rng, rng.randint(5, 60))
        build = replace(build_for(graph), target="sm_90", streams=rng.choice((2, 3, 4, 8, "auto")))
        plain = schedule(Program("predict", {}, graph, target="sm_90"), build)
        program = memory(streams(plain, build), build)
        verify_program(program, build)
        forked += bool(program.streams)
        assert program.schedule is not None and seconds(program) <= seconds(plain) * (1 + 1e-9)
        happens = HappensBefore(program.schedule, program.streams, program.waits)
        for node, others in followed(graph, program.schedule).items():
            assert all(happens.before(other, node) for other in others)
    assert forked > fuzz_count(400) / 4


def test_until_is_where_all_follow(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    for _ in range(fuzz_count(200)):
        order = [n for n in random_graph(rng, rng.randint(5, 40)).nodes if not n.op.view]
        placed = {node: k for node in order if (k := rng.randrange(3))}
        waits = {n: tuple(rng.sample(order[:i], min(i, rng.randint(0, 2)))) for i, n in enumerate(order)}
        happens = HappensBefore(order, placed, waits)
        if not placed:
            continue
        for i, node in enumerate(order):
            follow = [happens.before(node, other) for other in order[i + 1 :]]
            unordered = [j for j, follows in enumerate(follow, i + 1) if not follows]
            assert happens.until[node] == max(unordered, default=i) + 1


@pytest.mark.slow
def test_streams_of_resnet_take_little_memory() -> None:
    checked = check_file(ROOT / "examples/resnet/resnet.nn", "ResNet50")
    planned = []
    for count in (1, "auto"):
        options = Options(
            target="sm_90", provider="vendor", precision="bf16", streams=count, mirror="never",  # type: ignore[arg-type]
            sizes={"train": {"B": (32,)}},
        )  # fmt: skip
        program, _ = pipeline.compile_entry(checked, "train_step", {"B": 32}, options)
        assert program.memory is not None and bool(program.streams) == (count != 1)
        planned.append(program.memory.work_bytes)
    assert planned[1] <= planned[0] + 0.02 * (6 << 30)


def test_a_budget_without_room_for_streams_has_none(compiled: Compiled) -> None:
    program, build = compiled(4)
    assert program.memory is not None and program.streams
    plain = replace(program, streams={}, waits={}, memory=None)
    need = program.memory.io_bytes + program.memory.work_bytes
    assert streams(plain, replace(build, budget=need)).streams
    assert not streams(plain, replace(build, budget=1)).streams
    for budget in range(need // 2, need, need // 16):
        found = memory(streams(plain, replace(build, budget=budget)), build)
        assert found.memory is not None
        assert not found.streams or found.memory.io_bytes + found.memory.work_bytes <= budget


@pytest.mark.slow
def test_linear_in_nodes() -> None:
    taken = {5000: float("inf"), 20000: float("inf")}  # more buffers than the memory planner tries in several orders
    for length in (5000, 20000, 5000):
        x, b = input_of("x", Kind.DATA, 64), Builder()
        ends = [x.value, x.value]
        for i in range(length):
            ends[i % 2] = b(OPS["mul"], ends[i % 2], ends[(i // 7) % 2])
        graph = graph_of([x], {"result.y": b(OPS["add"], *ends)})
        program = Program("predict", {}, graph, schedule=graph.nodes, target="sm_90")
        start = time.process_time()
        found = streams(program, Build(target="sm_90", streams=4))
        HappensBefore(graph.nodes, found.streams, found.waits)
        taken[length] = min(taken[length], time.process_time() - start)
        assert found.streams
    assert taken[20000] < 10 * taken[5000] + 0.1  # 16 times as long if it were quadratic
