"""Shards with a loss scale: a step is skipped on all of them or on none, and a scale of f32 changes no bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks.nets import ACCUMULATED, BATCHNORM, batch, built, rows_of, scaled
from ranks.together import places, together

from dslc.compiler.ir.types import DType
from dslc.face import reference_meanings
from dslc.runtime.artifact.reserved import LOSS_SCALE, SCALING
from dslc.runtime.ranks.group import Group
from dslc.runtime.session.load import load

START = 16.0


def opened(path: Path) -> Any:
    return load(path, device="cpu", weights="init", seed=3, meanings=reference_meanings)


def poisoned(source: str, step: int, bad: int | None) -> dict[str, Any]:
    """A batch with one row that is not finite."""
    given = batch(source, step)
    if bad is not None:
        given["x"][bad] = np.inf
    return given


@pytest.mark.parametrize("source", [BATCHNORM, ACCUMULATED], ids=["batchnorm", "micro-batches"])
def test_a_scale_of_f32_changes_no_bit(tmp_path: Path, source: str) -> None:
    one = opened(built(tmp_path / "plain", source, 4, provider="reference"))
    other = opened(scaled(tmp_path / "scaled", source, 4, DType.F32))
    for step in range(4):
        plain, found = one.train_step(**batch(source, step)), other.train_step(**batch(source, step))
        assert (found.loss, found.metrics) == (plain.loss, plain.metrics)
        assert (found.loss_scale, found.skipped, found.skipped_steps) == (START, False, 0)
    states = one.state_tensors(), other.state_tensors()
    assert {*states[1]} == {*states[0], *SCALING}
    assert all(states[1][name].tobytes() == array.tobytes() for name, array in states[0].items())


@pytest.mark.parametrize("source", [BATCHNORM, ACCUMULATED], ids=["batchnorm", "micro-batches"])
@pytest.mark.parametrize("where", ["first", "last"])
def test_one_verdict_for_all_ranks(tmp_path: Path, source: str, where: str) -> None:
    """One row of one shard is not finite: nothing but the scale changes, on any number of ranks."""
    path, rows = scaled(tmp_path, source), rows_of(source)
    bad = 0 if where == "first" else rows - 1

    def trained(group: Group | None) -> tuple[list[Any], list[dict[str, bytes]]]:
        session, states, results = opened(path), [], []
        rank, size = (0, 1) if group is None else (group.rank, group.size)
        if group is not None:
            session.join(group)
        own = slice(rank * rows // size, (rank + 1) * rows // size)
        for step in range(4):
            given = poisoned(source, step, bad if step == 2 else None)
            results.append(session.train_step(**{name: array[own] for name, array in given.items()}))
            states.append({name: array.tobytes() for name, array in session.state_tensors().items()})
        session.close()
        return results, states

    results, states = trained(None)
    assert [each.skipped for each in results] == [False, False, True, False]
    assert [each.loss_scale for each in results] == [START, START, START, START / 2]
    assert [each.skipped_steps for each in results] == [0, 0, 1, 1]
    assert {name for name, array in states[1].items() if states[2][name] != array} == {*SCALING}
    assert np.frombuffer(states[2][LOSS_SCALE], "f4")[0] == START / 2
    assert states[3]["c.weight"] != states[2]["c.weight"]
    for size in (2, 4, 8):
        for each in together(places(size), trained):
            assert (repr(each.result()[0]), each.result()[1]) == (repr(results), states)  # a nan is not equal to itself


def test_a_state_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    """The scale and the count of skipped steps are whole tensors of a checkpoint."""
    path = scaled(tmp_path, ACCUMULATED)
    steps = [poisoned(ACCUMULATED, step, 7 if step == 1 else None) for step in range(4)]

    def trained(group: Group, first: int, last: int, state: dict[str, Any]) -> dict[str, Any]:
        session, rows = opened(path), 48 // group.size
        session.join(group)
        if state:
            session.restore(state, first)
        own = slice(group.rank * rows, (group.rank + 1) * rows)
        for given in steps[first:last]:
            session.train_step(**{name: array[own] for name, array in given.items()})
        found: dict[str, Any] = session.state_tensors()
        session.close()
        return found

    whole, *_ = (each.result() for each in together(places(2), lambda g: trained(g, 0, 4, {})))
    half, *_ = (each.result() for each in together(places(4), lambda g: trained(g, 0, 2, {})))
    assert half[LOSS_SCALE] == START / 2
    for each in together(places(8), lambda g: trained(g, 2, 4, half)):
        assert all(each.result()[name].tobytes() == array.tobytes() for name, array in whole.items())


@pytest.mark.parametrize("row", [0, 15])
def test_a_loss_that_is_not_finite_is_seen_by_all(tmp_path: Path, row: int) -> None:
    """All gradients are finite, so the sum of the losses decides; the result says what the step did."""
    source = BATCHNORM.replace("(label: i32[B])", "(label: i32[B], extra: [B])")
    source = source.replace("= cross_entropy(output, label)\n", "= cross_entropy(output, label) + mean(extra)\n")
    session = opened(scaled(tmp_path, source, 2, DType.F32))
    given = {**batch(source, 0), "extra": np.zeros(16, np.float32)}
    assert not session.train_step(**given).skipped
    before = {name: array.tobytes() for name, array in session.state_tensors().items()}
    given["extra"][row] = np.inf
    found = session.train_step(**given)
    after = {name: array.tobytes() for name, array in session.state_tensors().items()}
    assert found.skipped and found.nonfinite is None and found.skipped_steps == 1 and not np.isfinite(found.loss)
    assert {name for name in after if before[name] != after[name]} == {*SCALING}
