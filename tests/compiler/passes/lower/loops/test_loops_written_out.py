"""A loop at run time gives what the same program gives written out, in values and gradients."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from loops import CELLS, data, model, opened

from dslc.runtime.session.session import Session


def hold(name: str, one: Session, other: Session, steps: int, seed: int) -> None:
    """Checks that both predict the same, and after three steps of training have the same weights, bit for bit. The
    last bits may differ if there are several results: the program written out does not join them (``random_loops.py``),
    so it adds up the terms of a gradient in another order. These cancel: after three steps, a weight differs by up to
    3.4e-5."""
    exact = len(CELLS[name].yields) == 1
    same = np.array_equal if exact else partial(np.allclose, rtol=1e-4, atol=1e-4)
    given = data(steps, seed)
    inputs = {name: given[name] for name in ("x", "z")}
    assert np.array_equal(one.predict(**inputs), other.predict(**inputs))
    for _ in range(3):
        assert same(one.train_step(**given).loss, other.train_step(**given).loss)
    for weight in one.weights:
        assert same(one.weights[weight], other.weights[weight]), weight


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", CELLS)
def test_numpy_gives_the_bits_of_the_program_written_out(
    name: str, steps: int, reverse: bool, tmp_path: Path, fuzz_seed: int
) -> None:
    texts = [model(CELLS[name], steps, written_out=each, reverse=reverse) for each in (False, True)]
    one, other = (opened(t, tmp_path / str(i), provider="reference") for i, t in enumerate(texts))
    hold(name, one, other, steps, fuzz_seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_kernels_give_the_bits_of_the_program_written_out(name: str, tmp_path: Path, fuzz_seed: int) -> None:
    texts = [model(CELLS[name], 5, written_out=each, reverse=name == "gru") for each in (False, True)]
    one, other = (opened(t, tmp_path / str(i), provider="own") for i, t in enumerate(texts))
    hold(name, one, other, 5, fuzz_seed)


def test_gradients_agree_with_differences(tmp_path: Path, fuzz_seed: int) -> None:
    """h = tanh(h * w + x) in f64, against a formula of numpy."""
    text = (
        "nn 1\nconst T = 6\nmodel Net(x: [3, T]) -> [3, T] {\n  param w: [3] = uniform(0.9)\n  h = zeros([3])\n"
        "  scan xt in x along T carry h into y { h = tanh(h * w + xt); yield h }\n  return y\n}\n"
        "train Net(t: [3, T]) {\n  loss = mse(output, t)\n  optimizer = sgd(lr=1.0)\n}\n"
        "precision { compute = f64; params = f64 }\n"
    )
    session = opened(text, tmp_path, provider="reference")
    rng = np.random.default_rng(fuzz_seed)
    x, t = rng.standard_normal((2, 3, 6))

    def loss(w: np.ndarray) -> float:
        h, sums = np.zeros(3), 0.0
        for step in range(6):
            h = np.tanh(h * w + x[:, step])
            sums += float(((h - t[:, step]) ** 2).sum())
        return sums / t.size

    w = np.array(session.weights["w"])
    assert session.train_step(x=x, t=t).loss == pytest.approx(loss(w), rel=1e-12)
    found = w - session.weights["w"]
    for i, unit in enumerate(np.eye(3) * 1e-6):
        assert found[i] == pytest.approx((loss(w + unit) - loss(w - unit)) / 2e-6, rel=1e-7, abs=1e-9)


def test_a_gradient_as_a_value_passes_through_a_loop(tmp_path: Path) -> None:
    """The force of an energy that a loop adds up, and the gradient of a loss with that force."""
    text = (
        "nn 1\nmodel Net(x: [3, 4]) -> (energy: [3], force: [3, 4]) {\n  param w: [] = 0.7\n  e = zeros([3])\n"
        "  scan xt in x along 1 carry e { e = e * w + xt^3 }\n  return e, gradient(e, x)\n}\n"
        "train Net(t: [3, 4]) {\n  loss = mean((force - t)^2)\n  optimizer = sgd(lr=1.0)\n}\n"
        "precision { compute = f64; params = f64 }\n"
    )
    session = opened(text, tmp_path, provider="reference")
    x, t = np.random.default_rng(0).standard_normal((2, 3, 4))
    w, powers = 0.7, np.arange(3, -1, -1)
    force = 3 * x**2 * w**powers
    assert np.allclose(session.predict(x=x).force, force, rtol=1e-12)
    slope = 3 * x**2 * powers * w ** np.maximum(powers - 1.0, 0)
    session.train_step(x=x, t=t)
    assert 0.7 - float(session.weights["w"]) == pytest.approx((2 * (force - t) * slope).mean(), rel=1e-10)
