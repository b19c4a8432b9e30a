"""The rules of choosing: the margin, the ties, the limit, and what keeps its text."""

from __future__ import annotations

import itertools
import random

import pytest

from dslc.compiler.ir.choice import Choice, Measured
from dslc.compiler.lock.model import Block
from dslc.tune.rules import KEPT, MARGIN, RESOLUTION, TIE, checks_seconds, joined, ranked, rounds_seconds, settled

DEFAULT = Choice("cudnn", "eng1", 1000)


def way(algorithm: str, seconds: float, workspace: int = 0, provider: str = "cudnn") -> Measured:
    return Measured(Choice(provider, algorithm, workspace), seconds)


def winner(*ways: Measured, default: Choice | None = DEFAULT, limit: int | None = None) -> str:
    return ranked(ways, default, limit)[0].choice.algorithm


@pytest.mark.parametrize(
    ("seconds", "wins"), [(100.0, "eng1"), (98.0, "eng1"), (97.2, "eng1"), (96.9, "a"), (50.0, "a")]
)
def test_another_way_needs_the_margin(seconds: float, wins: str) -> None:
    assert winner(Measured(DEFAULT, 100.0), way("a", seconds)) == wins


def test_another_way_needs_more_than_the_resolution_of_the_clock() -> None:
    """At 1 us, 3 % are 30 ns; equal kernels differ by more."""
    assert winner(Measured(DEFAULT, 1.04e-6), way("a", 1.0e-6)) == "eng1"
    assert winner(Measured(DEFAULT, 1.0e-6 + 0.9 * RESOLUTION), way("a", 1.0e-6)) == "eng1"
    assert winner(Measured(DEFAULT, 1.0e-6 + 1.1 * RESOLUTION), way("a", 1.0e-6)) == "a"
    assert winner(Measured(DEFAULT, 10.0e-6 + 1.1 * RESOLUTION), way("a", 10.0e-6)) == "eng1"


def test_of_equally_fast_ones_the_smaller_workspace_wins_then_the_text() -> None:
    assert winner(way("a", 50.0, 64), way("b", 50.4, 32), way("c", 50.6, 0)) == "b"
    assert winner(way("b", 50.0, 64), way("a", 50.4, 64)) == "a"


def test_the_default_counts_only_if_it_was_accepted() -> None:
    assert winner(way("a", 100.0), way("b", 99.9, 8)) == "a"
    assert winner(way("a", 100.0), default=None) == "a"


def test_both_directions_of_the_limit() -> None:
    """A way with more workspace wins if there is no limit, and only then: an inverted limit fails here."""
    ways = [Measured(DEFAULT, 100.0), way("large", 50.0, 1 << 20), way("small", 80.0, 1 << 10)]
    assert winner(*ways, limit=None) == "large"
    assert winner(*ways, limit=1 << 20) == "large"
    assert winner(*ways, limit=(1 << 20) - 1) == "small"
    assert winner(*ways, limit=1 << 10) == "small"
    assert winner(*ways, limit=1000) == "eng1"
    assert ranked(ways, DEFAULT, 0) == ()
    for limit in (0, 1000, 1 << 10, 1 << 20):
        assert all(kept.choice.workspace <= limit for kept in ranked(ways, DEFAULT, limit))


def test_kept_are_the_winner_the_frontier_and_the_best_own_way() -> None:
    ways = [
        way("fast", 10.0, 900),
        way("worse", 11.0, 900),
        way("lean", 12.0, 100),
        way("leaner", 13.0, 100),
        way("least", 20.0, 0),
        way("slow own", 40.0, 0, "own"),
        way("", 30.0, 0, "own"),
    ]
    assert [w.choice.algorithm for w in ranked(ways, None, None)] == ["fast", "lean", "least", ""]


def test_the_order_of_measuring_changes_nothing() -> None:
    ways = [way("a", 50.0, 64), way("b", 50.2, 64), way("c", 50.2, 8), Measured(DEFAULT, 52.0), way("d", 49.9, 64)]
    found = {ranked(order, DEFAULT, None) for order in itertools.permutations(ways)}
    assert len(found) == 1


