"""Loops of plans: what the check refuses, and what a session makes of those that it accepts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact import plan_check
from dslc.runtime.artifact.instructions import Copy, EventRecord, Fill, Instruction, Loop, LoopEnd
from dslc.runtime.artifact.loops import unrolled
from dslc.runtime.artifact.plan import Buffer, Constant, Plan, Work
from dslc.runtime.artifact.plan_check import BlobInfo

#: Buffers: eight rows of four floats, their first row, and a row of their own.
BUFFERS = (
    Buffer("work", 0, "f32", (8, 4)),
    Buffer("work", 0, "f32", (4,)),
    Buffer("work", 256, "f32", (4,)),
    Buffer("state", 0, "f32", (4,)),
    Buffer("io", 256, "f32", (4,)),
)
COPY = Copy(src=1, dst=2, stream=0, where=0)


def plan(instructions: Sequence[Instruction], constants: Sequence[Constant] = (), work: Sequence[Work] = ()) -> Plan:
    return Plan(BUFFERS, (), (), (), tuple(constants), tuple(instructions), ("a",), tuple(work))


def check(made: Plan, work_bytes: int = 272) -> None:
    blobs = {"c": BlobInfo("constant", 128)}
    again = Plan.decode(made.encode())
    assert again == made
    plan_check.check(again, 16, 0, 272, work_bytes, blobs=blobs, writes_state=False)


def loop(count: int, *strides: tuple[int, int], body: Sequence[Instruction] = (COPY,)) -> list[Instruction]:
    return [Loop(count, strides), *body, LoopEnd()]


def test_a_loop_reads_each_row() -> None:
    made = plan(loop(8, (1, 16)), work=[Work(1, "copy", 0, 32)])
    check(made)
    flat = unrolled(made)
    assert [flat.buffers[i.src].offset for i in flat.instructions if isinstance(i, Copy)] == list(range(0, 128, 16))
    assert {i.dst for i in flat.instructions if isinstance(i, Copy)} == {2}
    assert [w.first for w in flat.work] == list(range(8))


def test_the_moves_of_nested_loops_add_up() -> None:
    made = plan(loop(2, (1, 64), body=loop(4, (1, 16))))
    check(made)
    flat = unrolled(made)
    assert [flat.buffers[i.src].offset for i in flat.instructions if isinstance(i, Copy)] == list(range(0, 128, 16))


@pytest.mark.parametrize(
    ("said", "instructions"),
    [
        ("moves over the bytes", loop(18, (1, 16))),
        ("moves over the bytes", loop(2, (1, -16))),
        ("moves over the bytes", loop(2, (2, 16))),
        ("moves over the bytes", loop(3, (1, 128), body=loop(2, (1, 16)))),
        ("moves over the bytes", loop(2, (1, 2**62), body=loop(2, (1, 2**62)))),
        ("no whole elements", loop(2, (1, 2))),
        ("there is no buffer 9", loop(2, (9, 4))),
        ("occurs twice", loop(2, (1, 16), (1, 16))),
        ("has no end", loop(2)[:-1]),
        ("no loop is open", [LoopEnd()]),
        ("more than 1000000", loop(1_000_000, body=loop(2))),
        ("run more than 1000000", [*loop(500_001, body=[COPY, COPY])]),
        ("EventRecord in a loop", loop(2, body=[EventRecord(0, 0)])),
        ("overlaps what it copies", loop(2, (1, 16), body=[Copy(1, 0 + 1, 0, 0)])),
        ("may not change the state", loop(2, body=[Copy(1, 3, 0, 0)])),
        ("lies in the step block", loop(2, (4, -16), body=[Fill(4, b"\0" * 4, 0, 0)])),
    ],
)
def test_a_hostile_loop_is_refused(said: str, instructions: Sequence[Instruction]) -> None:
    with pytest.raises(ArtifactError, match=said) as caught:
        check(plan(instructions))
    assert caught.value.code == "R301"


@pytest.mark.parametrize("count", [0, -1, 1_000_001, 2**40])
def test_the_schema_bounds_the_steps(count: int) -> None:
    with pytest.raises(ArtifactError):
        check(plan(loop(count)))


def test_a_later_step_may_not_write_a_constant() -> None:
    fill = [Fill(1, b"\0" * 4, 0, 0)]
    held = [Constant(2, "c", 0)]
    check(plan(loop(8, (1, 16), body=fill), held))
    with pytest.raises(ArtifactError, match="holds the constant"):
        check(plan(loop(17, (1, 16), body=fill), held))
