"""Repeated calls of ``predict`` cost little of Python: with one row, the kernels of a model take less than 300 us."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from fake_gpu.gpu_pair import ROWS, Pair, batch, equal

from dslc.base.errors import InputError
from dslc.runtime.artifact.reserved import STEP_BLOCK
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda import transfers
from dslc.runtime.cuda.arrays import inputs
from dslc.runtime.cuda.arrays.pinned import MOST_LENT
from dslc.runtime.session import fork, host_copies
from dslc.runtime.session.calls import predict

#: Calls of the runtime's functions. Each takes about 0.3 us.
_MOST = 140


def _calls_of_runtime(call: Callable[[], object]) -> int:
    found = 0

    def see(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal found
        found += event == "call" and "dslc" in frame.f_globals.get("__name__", "")

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch, pair: Callable[..., Pair]) -> Pair:
    """A session that lends the memory of all results."""
    monkeypatch.setattr(transfers, "LENT", 1)
    return pair()


def _address(result: Any) -> int:
    return int(result[0].ctypes.data)


def test_large_results_are_where_the_gpu_wrote_them(lent: Pair) -> None:
    one, found = lent, set()
    for step in range(12):
        result = one.gpu.predict(x=batch(step)["x"])
        assert equal(result, one.cpu.predict(x=batch(step)["x"])) and result[0].flags.writeable
        found.add(_address(result))
    assert found <= set(one.fake.host_memory) and len(found) == 2  # as a new result replaces the last one
    before, result = len(one.fake.host_memory), None
    kept = [one.both(lambda s: s.predict(x=batch(step, 3)["x"])) for step in range(20)]  # noqa: B023
    assert all(equal(*both) for both in kept)  # nothing overwrites what a caller keeps
    pinned = [_address(gpu) for gpu, _ in kept if _address(gpu) in one.fake.host_memory]
    assert len(pinned) == len(set(pinned)) == MOST_LENT  # the others are copies
    assert len(one.fake.host_memory) <= before + MOST_LENT


def test_a_view_keeps_the_memory_of_a_result(lent: Pair) -> None:
    part = lent.gpu.predict(x=batch(0)["x"])[0][1:, ::2]
    wanted = part.copy()
    for step in range(1, 6):
        lent.gpu.predict(x=batch(step)["x"])
    np.testing.assert_array_equal(part, wanted)
    part[:] = 0  # it is the caller's
    assert equal(*lent.both(lambda s: s.predict(x=batch(7)["x"])))


def test_results_outlive_their_session(lent: Pair) -> None:
    kept, freed = lent.gpu.predict(x=batch(0)["x"]), lent.fake.calls["cuMemFreeHost"]
    allocated = len(lent.fake.host_memory)
    lent.gpu.close()
    assert equal(kept, lent.cpu.predict(x=batch(0)["x"])) and len(lent.fake.host_memory) == 1
    del kept
    with devices.device(0):
        assert not lent.fake.host_memory and lent.fake.calls["cuMemFreeHost"] - freed == allocated


def test_memory_that_a_child_shares_is_not_written_again(lent: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinned memory is the same in a parent and in its forked child."""
    shared = _address(lent.gpu.predict(x=batch(0)["x"]))
    monkeypatch.setattr(fork, "children", lambda: 1)
    found = {_address(lent.gpu.predict(x=batch(step)["x"])) for step in range(8)}
    assert shared not in found


def test_outputs_of_the_same_bytes_are_copied(lent: Pair) -> None:
    lent.gpu.predict(x=batch(0)["x"])
    plan = next(p.plan for p in lent.gpu._calls.predict.programs)
    results = transfers.Results(plan)
    assert results.apart
    twice = dataclasses.replace(plan, outputs=(*plan.outputs, *plan.outputs[:1]))
    assert not transfers.Results(twice).apart


