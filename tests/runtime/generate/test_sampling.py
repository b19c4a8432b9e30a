"""Draws of tokens: the exact probabilities, the limits of each option, and the same tokens for a seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dslc.base.errors import InputError, NumericError
from dslc.runtime.generate.sampling import Sampling, unit

LOGITS = np.array([0.0, 2.0, -1.0, 2.0, -np.inf, 1.0], np.float32)


def softmax(x: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    e = np.exp((x.astype(np.float64) - x.max()) / temperature)
    return e / e.sum()


def spread(sampling: Sampling, size: int = 6) -> np.ndarray:
    """The probability of each token."""
    found = np.zeros(size)
    tokens, chances = sampling.distribution(LOGITS)
    found[tokens] = chances
    return found


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_the_whole_distribution(temperature: float) -> None:
    assert spread(Sampling(temperature)) == pytest.approx(softmax(LOGITS, temperature), rel=1e-12, abs=0)


@pytest.mark.parametrize("k", range(1, 9))
def test_the_k_most_likely(k: int) -> None:
    kept = [1, 3, 5, 0, 2][:k]  # of equal ones the lower first; none of probability 0
    wanted = np.zeros(6)
    wanted[kept] = softmax(LOGITS)[kept] / softmax(LOGITS)[kept].sum()
    assert spread(Sampling(top_k=k)) == pytest.approx(wanted, rel=1e-12, abs=0)


@pytest.mark.parametrize("p", [1e-9, 0.1, 0.38, 0.4, 0.78, 0.9, 0.95, 0.999, 1.0])
@pytest.mark.parametrize("k", [None, 3])
def test_the_nucleus_is_the_fewest_tokens_that_reach_p(p: float, k: int | None) -> None:
    tokens, chances = Sampling(top_k=k).distribution(LOGITS)
    count = next((n for n in range(1, len(tokens) + 1) if chances[:n].sum() >= p), len(tokens))
    found, kept = Sampling(top_p=p, top_k=k).distribution(LOGITS)
    assert found.tolist() == tokens[:count].tolist()
    assert kept == pytest.approx(chances[:count] / chances[:count].sum(), rel=1e-12)


def test_temperature_0_is_the_most_likely_token_and_the_limit() -> None:
    for logits in (LOGITS, LOGITS[::-1].copy(), np.zeros(3)):
        best = int(np.argmax(logits))
        for sampling in (
            Sampling(0.0),
            Sampling(0.0, top_k=2, top_p=0.1),
            Sampling(1.0, top_k=1),
            Sampling(1.0, top_p=1e-9),
        ):
            assert [sampling.draw(logits, row, 5) for row in range(4)] == [best] * 4
    assert Sampling(1e-300).draw(np.array([0.0, 1.0, 1.0 - 1e-9]), 0, 0) == 1  # nothing overflows


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"top_k": 3}, {"top_p": 0.8}])
def test_draws_have_the_probabilities(options: dict[str, Any]) -> None:
    """Pearson's chi-squared of 4,000 draws: beyond the bound with a probability of 1e-6."""
    sampling = Sampling(seed=7, **options)
    wanted = spread(sampling)
    draws = [sampling.draw(LOGITS, row, position) for row in range(4) for position in range(1000)]
    counts = np.bincount(draws, minlength=6)
    assert (counts[wanted == 0] == 0).all()
    expected = 4000 * wanted[wanted > 0]
    chi = ((counts[wanted > 0] - expected) ** 2 / expected).sum()
    bound = {1: 0.1, 2: 23.9, 3: 27.6, 4: 30.7, 5: 33.4}[max(1, int((wanted > 0).sum()))]
    assert chi < bound


def test_numbers_depend_on_seed_row_and_position_alone() -> None:
    found = {(s, r, p): unit(s, r, p) for s in (0, 1, 2**64 - 1) for r in (0, 1) for p in (0, 1, 1000)}
    assert len(set(found.values())) == len(found) and all(0 <= u < 1 for u in found.values())
    assert unit(0, 0, 0) == 0.29882072308045304  # a change would change every generated text


def test_numbers_that_are_no_logits() -> None:
    for wrong in ([0.0, math.nan], [math.inf, 0.0], [-math.inf, -math.inf]):
        for temperature in (0.0, 1.0):
            with pytest.raises(NumericError):
                Sampling(temperature).draw(np.array(wrong), 0, 0)


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1}, {"temperature": math.nan}, {"temperature": math.inf}, {"temperature": "1"}, {"top_k": 0},
     {"top_k": 1.5}, {"top_k": True}, {"top_p": 0}, {"top_p": 1.1}, {"top_p": math.nan}, {"seed": -1},
     {"seed": 2**64}, {"seed": 0.5}],
)  # fmt: skip
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Sampling(**options).check()


@pytest.mark.parametrize("k", [1, 5, 40, 299, 300])
def test_the_most_likely_tokens_are_those_of_a_stable_sort(k: int) -> None:
    """Logits of 16-bit models are often equal: of these the lower tokens come first."""
    rng = np.random.default_rng(k)
    for logits in (rng.integers(0, 9, 300) / 4, np.zeros(300), rng.normal(size=300)):
        tokens, _ = Sampling(top_k=k).distribution(logits.astype(np.float32))
        assert tokens.tolist() == np.argsort(-logits, kind="stable")[:k].tolist()


def test_a_draw_from_all_tokens_adds_up_in_their_order() -> None:
    logits = np.array([-np.inf, 0.5, 2.0, -1.0, 2.0, -np.inf])
    with np.errstate(divide="ignore"):
        ends = np.cumsum(np.exp(logits / 0.7) / np.exp(logits / 0.7).sum())
    for position in range(200):
        wanted = int(np.searchsorted(ends, unit(3, 1, position), side="right"))
        assert Sampling(0.7, seed=3).draw(logits, 1, position) == wanted in (1, 2, 3, 4)
