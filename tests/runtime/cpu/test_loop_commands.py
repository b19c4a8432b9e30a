"""The commands of a loop are those of the plan in which its steps are written out."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dslc.runtime.artifact.instructions import Copy, Kernel, Loop, LoopEnd
from dslc.runtime.artifact.loops import only_kernels, unrolled
from dslc.runtime.artifact.plan import Buffer, Plan
from dslc.runtime.cpu.loop_commands import LoopCommands
from dslc.runtime.cpu.native import values_of

BASE = 1 << 20
BUFFERS = tuple(Buffer("work", offset, "f32", (4,)) for offset in (0, 256, 512, 4096))


class Code:
    """Stands for loaded objects: an address for each symbol."""

    def address(self, symbol: str) -> int:
        return 1000 + len(symbol)


def kernel(symbol: str, *args: tuple[str, int | float], tasks: int = 1) -> Kernel:
    return Kernel("code", symbol, (tasks, 1, 1), (1, 1, 1), 0, args, 0, 0)


PLAN = Plan(
    BUFFERS, (), (), (), (),
    (
        Loop(3, ((0, 16), (3, -64))),
        kernel("a", ("in", 0), ("out", 1), ("i64", 7), tasks=2),
        Loop(2, ((0, 16), (2, 32))),
        kernel("bb", ("in", 0), ("inout", 2), ("f32", 1.5)),
        kernel("ccc", ("in", 1), ("out", 3)),
        LoopEnd(),
        kernel("dddd", ("in", 2), ("out", 1)),
        LoopEnd(),
    ),
    ("a",),
)  # fmt: skip


def span(index: int, plan: Plan = PLAN) -> range:
    buffer = plan.buffers[index]
    return range(BASE + buffer.offset, BASE + buffer.end)


def described(rows: np.ndarray, counts: dict[int, int]) -> list[tuple[int, list[int], int]]:
    found = []
    for address, place, tasks, _ in rows.tolist():
        held = (ctypes.c_uint64 * counts[address]).from_address(place)
        found.append((address, list(held), tasks))
    return found


def test_each_step_has_its_addresses() -> None:
    code: Any = Code()
    rows, held = LoopCommands(PLAN, span, code).of(0)
    flat = unrolled(PLAN)
    expected = []
    for each in flat.instructions:
        assert isinstance(each, Kernel)
        pointers = [span(int(v), flat).start for k, v in each.args if k in ("in", "out", "inout")]
        values = [int.from_bytes(v.tobytes(), "little")
                  for v in values_of([a for a in each.args if a[0] in ("i64", "f32")])]  # fmt: skip
        expected.append((code.address(each.symbol), pointers + values, each.grid[0]))
    counts = {code.address(k.symbol): len(k.args) for k in PLAN.instructions if isinstance(k, Kernel)}
    assert described(rows, counts) == expected
    assert held.dtype == np.uint64


def test_kernels_wait_for_what_they_read_and_for_the_step_before() -> None:
    code: Any = Code()
    rows, _ = LoopCommands(PLAN, span, code).of(0)
    step = [1, 1, 0, 1, 0, 1]  # bb and ccc run together, unless bb begins a step
    assert rows[:, 3].tolist() == step * 3
    meets = Plan(BUFFERS, (), (), (), (), (
        Loop(3, ((0, 256),)), kernel("a", ("out", 1)), kernel("bb", ("in", 0), ("out", 3)), LoopEnd(),
    ), ("a",))  # fmt: skip
    rows, _ = LoopCommands(meets, span, code).of(0)
    assert rows[:, 3].tolist() == [1, 1] * 3  # in the second step, bb reads what a writes


def test_a_loop_with_other_instructions_is_written_out() -> None:
    mixed = Plan(BUFFERS, (), (), (), (), (Loop(2, ()), Copy(0, 1, 0, 0), LoopEnd()), ("a",))
    assert only_kernels(PLAN) and not only_kernels(mixed)
