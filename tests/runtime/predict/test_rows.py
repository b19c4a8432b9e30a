"""The calls that a prediction makes: whole batches of the largest built size, each told its first row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dslc.runtime.artifact.interface import Dim, Interface, Tensor
from dslc.runtime.predict import rows
from dslc.runtime.predict.rows import Rows

X = Tensor("x", "f32", ("B", 2))


def predicted(monkeypatch: pytest.MonkeyPatch, *, apart: bool, result: Tensor) -> list[tuple[int, int]]:
    """The first row and the number of rows of each call, for 21 rows and the built sizes 1 and 4."""
    monkeypatch.setattr(rows, "_AT_ONCE", 2 * 4 * 2 * 4)  # two batches of the largest size
    seen = []

    def predict(x: Any, row: int) -> Any:
        seen.append((row, len(x)))
        return x

    def feed(tasks: Any, workers: int) -> Any:
        for index, _ in tasks:
            yield {"x": np.zeros((len(index), 2), np.float32)}

    programs = [SimpleNamespace(sizes={"B": size}) for size in (1, 4)]
    artifact = SimpleNamespace(programs=lambda entry: programs, header={"row_independent": apart})
    column = SimpleNamespace(wanted=SimpleNamespace(shape=(2,)), rows=SimpleNamespace(dtype=np.dtype(np.float32)))
    interface = Interface("net", "Net", (Dim("B", 1, 64, 4, True),), (X,), (result,), None)
    session: Any = SimpleNamespace(artifact=artifact, interface=interface, predict=predict)
    data: Any = SimpleNamespace(rows=21, index=np.arange(21), columns={"x": column}, feed=feed)
    found = list(Rows(session, data, [f"r{i}" for i in range(21)]).batches(0))
    assert [name for part in found for name in part.names or ()] == [f"r{i}" for i in range(21)]
    return seen


def test_the_rows_come_in_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert predicted(monkeypatch, apart=True, result=X) == [(0, 8), (8, 8), (16, 5)]


@pytest.mark.parametrize(("apart", "result"), [(False, X), (True, Tensor("mean", "f32", (2,)))])
def test_rows_that_depend_on_each_other_are_one_call(
    apart: bool, result: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert predicted(monkeypatch, apart=apart, result=result) == [(0, 21)]
