"""Random loops at run time: values and gradients are those of the program written out, and those of differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from loops import opened
from random_loops import ROWS, WIDTH, random_loops
from thinning import thinned

from dslc.runtime.session.session import Session

F64 = "precision { compute = f64; params = f64 }\n"
STEPS = (1, 2, 3, 5)


def data(steps: int, seed: int, dtype: str = "f4") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"x": (ROWS, steps, WIDTH), "u": (ROWS, steps, WIDTH), "z": (ROWS, WIDTH), "t": (ROWS, WIDTH)}
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def hold(one: Session, other: Session, given: dict[str, np.ndarray]) -> None:
    """Both have the same loss and, after a step of training, the same weights, bit for bit."""
    assert one.train_step(**given).loss == other.train_step(**given).loss
    for name in one.weights:
        assert np.array_equal(one.weights[name], other.weights[name]), name


@pytest.mark.parametrize("seed", thinned(range(24), 6))
def test_bits_are_those_of_the_program_written_out(seed: int, tmp_path: Path) -> None:
    steps = STEPS[seed % len(STEPS)]
    texts = random_loops(seed, steps, depth=1 + (seed % 5 == 0 and steps < 3))
    hold(*(opened(t, tmp_path / str(i), provider="reference") for i, t in enumerate(texts)), data(steps, seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [31, 34])
def test_bits_of_kernels_are_those_of_the_program_written_out(seed: int, tmp_path: Path) -> None:
    texts = random_loops(seed, 2)
    hold(*(opened(t, tmp_path / str(i), provider="own") for i, t in enumerate(texts)), data(2, seed))


@pytest.mark.parametrize("case", thinned(range(12), 8))
def test_gradients_agree_with_differences(case: int, fuzz_seed: int, tmp_path: Path) -> None:
    """In f64, along a random direction of all parameters, with a step that suits how much the loss bends there."""
    seed, steps = fuzz_seed + case, (4, 1, 3)[case % 3]
    session = opened(random_loops(seed, steps, 1 + case % 2, F64)[0], tmp_path, provider="reference")
    given, rng = data(steps, seed, "f8"), np.random.default_rng(seed)
    start = {name: np.array(session.weights[name]) for name in session.weights}
    way = {name: rng.standard_normal(value.shape) for name, value in start.items()}

    def loss(size: float) -> tuple[float, dict[str, np.ndarray]]:
        for name, value in start.items():
            session.weights[name] = value + size * way[name]
        found = float(session.train_step(**given).loss)
        return found, {name: (start[name] + size * way[name] - session.weights[name]) / 0.5 for name in start}

    slope = sum(float((loss(0.0)[1][name] * way[name]).sum()) for name in start)
    found = []
    for size in (1e-4, 3e-5, 1e-5, 3e-6):
        near, far = ((loss(n * size)[0] - loss(-n * size)[0]) / (2 * n * size) for n in (1, 2))
        found.append((4 * near - far) / 3)
    assert slope == pytest.approx(min(found, key=lambda each: abs(each - slope)), rel=1e-7, abs=1e-8)


def test_a_loop_without_steps_has_the_gradient_of_its_first_values(tmp_path: Path) -> None:
    text = (
        "nn 1\nmodel Net(x: [0, 3], z: [3]) -> [3] {\n  param w: [3] = 0.5\n  param v: [3] = 0.25\n  h = z * w\n"
        "  scan xt in x along 0 carry h into y { h = where(h > xt, tanh(h * v + xt), xt); yield h * w }\n"
        "  return h + sum(y, over=0) + v\n}\n"
        "train Net(t: [3]) {\n  loss = mse(output, t)\n  optimizer = sgd(lr=1.0)\n}\n" + F64
    )
    session = opened(text, tmp_path, provider="reference")
    z, t = np.random.default_rng(0).standard_normal((2, 3))
    session.train_step(x=np.zeros((0, 3)), z=z, t=t)
    d = 2 * (z * 0.5 + 0.25 - t) / 3
    np.testing.assert_allclose(session.weights["w"], 0.5 - d * z, rtol=1e-14)
    np.testing.assert_allclose(session.weights["v"], 0.25 - d, rtol=1e-14)
