"""Random numbers: the published vectors, our own mapping of elements to draws, and what the draws look like."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dslc.compiler.ops.random import philox
from dslc.compiler.ops.registry import meanings

# Known answers for philox4x32 with ten rounds, published with the algorithm: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
KEY = 0x0123_4567_89AB_CDEF


def words_of(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter: str, key: str, result: str) -> None:
    k0, k1 = words_of(key)
    got = philox.philox(np.array(words_of(counter), np.uint32)[:, None], (k0, k1))
    assert got.dtype == np.uint32
    assert got[:, 0].tolist() == words_of(result)


def test_known_answer_through_draw_number_step_key_and_seed() -> None:
    # the third vector: draw number and step are the counter's halves, key xor seed is the key
    number, step, mixed = 0x85A308D3_243F6A88, 0x03707344_13198A2E, 0x299F31D0_A4093822
    for seed in (0, 1, -1, 2**63 - 1):
        got = philox.draws(number, 1, key=(mixed ^ seed) % 2**64, seed=seed, step=step)
        assert got[0].tolist() == words_of(KNOWN[2][2])


def test_keys_are_fixed_for_ever() -> None:
    assert f"{philox.key_of('stage.1.drop', 'dropout'):016x}" == "180bd2e384703970"
    assert f"{philox.key_of('', ''):016x}" == "987ab3ff9c0b346e"
    assert philox.key_of("a", "bc") != philox.key_of("ab", "c")


def test_draws_are_fixed_for_ever(golden: Callable[[str, str], None]) -> None:
    lines = [f"key_of {path} {purpose}: {philox.key_of(path, purpose):016x}"
             for path, purpose in (("drop", "dropout"), ("enc#2", "randn"), ("c1.weight", "init"))]  # fmt: skip
    for seed, step, start in ((0, 0, 0), (7, 3, 5), (-1, 2**40, 2**35 + 1)):
        numbers = {"key": KEY, "seed": seed, "step": step}
        lines.append(f"seed {seed} step {step} from element {start}")
        lines.append("  words " + " ".join(f"{w:08x}" for w in philox.words(start, 6, **numbers)))
        lines.append("  halves " + " ".join(f"{h:04x}" for h in philox.halves(start, 10, **numbers)))
        u = philox.uniform(philox.words(start, 6, **numbers))
        lines.append("  uniform " + " ".join(v.hex() for v in u.tolist()))
        lines.append("  normal " + " ".join(v.hex() for v in philox.normal(start, 6, **numbers).tolist()))
    golden("ops/philox.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("source", [philox.words, philox.halves, philox.normal])
def test_a_part_of_the_elements_is_a_part_of_the_draws(source: Callable[..., np.ndarray]) -> None:
    whole = source(0, 64, key=KEY, seed=1, step=2)
    for start in range(20):
        for count in (0, 1, 5, 8, 17):
            part = source(start, count, key=KEY, seed=1, step=2)
            assert part.shape == (count,)
            assert part.tobytes() == whole[start : start + count].tobytes()


def test_a_batch_in_two_parts_is_dropped_as_the_whole() -> None:
    dropout = meanings()["dropout"]
    x = np.ones((6, 5), np.float32)
    attrs = {"p": 0.5, "key": KEY, "row_elements": 5}

    def dropped(x: np.ndarray, row: int) -> np.ndarray:
        [y] = dropout([x, np.array(3), np.array(4), np.array(row)], attrs)
        return np.asarray(y)

    whole = dropped(x, 10)
    parts = [dropped(x[:2], 10), dropped(x[2:], 12)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert dropped(x, 11).tobytes() != whole.tobytes()
    assert set(np.unique(whole)) == {0.0, 2.0}


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_share_and_the_mean(p: float) -> None:
    x = np.ones(200_000, np.float32)
    [y] = meanings()["dropout"]([x, np.array(1), np.array(2), np.array(0)], {"p": p, "key": KEY, "row_elements": 1})
    assert abs((y == 0).mean() - p) < 0.005
    assert abs(y.mean() - 1) < 0.02


def test_moments() -> None:
    u = philox.uniform(philox.words(0, 1_000_000, key=KEY, seed=1, step=0)).astype(float)
    z = philox.normal(0, 1_000_000, key=KEY, seed=1, step=0).astype(float)
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 2e-3 and abs(u.var() - 1 / 12) < 2e-3
    assert abs(z.mean()) < 5e-3 and abs(z.var() - 1) < 5e-3
    assert abs((z**3).mean()) < 0.02 and abs((z**4).mean() - 3) < 0.05
    assert abs((z[::2] * z[1::2]).mean()) < 5e-3
    assert 4.5 < abs(z).max() < 7


def test_the_extreme_words_give_finite_numbers() -> None:
    words = np.array([[0, 0, 2**32 - 1, 2**32 - 1]], np.uint32)
    original = philox.draws
    try:
        philox.draws = lambda *a, **k: words
        z = philox.normal(0, 4, key=0, seed=0, step=0)
    finally:
        philox.draws = original
    assert np.isfinite(z).all()
    assert z[0] == pytest.approx(np.sqrt(2 * 33 * np.log(2)), rel=1e-6)
    assert z[2] == z[3] == 0
