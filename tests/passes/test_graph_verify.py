"""The proofs find planted faults: in graphs one of each kind, in programs every random mutation that is a fault."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest
from random_graphs import build_for, graph_of, input_of, random_graph

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import MemoryPlan, Move, Place, Program
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify import VerifyError, verify_graph, verify_program
from dslc.compiler.passes.memory import memory
from dslc.compiler.passes.runner import run_passes
from dslc.compiler.passes.schedule import contents, schedule


def _small() -> tuple[Input, Input, Node, Node, Graph]:
    x, w = input_of("x", Kind.DATA, 3), input_of("w", Kind.PARAM, 3)
    a = Builder(name="a").node(OPS["mul"], x.value, w.value)
    b = Builder(name="b").node(OPS["exp"], a.out)
    return x, w, a, b, Graph((x, w), (a, b), {"result.y": b.out}, ((w, b.out),))


def test_a_sound_graph_passes() -> None:
    verify_graph(_small()[-1])


def _typed(op: str, value: Value, *shape: int) -> Node:
    return Node(OPS[op], (value,), (TensorType(DType.F32, shape),), name="wrong")


def test_planted_faults_in_graphs() -> None:
    x, w, a, b, good = _small()
    other = input_of("w", Kind.PARAM, 3)
    bad_type = _typed("exp", a.out, 4)
    misfit = Node(OPS["add"], (a.out, input_of("z", Kind.DATA, 4).value), (a.out.type,), name="wrong")
    z = misfit.inputs[1].producer
    assert isinstance(z, Input)
    faults: dict[str, Graph] = {
        "not computed before": dataclasses.replace(good, nodes=(b, a)),
        "is not computed before it is read": dataclasses.replace(good, nodes=(b,)),
        "but says": Graph((x, w), (a, bad_type), {"y": bad_type.out}),
        "does not fit": Graph((x, w, z), (a, misfit), {"y": misfit.out}),
        "output result.y is not computed": dataclasses.replace(good, nodes=(a,), updates=()),
        "two inputs": dataclasses.replace(good, inputs=(x, w, other)),
        "no state": dataclasses.replace(good, updates=((x, b.out),)),
        "is no state of this graph": dataclasses.replace(good, updates=((other, b.out),)),
        "updated twice": dataclasses.replace(good, updates=((w, b.out), (w, a.out))),
    }
    longer = input_of("w", Kind.PARAM, 4)
    faults["w is f32[4], its new value f32[3]"] = Graph((x, longer), (), {}, ((longer, x.value),))
    for said, graph in faults.items():
        with pytest.raises(VerifyError) as caught:
            verify_graph(graph)
        assert said in str(caught.value), (said, str(caught.value))


def test_a_fault_shows_its_neighbours_and_the_pass() -> None:
    *_, good = _small()

    def breaking(program: Program, build: Build) -> Program:
        return dataclasses.replace(program, graph=dataclasses.replace(good, nodes=good.nodes[::-1]))

    with pytest.raises(VerifyError) as caught:
        run_passes(Program("predict", {}, good), build_for(good), (breaking,))
    text = str(caught.value)
    assert "after breaking: exp b:" in text and "\n> " in text and "mul" in text


class _Bytes:
    """The plan judged slowly, byte by byte: the judge of the judge."""

    def __init__(self, program: Program, build: Build) -> None:
        assert program.memory is not None and program.schedule is not None
        self.program, self.plan, self.build = program, program.memory, build
        self.sizes = {"state": build.state_bytes, "io": self.plan.io_bytes, "work": self.plan.work_bytes}
        self.bytes: dict[tuple[str, int], Value] = {}

    def _range(self, place: Place, size: int) -> list[tuple[str, int]] | None:
        block = place.region == "io" and place.offset < 256
        if place.offset < 0 or place.offset + size > self.sizes[place.region] or place.offset % (8 if block else 64):
            return None
        return [(place.region, place.offset + i) for i in range(size)]

    def is_sound(self) -> bool:
        graph, plan = self.program.graph, self.plan
        content = contents(graph)
        ranges = {v: self._range(plan.places[v], v.type.bytes) for v in content if v in plan.places}
        if len(ranges) != len(content) or any(r is None for r in ranges.values()):
            return False
        state_targets = [ranges[i.value] for i, _ in graph.updates]
        for source in graph.inputs:
            where = ranges[source.value]
            assert where is not None
            place = plan.places[source.value]
            fixed = {Kind.SCALAR: place.region == "io" and place.offset + source.value.type.bytes <= 256,
                     Kind.DATA: place.region == "io" and place.offset >= 256}  # fmt: skip
            if not fixed.get(source.kind, place == Place("state", self.build.state.get(source.name, -1))):
                return False
            if any(k in self.bytes for k in where):
                return False
            self.bytes.update(dict.fromkeys(where, source.value))
        done: set[Node] = set()
        for node in self.program.schedule or ():
            if node in done or not all(isinstance(v.producer, Input) or v.producer in done for v in node.inputs):
                return False
            done.add(node)
            if not all(self.bytes.get(k) is content[v] for v in node.inputs for k in ranges[v] or ()):
                return False
            if node.op.view:
                if plan.places[node.outputs[0]] != plan.places[node.inputs[0]]:
                    return False
                continue
            seen: set[tuple[str, int]] = set()
            for o, new in enumerate(node.outputs):
                where = ranges[new]
                assert where is not None
                if seen & set(where) or any(r == "io" and at < 256 for r, at in where):
                    return False
                if where and where[0][0] == "state" and where not in state_targets:
                    return False
                seen |= set(where)
                for i, old in enumerate(node.inputs):
                    same = old.type.shape == new.type.shape and old.type.dtype.itemsize == new.type.dtype.itemsize
                    in_place = (i, o) in node.op.inplace and ranges[old] == where and same
                    if set(ranges[old] or ()) & set(where) and not in_place:
                        return False
                self.bytes.update(dict.fromkeys(where, new))
        if done != set(graph.nodes):
            return False
        for move in plan.moves:
            source, target = self._range(move.source, move.type.bytes), self._range(move.target, move.type.bytes)
            if source is None or target is None or set(source) & set(target):
                return False
            held = {self.bytes.get(k) for k in source}
            if len(held) > 1 or None in held or (target and target[0][0] == "state" and target not in state_targets):
                return False
            if any(r == "io" and at < 256 for r, at in target):
                return False
            self.bytes.update(zip(target, [self.bytes[k] for k in source]))
        return self._ends_well(content)

    def _ends_well(self, content: dict[Value, Value]) -> bool:
        graph, plan = self.program.graph, self.plan
        for name, value in graph.outputs.items():
            place = plan.results.get(name)
            where = None if place is None else self._range(place, value.type.bytes)
            if place is None or where is None or place.region != "io":
                return False
            if any(self.bytes.get(k) is not content[value] for k in where):
                return False
        new = dict(graph.updates)
        for source in graph.inputs:
            if source.kind is Kind.SCALAR or (source.kind is Kind.DATA and source not in new):
                continue
            where = self._range(plan.places[source.value], source.value.type.bytes)
            if any(self.bytes.get(k) is not content[new.get(source, source.value)] for k in where or ()):
                return False
        return True


def _mutated(rng: random.Random, program: Program) -> Program:
    plan, order = program.memory, program.schedule
    assert plan is not None and order is not None
    places, results, moves = dict(plan.places), dict(plan.results), list(plan.moves)
    values = list(places)
    match rng.randrange(9):
        case 0 if order:  # a dropped dependency: a node earlier or later than it may be
            changed = list(order)
            node = changed.pop(rng.randrange(len(changed)))
            changed.insert(rng.randrange(len(changed) + 1), node)
            return dataclasses.replace(program, schedule=tuple(changed))
        case 1 if order:
            changed = list(order)
            del changed[rng.randrange(len(changed))]
            return dataclasses.replace(program, schedule=tuple(changed))
        case 2:  # swapped places
            a, b = rng.choice(values), rng.choice(values)
            places[a], places[b] = places[b], places[a]
        case 3:  # a shifted place
            v = rng.choice(values)
            places[v] = Place(places[v].region, places[v].offset + rng.choice([-64, -8, 4, 64, 128]))
        case 4:  # a short region
            io_bytes = plan.io_bytes - rng.choice([0, 64])
            short = dataclasses.replace(plan, work_bytes=plan.work_bytes - 64, io_bytes=io_bytes)
            return dataclasses.replace(program, memory=short)
        case 5 if moves:  # a missing move, or moves in another order
            moves.pop(rng.randrange(len(moves))) if rng.random() < 0.5 else rng.shuffle(moves)
        case 6 if moves:
            at = rng.randrange(len(moves))
            other = rng.choice(list(places.values()))
            moves[at] = Move(moves[at].type, *rng.choice([(other, moves[at].target), (moves[at].source, other)]), "bad")
        case 7:
            name = rng.choice(list(results))
            results[name] = rng.choice(list(places.values()))
        case 8:
            del places[rng.choice(values)]
    changed_plan = MemoryPlan(places, results, tuple(moves), plan.io_bytes, plan.work_bytes, plan.lower_bound)
    return dataclasses.replace(program, memory=changed_plan)


def test_every_mutation_that_is_a_fault_is_found(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    found = harmless = 0
    while found < 300 + fuzz_count(3000):
        graph = random_graph(rng, rng.randint(3, 20))
        build = build_for(graph)
        program = memory(schedule(Program("predict", {}, graph), build), build)
        assert _Bytes(program, build).is_sound()
        verify_program(program, build)
        for _ in range(10):
            mutant = _mutated(rng, program)
            if _Bytes(mutant, build).is_sound():
                verify_program(mutant, build)  # nor does it cry wolf
                harmless += 1
            else:
                with pytest.raises(VerifyError):
                    verify_program(mutant, build)
                found += 1
    print(f"{found} faults found, {harmless} mutations were harmless")


def test_planted_faults_in_programs() -> None:
    *_, graph = _small()
    build = build_for(graph)
    program = memory(schedule(Program("predict", {}, graph), build), build)
    plan = program.memory
    assert plan is not None and plan.moves
    for memory_plan, said in (
        (dataclasses.replace(plan, moves=()), "state w does not hold its new value"),
        (dataclasses.replace(plan, io_bytes=plan.io_bytes - 64), "ends outside io"),
        (dataclasses.replace(plan, results={}), "has no place"),
    ):
        with pytest.raises(VerifyError, match=said):
            verify_program(dataclasses.replace(program, memory=memory_plan), build)
    with pytest.raises(VerifyError, match="may not lie at state"):
        verify_program(program, dataclasses.replace(build, state={"w": 64}, state_bytes=128))
    unused = dataclasses.replace(program, graph=graph_of(list(graph.inputs), dict(graph.outputs)))
    with pytest.raises(VerifyError, match="a state that is not updated"):
        verify_program(unused, build)
