"""Losses, metrics and the whole state have the same bits for every number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ranks.nets import ACCUMULATED, BATCHNORM, IN_TURN, TRANSFORMER, batch, built, rows_of
from ranks.together import places, together

import dslc
from dslc.base.errors import InputError, RanksError
from dslc.runtime.ranks.group import Group

STEPS = 6


def alone(path: Path, source: str) -> tuple[list[Any], dict[str, Any]]:
    session = dslc.load(path, weights="init", seed=3, device="cpu")
    return [session.train_step(**batch(source, step)) for step in range(STEPS)], session.state_tensors()


@pytest.mark.slow
@pytest.mark.parametrize("source", [BATCHNORM, TRANSFORMER, ACCUMULATED, IN_TURN],
                         ids=["batchnorm", "transformer", "micro-batches", "updates in turn"])  # fmt: skip
def test_any_number_of_ranks(tmp_path: Path, source: str) -> None:
    path = built(tmp_path, source)
    expected, state = alone(path, source)

    def work(group: Group) -> tuple[list[Any], dict[str, Any]]:
        session = dslc.load(path, weights="init", seed=3, device="cpu")
        session.join(group)
        rows = rows_of(source) // group.size
        own = slice(group.rank * rows, (group.rank + 1) * rows)
        parts = ({n: a[own] for n, a in batch(source, step).items()} for step in range(STEPS))
        return [session.train_step(**part) for part in parts], session.state_tensors()

    for size in (2, 4, 8):
        for each in together(places(size), work):
            results, found = each.result()
            assert results == expected
            assert all(found[name].tobytes() == array.tobytes() for name, array in state.items())
    other, state_of_other = alone(built(tmp_path, source, shards=4), source)
    assert [r.loss for r in other] != [r.loss for r in expected]  # the number of shards is part of the meaning
    assert any(state_of_other[name].tobytes() != array.tobytes() for name, array in state.items())


def evaluated(session: Any, rows: int) -> Any:
    """An evaluation in pieces of 16 rows and a rest; counts the pieces that this process reads."""
    whole, read = batch(BATCHNORM, 0, rows), []

    def pieces(spans: Any) -> Any:
        for start, stop in spans:
            read.append(start)
            yield {name: array[start:stop] for name, array in whole.items()}

    return session.evaluate_rows(rows, pieces), len(read)


def test_an_evaluation_by_any_number_of_ranks(tmp_path: Path) -> None:
    path = built(tmp_path, BATCHNORM, provider="reference")
    for rows in (5, 77):  # fewer pieces than ranks, and a number that ranks do not divide
        expected, count = evaluated(dslc.load(path, weights="init", seed=3, device="cpu"), rows)

        def work(group: Group, rows: int = rows) -> Any:
            session = dslc.load(path, weights="init", seed=3, device="cpu")
            session.join(group)
            return evaluated(session, rows)

        for size in (2, 4):
            found = [each.result() for each in together(places(size), work)]
            assert [result for result, _ in found] == [expected] * size
            parts = [own for _, own in found]
            assert sum(parts) == count and max(parts) - min(parts) <= 1


class Alone:
    """A group as a session sees it before any exchange."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def summed(self, vector: Any, spans: Any) -> Any:
        raise AssertionError("nothing is exchanged")

    def spread(self, vector: Any, spans: Any) -> None:
        raise AssertionError("nothing is exchanged")

    def gathered(self, row: Any) -> Any:
        raise AssertionError("nothing is exchanged")


def test_ranks_that_cannot_share_the_shards(tmp_path: Path) -> None:
    session = dslc.load(built(tmp_path, BATCHNORM, shards=2, provider="reference"), weights="init", device="cpu")
    for size in (3, 4):
        with pytest.raises(RanksError) as caught:
            session.join(Alone(0, size))
        found = str(caught.value.help)
        assert caught.value.code == "R601" and found.endswith("start 1 or 2 processes")
        assert ("mesh { shards = 4 }" in found) == (size == 4)  # three processes can share no number of shards
    session.join(Alone(1, 2))
    with pytest.raises(InputError) as refused:
        session.train_step(**batch(BATCHNORM, 0))
    assert "give B = 8" in str(refused.value.help) and session.step == 0
