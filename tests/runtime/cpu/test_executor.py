"""The executor on hand-made plans: copies, fills, aliasing, constants, and what it refuses before it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from artifacts.line_model import PlanMaker

from dslc.base.errors import DslcError, EnvironmentFault
from dslc.runtime.artifact.instructions import BulkBegin, BulkEnd, Copy, EventRecord, Fill
from dslc.runtime.cpu.executor import BoundPlan
from dslc.runtime.session.batches import Cut, cut
from dslc.runtime.session.host_memory import block


def bind(maker: PlanMaker, meanings: Any = None, **options: Any) -> BoundPlan:
    regions = {"state": block(256), "io": block(maker.ends["io"]), "work": block(maker.ends["work"])}
    return BoundPlan(maker.plan(), regions, meanings, **options)


def test_blocks_are_aligned_and_zero() -> None:
    for size in (0, 1, 63, 64, 1000):
        made = block(size)
        assert made.size == size and (size == 0 or made.ctypes.data % 64 == 0) and not made.any()


def test_copy_fill_and_bulks() -> None:
    maker = PlanMaker()
    x = maker.input("x", "f32", (2, 3))
    y = maker.output("y", "result", "f32", (3, 2))
    z = maker.output("z", "result", "i16", (5,))
    maker.names.append("copy")
    maker.instructions += [BulkBegin(0), Copy(x, y, 0, 0), Fill(z, b"\x01\x02", 0, 0), BulkEnd(0)]
    bound = bind(maker)
    bound.inputs["x"][...] = np.arange(6).reshape(2, 3)
    bound.run()
    outputs = {name: view for name, _, view in bound.outputs}
    assert outputs["y"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert outputs["z"].tolist() == [0x0201] * 5


def test_results_that_are_views_survive_an_earlier_output_in_place() -> None:
    maker = PlanMaker()
    x = maker.input("x", "f32", (3,))
    y = maker.output("y", "result", "f32", (3,))
    maker.op("twice", [x], [x, y])  # the first result goes over x, the second is a view of it
    bound = bind(maker, {"twice": lambda inputs, attrs: [inputs[0] * 2, inputs[0]]})
    bound.inputs["x"][...] = [1, 2, 3]
    bound.run()
    assert bound.inputs["x"].tolist() == [2, 4, 6]
    assert bound.outputs[0][2].tolist() == [1, 2, 3]


def test_meanings_cannot_write_their_inputs() -> None:
    def writes(inputs: Any, attrs: Any) -> Any:
        inputs[0][...] = 0
        return [inputs[0]]

    maker = PlanMaker()
    x = maker.input("x", "f32", (3,))
    maker.op("writes", [x], [maker.output("y", "result", "f32", (3,))])
    with pytest.raises(ValueError, match="read-only") as caught:
        bind(maker, {"writes": writes}).run()
    assert caught.value.__notes__ == ["while running writes of writes linear.nn:1"]


@pytest.mark.parametrize(
    "result", [[], [np.zeros(2, np.float32)], [np.zeros(3)], [np.zeros((1, 3), np.float32)], [np.float32(1)],
               [np.zeros(3, np.float32)] * 2, [np.zeros(3, ">f4")]]
)  # fmt: skip
def test_a_meaning_that_breaks_the_plan(result: list[Any]) -> None:
    maker = PlanMaker()
    maker.op("bad", [maker.input("x", "f32", (3,))], [maker.output("y", "result", "f32", (3,))])
    with pytest.raises(EnvironmentFault, match=r"the plan says f32\[3\]") as caught:
        bind(maker, {"bad": lambda inputs, attrs: result}).run()
    assert caught.value.code == "R203"


def refused(maker: PlanMaker, meanings: Any = None, **options: Any) -> str:
    with pytest.raises(DslcError) as caught:
        bind(maker, meanings, **options)
    return caught.value.code


def test_refusals_come_before_anything_runs() -> None:
    ran: list[int] = []

    def note(inputs: Any, attrs: Any) -> Any:
        ran.append(1)
        return [inputs[0]]

    def start() -> tuple[PlanMaker, int, int]:
        maker = PlanMaker()
        x, y = maker.input("x", "f32", (3,)), maker.output("y", "result", "f32", (3,))
        maker.op("note", [x], [y])
        return maker, x, y

    maker, x, y = start()
    assert refused(maker) == "R203"
    assert refused(maker, {}) == "R203"
    maker.instructions.append(EventRecord(0, 0))
    assert refused(maker, {"note": note}) == "R202"
    maker, x, y = start()
    maker.op("note", [maker.buffer("work", "bf16", (2,))], [y])
    assert refused(maker, {"note": note}) == "R202"
    maker, x, y = start()
    maker.op("note", [x], [maker.buffer("state", "f32", (3,), 0)])
    assert refused(maker, {"note": note}) == "R301"
    bind(maker, {"note": note}, writes_state=True)
    maker, x, y = start()
    maker.instructions.append(Copy(x, maker.buffer("work", "f32", (2,)), 0, 0))
    assert refused(maker, {"note": note}) == "R301"
    maker, x, y = start()
    maker.instructions.append(Fill(y, b"\0\0\0\0\0", 0, 0))
    assert refused(maker, {"note": note}) == "R301"
    maker, x, y = start()
    maker.constant("f32", (2,), "c")
    assert refused(maker, {"note": note}) == "R301"
    assert not ran


def test_scalars_are_stored_in_their_dtype() -> None:
    maker = PlanMaker({"seed": "i64", "lr": "f32", "beta": "f64"})
    bound = bind(maker)
    bound.set_scalars({"seed": 2**64 - 1, "lr": 0.1, "beta": 0.1, "unused": 3})
    assert int(bound.scalars["seed"]) == -1
    assert bound.scalars["lr"] == np.float32(0.1) and bound.scalars["beta"] == 0.1


@pytest.mark.parametrize(
    ("total", "sizes", "pad", "expected"),
    [
        (0, [1, 4], True, []),
        (9, [1, 4], True, [(0, 4, 4), (4, 4, 4), (8, 1, 1)]),
        (7, [1, 4], True, [(0, 4, 4), (4, 3, 4)]),
        (7, [1, 4], False, [(0, 4, 4), (4, 1, 1), (5, 1, 1), (6, 1, 1)]),
        (20, [1, 16, 64], True, [(0, 20, 64)]),
        (23, [4, 8], True, [(0, 8, 8), (8, 8, 8), (16, 7, 8)]),
        (6, [4], False, None),
    ],
)
def test_cut(total: int, sizes: list[int], pad: bool, expected: list[tuple[int, int, int]] | None) -> None:
    pieces = cut(total, sizes, pad=pad)
    assert pieces == (None if expected is None else tuple(Cut(*p) for p in expected))