def test_noise_below_the_margins_changes_no_winner() -> None:
    """Two tunings of one GPU agree unless times differ by more than half of a margin."""
    rng = random.Random(7)
    for _ in range(300):
        base = [Measured(DEFAULT, 100.0), way("a", rng.uniform(80, 96), 64), way("b", rng.uniform(99, 140))]
        again = [Measured(w.choice, w.seconds * rng.uniform(1 - TIE / 4, 1 + TIE / 4)) for w in base]
        assert winner(*base) == winner(*again)
    assert TIE < MARGIN < KEPT


def test_a_block_keeps_its_text_if_a_new_measurement_says_the_same() -> None:
    old = (way("a", 50.0), way("b", 60.0))
    assert settled(old, (way("a", 52.0), way("b", 58.0)))
    assert settled(old, (way("a", 50.0), way("c", 58.0)))
    assert not settled(old, (way("b", 50.0), way("a", 50.0)))
    assert not settled(old, (way("a", 53.0), way("b", 60.0)))
    assert not settled(old, (way("a", 50.0), way("b", 64.0)))
    assert not settled((), old)


def block(*ways: Measured, default: Measured | None = None) -> Block:
    return Block("k", "Fake GPU, 132 SMs, sm_90", ways, default)


def test_a_lock_does_not_change_if_a_measurement_says_the_same() -> None:
    old = block(way("a", 50e-6), way("b", 60e-6))
    assert joined(old, block(way("a", 51e-6), way("b", 59e-6)), None, vendor=True) is old
    new = block(way("b", 40e-6), way("a", 51e-6))
    assert joined(old, new, None, vendor=True) is new


def test_a_measurement_without_libraries_keeps_the_ways_by_libraries() -> None:
    library, own = way("eng1", 50e-6), way("", 60e-6, 0, "own")
    old = block(library, own, default=library)
    assert joined(old, block(way("", 61e-6, 0, "own")), None, vendor=False) is old
    faster = joined(old, block(way("tile", 40e-6, 0, "own")), None, vendor=False)
    assert [w.choice.algorithm for w in faster.ways] == ["tile"] and faster.default == library
    slower = joined(old, block(way("tile", 55e-6, 0, "own")), None, vendor=False)
    assert [w.choice.algorithm for w in slower.ways] == ["eng1", "tile"]
    assert joined(old, block(way("tile", 55e-6, 0, "own")), None, vendor=True).ways == (way("tile", 55e-6, 0, "own"),)


@pytest.mark.parametrize(
    ("left", "waiting", "others", "seconds"),
    [
        (100.0, 10, 0.0, 2.0),  # no more than this, however much is left
        (100.0, 200, 0.0, 0.25),  # half of a share
        (100.0, 200, 0.1, 0.25),
        (100.0, 200, 0.4, 0.1),  # what checks leave
        (100.0, 200, 3.0, 0.05),
        (-1.0, 200, 0.0, 0.05),
    ],
)
def test_rounds_take_what_checks_leave(left: float, waiting: int, others: float, seconds: float) -> None:
    assert rounds_seconds(left, waiting, others, 2) == pytest.approx(seconds)


@pytest.mark.parametrize("others", [0.05, 0.2, 0.39])
def test_the_budget_reaches_all_problems_while_checks_leave_it(others: float) -> None:
    """Checks and rounds of 200 problems of equal cost within 100 seconds."""
    left = 100.0
    for waiting in range(200, 0, -1):
        assert left > 0
        left -= others + rounds_seconds(left, waiting, others, 2)
    assert left > -1e-6


def test_one_way_alone_is_timed_briefly() -> None:
    assert rounds_seconds(100.0, 10, 0.1, 1) == 0.05 < rounds_seconds(100.0, 10, 0.1, 2)


@pytest.mark.parametrize(
    ("left", "weight", "weights", "seconds"),
    [(60.0, 0.010, 0.060, 20.0), (60.0, 0.00001, 0.060, 1.0), (-5.0, 0.01, 0.06, 1.0), (60.0, 0.0, 0.0, 1.0)],
)
def test_a_problem_may_take_twice_its_part_of_the_budget_for_checks(
    left: float, weight: float, weights: float, seconds: float
) -> None:
    assert checks_seconds(left, weight, weights) == pytest.approx(seconds)