@pytest.mark.parametrize("part", [8, 20, 64, 1 << 19])
@pytest.mark.parametrize("direct", [1, 1 << 19])
def test_inputs_are_sent_in_parts(
    pair: Callable[..., Pair], part: int, direct: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_copies, "PART", part)
    monkeypatch.setattr(inputs, "DIRECT", direct)
    one = pair()
    for rows in (4, 3, 1, 9):
        assert equal(*one.both(lambda s: s.predict(x=batch(rows, rows)["x"])))  # noqa: B023
    given = {"x": batch(4)["x"]}
    one.gpu.predict(**given)
    before, bytes_in = one.fake.calls.copy(), one.gpu.counters["bytes_in"]
    one.gpu.predict(**given)
    made = one.fake.calls - before
    parts = given["x"].nbytes // part
    assert made["cuMemcpyHtoDAsync"] == (max(1, parts) + 1 if parts > 1 or direct == 1 else 1)  # and the step block
    assert one.gpu.counters["bytes_in"] - bytes_in <= given["x"].nbytes + STEP_BLOCK
    with pytest.raises(InputError):
        one.gpu.predict(x=given["x"][:, :2])
    for step in range(3):
        assert equal(*one.both(lambda s: s.train_step(**batch(step), lr=0.01, beta=0.25)))  # noqa: B023
        assert equal(*one.both(lambda s: s.evaluate(**batch(step, 9))))  # noqa: B023
    assert equal(*one.both(lambda s: s.predict(**given)))


def test_the_driver_copies_inputs_only_while_nothing_runs(
    pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "DIRECT", 1)
    one = pair()
    given = {"x": batch(1, 3 * ROWS)["x"]}
    wanted = one.cpu.predict(**given)
    assert equal(one.gpu.predict(**given), wanted)
    before = len(one.fake.log)
    assert equal(one.gpu.predict(**given), wanted)
    names = [name for name in one.fake.log[before:] if name in ("cuMemcpyHtoDAsync", "cuGraphLaunch")]
    assert names == ["cuMemcpyHtoDAsync"] * 2 + (["cuGraphLaunch", "cuMemcpyHtoDAsync"] * 2) + ["cuGraphLaunch"]
    given["x"][:] = 0  # it was read before the call returned
    assert equal(one.gpu.predict(x=batch(1, 3 * ROWS)["x"]), wanted)


def test_the_next_run_of_a_call_begins_before_results_are_copied(
    pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pair()
    one.both(lambda s: s.predict(x=batch(0, 13)["x"]))
    begun: list[int] = []
    real, first = predict.copy_into, one.fake.calls["cuGraphLaunch"]

    def copy_into(target: Any, source: Any) -> None:
        begun.append(one.fake.calls["cuGraphLaunch"] - first)
        real(target, source)

    monkeypatch.setattr(predict, "copy_into", copy_into)
    given = {"x": batch(1, 4 * ROWS)["x"]}
    found = one.gpu.predict(**given)
    assert sorted(set(begun)) == [2, 3, 4] and begun[-1] == 4
    assert equal(found, one.cpu.predict(**given))


def test_a_repeated_call_makes_few_calls(pair: Callable[..., Pair]) -> None:
    one, given = pair(), {"x": batch(0)["x"]}
    one.gpu.predict(**given)
    assert _calls_of_runtime(lambda: one.gpu.predict(**given)) <= _MOST


@pytest.mark.parametrize("rows", [(4, 4, 1, 1, 4), (9, 9, 0, 9), (5, 3, 5, 5)])
def test_sizes_of_calls_may_change(pair: Callable[..., Pair], rows: tuple[int, ...]) -> None:
    one = pair()
    kept = []
    for number, count in enumerate(rows):
        given = {"x": batch(number, count)["x"]}
        kept.append(one.both(lambda s: s.predict(**given)))  # noqa: B023
    assert all(equal(*both) for both in kept)  # also of earlier calls, whose results nothing overwrites
    assert [len(gpu[0]) for gpu, _ in kept] == [*rows]
