"""Repeated calls of ``predict`` cost little of Python: with one row, the kernels of a model take less than 300 us."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from fake_gpu.gpu_pair import Pair, batch, equal

from dslc.runtime.cuda import transfers

#: Calls of the runtime's functions. Each takes about 0.3 us.
_MOST = 142


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


@pytest.mark.parametrize("piece", [4, 20, 64, 1 << 20])
def test_results_are_copied_as_they_arrive(
    pair: Callable[..., Pair], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "PIECE", piece)
    one = pair()
    for rows in (4, 3, 1, 9):
        assert equal(*one.both(lambda s: s.predict(x=batch(rows, rows)["x"])))  # noqa: B023
    before, bytes_out = one.fake.calls.copy(), one.gpu.counters["bytes_out"]
    one.gpu.predict(x=batch(4)["x"])
    made = one.fake.calls - before
    assert (
        made["cuMemcpyDtoHAsync"] == made["cuEventRecord"] == -(-(one.gpu.counters["bytes_out"] - bytes_out) // piece)
    )
    for step in range(3):
        assert equal(*one.both(lambda s: s.train_step(**batch(step), lr=0.01, beta=0.25)))  # noqa: B023


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
