"""The trials of a sweep: the same on every machine, within their limits, spread over their ranges."""

from __future__ import annotations

import math

import pytest

from dslc.base.errors import DataError
from dslc.runtime.config.space import Space, space
from dslc.runtime.config.yaml import parse_yaml, plain
from dslc.runtime.sweep.draws import draw, drawn, grid

LAST = (1 << 64) - 1  # the largest random bits


def of(text: str) -> Space:
    return space(parse_yaml(text.encode(), "dslc.yaml"), "sweep.space")


def said(trials: list) -> list[dict[str, object]]:
    return [{key: plain(value) for key, value in trial.items()} for trial in trials]


def test_a_grid_changes_the_last_key_first() -> None:
    found = said(grid(of("train.lr: [0.1, 0.2]\nargs.width: {int: [3, 5]}\n")))
    assert found == [{"train.lr": lr, "args.width": width} for lr in (0.1, 0.2) for width in (3, 4, 5)]


def test_random_trials_are_these_on_every_machine() -> None:
    """Values that were drawn once: a change of them changes what users' sweeps try."""
    text = (
        "train.lr: {log_uniform: [1e-4, 0.1]}\nargs.p: {uniform: [0, 0.5]}\nargs.n: {int: [1, 8]}\ntrain.seed: [1, 2]\n"
    )
    assert said(drawn(of(text), 7, 3)) == [
        {"train.lr": 0.0415802, "args.p": 0.0751984, "args.n": 3, "train.seed": 1},
        {"train.lr": 0.0535351, "args.p": 0.252364, "args.n": 1, "train.seed": 1},
        {"train.lr": 0.00479733, "args.p": 0.0876553, "args.n": 8, "train.seed": 2},
    ]


def test_draws_do_not_depend_on_the_order_of_keys_nor_on_other_keys() -> None:
    one = said(drawn(of("train.lr: {uniform: [0, 1]}\nargs.n: {int: [1, 8]}\n"), 3, 5))
    two = said(drawn(of("args.n: {int: [1, 8]}\nargs.m: {uniform: [0, 1]}\ntrain.lr: {uniform: [0, 1]}\n"), 3, 5))
    assert [{key: trial[key] for key in ("train.lr", "args.n")} for trial in two] == one
    assert said(drawn(of("train.lr: {uniform: [0, 1]}\n"), 4, 5)) != said(
        drawn(of("train.lr: {uniform: [0, 1]}\n"), 3, 5)
    )


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("{uniform: [-2, 3]}", -2, 3),
        ("{log_uniform: [1e-7, 1e7]}", 1e-7, 1e7),
        ("{uniform: [0.1, 0.10000001]}", 0.1, 0.10000001),
        ("{int: [-3, 4]}", -3, 4),
        ("{int: [-4611686018427387904, 4611686018427387904]}", -(2**62), 2**62),
        ("{choice: [5, 6, 7]}", 5, 7),
    ],
)
def test_the_first_and_the_last_bits_give_the_ends(text: str, low: float, high: float) -> None:
    [axis] = of(f"args.x: {text}\n").axes
    assert plain(draw(axis, 0)) == low
    last = plain(draw(axis, LAST))
    assert isinstance(last, int | float) and math.isclose(last, high, rel_tol=1e-5) and last <= high
    for word in range(0, LAST, LAST // 97):
        found = plain(draw(axis, word))
        assert isinstance(found, int | float) and low <= found <= high and draw(axis, word) == draw(axis, word)


def test_draws_spread_over_their_range() -> None:
    found = [trial["args.x"].data for trial in drawn(of("args.x: {log_uniform: [1e-4, 1]}\n"), 0, 400)]
    for low in (1e-4, 1e-3, 1e-2, 1e-1):
        assert 60 < sum(low <= value < 10 * low for value in found) < 140  # of 100 expected; the seed is fixed
    assert len(set(found)) == 400


def test_a_space_without_more_values_ends() -> None:
    found = said(drawn(of("args.a: [1, 2]\nargs.b: [true, false, x]\n"), 0, 50))
    assert len(found) == 6 and len({str(each) for each in found}) == 6


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("train.lr: {uniform: [0, 1]}\n", "cannot try every value of `train.lr`"),
        ("args.a: {int: [1, 101]}\nargs.b: {int: [1, 100]}\n", "the grid has 10100 combinations"),
        ("args.a: {int: [-4611686018427387904, 4611686018427387904]}\n", "9223372036854775809 combinations"),
    ],
)
def test_a_grid_that_is_too_large_is_refused_at_once(text: str, why: str) -> None:
    with pytest.raises(DataError, match=why) as caught:
        grid(of(text))
    assert caught.value.code == "R104" and str(caught.value.place).startswith("dslc.yaml:")
