"""The interrupts of our sweeps: one that nothing can raise fails no test; any other that is lost is shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from interruption import interrupts
from interruption.interrupts import count, strike


def numbers() -> Iterator[int]:
    try:
        yield 1
    finally:
        list(range(3))
        list(range(4))


def dropped() -> int:
    """Drop a generator that has not ended: the interpreter ends it, and shows what that raises."""
    return next(numbers())


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "WATCHED", (__file__,))


def test_an_interrupt_at_the_end_of_a_dropped_generator_is_lost() -> None:
    points = count(dropped)
    found = [strike(dropped, number) for number in range(1, points + 1)]
    assert all(one.struck for one in found)
    lost = [one.struck for one in found if one.error is None]
    assert any(struck and "in numbers" in struck for struck in lost), lost


def test_another_error_there_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[BaseException | None] = []
    monkeypatch.setattr("sys.unraisablehook", lambda lost: shown.append(lost.exc_value))

    def fails() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("at its end")

    count(lambda: next(fails()))
    assert [type(error) for error in shown] == [ValueError]
