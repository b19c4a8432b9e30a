"""Bugs put in on purpose: the laws of random programs must find each within the number of programs of a normal run."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzzing import differential, execution
from fuzzing.differential import Case, case_of, gradient, hold, same_bits
from fuzzing.drawn_programs import program_of
from fuzzing.execution import compiled, executed, feeds_for

from dslc.compiler import pipeline
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.error import VerifyError
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.ops.registry import ops
from dslc.runtime.artifact.instructions import Reference
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.cpu.executor import BoundPlan
from dslc.runtime.session.backend import Change

pytestmark = pytest.mark.slow

OPS = ops()
LIMIT = 300  # programs of a normal run


@pytest.fixture
def fuzz_seed() -> int:
    """The same in every run: a control shows that the laws find a bug. With a fresh seed a rare op (softmax) was missed
    by 300 programs now and then."""
    return 10


def cases(seed: int, folder: Path) -> Iterator[Case]:
    for number in range(LIMIT):
        yield case_of(program_of(seed * 100_000 + number), folder / "m.nn")


def found(seed: int, folder: Path, law: Callable[[Case], object], error: type[Exception] = AssertionError) -> int:
    """After how many programs a law is broken; fails when none of them breaks it."""
    for number, case in enumerate(cases(seed, folder)):
        try:
            law(case)
        except error:
            return number
    pytest.fail(f"{LIMIT} programs did not find it")


def gradients(case: Case) -> None:
    gradient(case, case.state(DType.F64))


@pytest.mark.parametrize("name", ["tanh", "mul", "matmul", "softmax", "layernorm"])
def test_a_gradient_wrong_by_one_percent(
    name: str, fuzz_seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = OPS[name]
    right = op.grad

    def wrong(node: Any, dys: Any, b: Builder) -> Sequence[Any]:
        first, *others = right(node, dys, b)
        if first is not None:
            first = b(OPS["mul"], first, b(OPS["full"], value=1.01, dtype=first.type.dtype, shape=()))
        return (first, *others)

    monkeypatch.setattr(type(op), "grad", lambda self, *args: wrong(*args))
    found(fuzz_seed, tmp_path, gradients)


def test_a_wrong_sum_over_broadcast_axes(fuzz_seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    op = OPS["sum_to"]
    right = op.meaning

    def wrong(xs: Sequence[np.ndarray], attrs: Any) -> Sequence[np.ndarray]:
        """Forgets the last row of the first axis that is summed."""
        x, shape = xs[0], tuple(attrs["shape"])
        full = (1,) * (x.ndim - len(shape)) + shape
        axis = next(a for a, n in enumerate(full) if n != x.shape[a] or a < x.ndim - len(shape))
        return right([np.delete(x, -1, axis)] if x.shape[axis] > 1 else xs, attrs)

    monkeypatch.setattr(type(op), "meaning", lambda self, *args: wrong(*args))
    found(fuzz_seed, tmp_path, gradients)


def _edited(edit: Callable[[Plan], Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "plan_of", lambda program: edit(plan_of(program)))


def _predict(case: Case) -> None:
    differential._entry(case, "predict", DType.F32, case.state(DType.F32))


def test_a_result_at_a_wrong_offset(fuzz_seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def edit(plan: Plan) -> Plan:
        """The first two works of one type change places where they are written."""
        for i, step in enumerate(plan.instructions):
            if isinstance(step, Reference) and len(step.outputs) == 1:
                mine = plan.buffers[step.outputs[0]]
                for other, buffer in enumerate(plan.buffers):
                    same = (buffer.region, buffer.dtype, buffer.shape) == (mine.region, mine.dtype, mine.shape)
                    if same and mine.region == "work" and buffer.offset != mine.offset and other not in step.inputs:
                        changed = dataclasses.replace(step, outputs=(other,))
                        steps = (*plan.instructions[:i], changed, *plan.instructions[i + 1 :])
                        return dataclasses.replace(plan, instructions=steps)
        return plan

    _edited(edit, monkeypatch)
    found(fuzz_seed, tmp_path, _predict)


def test_a_dropped_dependency(fuzz_seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def edit(plan: Plan) -> Plan:
        """Of the first two neighbours that depend on each other, the reader comes first."""
        steps = list(plan.instructions)
        for i, (a, b) in enumerate(itertools.pairwise(steps)):
            if isinstance(a, Reference) and isinstance(b, Reference) and set(a.outputs) & set(b.inputs):
                steps[i : i + 2] = [b, a]
                break
        return dataclasses.replace(plan, instructions=tuple(steps))

    _edited(edit, monkeypatch)
    found(fuzz_seed, tmp_path, _predict)


def _finished(cases: Iterator[Case]) -> Iterator[tuple[Program, Any]]:
    for case in cases:
        made = compiled(case.checked, "predict", case.sizes, DType.F32)
        yield made.program, made.build


def test_verify_refuses_swapped_offsets(fuzz_seed: int, tmp_path: Path) -> None:
    refused = tried = 0
    for program, build in _finished(cases(fuzz_seed, tmp_path)):
        assert program.memory is not None
        places = dict(program.memory.places)
        works = [v for v, p in places.items() if p.region == "work" and v.type.bytes]
        pairs = [(a, b) for a, b in itertools.pairwise(works) if places[a].offset != places[b].offset]
        if not pairs:
            continue
        a, b = pairs[0]
        places[a] = places[b]
        broken = dataclasses.replace(program, memory=dataclasses.replace(program.memory, places=places))
        tried += 1
        try:
            verify_program(broken, build)
        except VerifyError:
            refused += 1
        if tried == 20:
            break
    assert tried == 20 and refused >= 1, f"{refused} of {tried}"


def test_verify_refuses_a_reader_before_its_producer(fuzz_seed: int, tmp_path: Path) -> None:
    tried = 0
    for program, build in _finished(cases(fuzz_seed, tmp_path)):
        assert program.schedule is not None
        nodes = list(program.schedule)
        hits = [i for i, (a, b) in enumerate(itertools.pairwise(nodes)) if set(a.outputs) & set(b.inputs)]
        if not hits:
            continue
        i = hits[0]
        nodes[i : i + 2] = nodes[i + 1], nodes[i]
        tried += 1
        with pytest.raises(VerifyError):
            verify_program(dataclasses.replace(program, schedule=tuple(nodes)), build)
        if tried == 20:
            return
    pytest.fail("too few programs with two nodes that depend on each other")


class Stale(BoundPlan):
    """An executor that forgets one instruction in every run but the first: its result is that of the run before."""

    def run(self, change: Change | None = None) -> tuple[tuple[str, str, Any], ...]:
        super().run(change)
        if self._reading:
            del self._reading[len(self._reading) // 2]
            del self._ready  # the prepared steps are made again from those that are left
        return super().run(change)


def test_only_poison_sees_what_an_earlier_run_left(
    fuzz_seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unseen = seen = 0
    for case in cases(fuzz_seed, tmp_path):
        state = case.state(DType.F32)
        made = compiled(case.checked, "predict", case.sizes, DType.F32)
        cut = pipeline.cut(case.checked, "predict", case.sizes).graph
        feeds = feeds_for(cut, case.seed, DType.F32, case.high) | state
        right = executed(made, feeds)
        with monkeypatch.context() as patch:
            patch.setattr(execution, "BoundPlan", Stale)
            try:
                same_bits(executed(made, feeds), right)
            except AssertionError:
                continue  # plain running sees it too, as another value lies there by then
            unseen += 1
            try:
                same_bits(executed(made, feeds, poison=True), right)
            except Exception:  # noqa: BLE001 - an op may refuse the nan, or the outputs differ
                seen += 1
        if seen >= 3:
            return
    pytest.fail(f"{seen} of {unseen} found")


def test_without_a_bug_nothing_is_found(fuzz_seed: int, tmp_path: Path) -> None:
    for number, case in enumerate(cases(fuzz_seed, tmp_path)):
        hold(case, DType.F64)
        if number == 5:
            return
