"""Dropout of channels, of rows and for selu: what is dropped together, how many, and by how much the rest grows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import run, values_of
from op_laws.recorder import Recorder

from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.types import DType, TensorType


class Drawing(Recorder):
    """Draws with seed 3 at step 5, row 0."""

    def random(self, purpose: str, type_shape: Any) -> Any:
        self.scalars = [Input(n, Kind.DATA, TensorType(DType.I64, ())).value for n in ("seed", "step", "row")]
        return tuple(self.scalars), {"key": 11, "row_elements": math.prod(type_shape[1:])}


def drawn(name: str, x: np.ndarray, p: float) -> np.ndarray:
    call, [value] = Drawing(DType.F64), values_of([x])
    y = call.build(name, value, p)
    return run([y], {value: x} | dict(zip(call.scalars, map(np.array, (3, 5, 0)))))[0]


SHAPES = {"dropout2d": (40, 25, 2, 3), "dropout3d": (40, 25, 2, 1, 3), "stochastic_depth": (1000, 3, 2)}


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("name", SHAPES)
def test_elements_are_dropped_together(name: str, p: float) -> None:
    x = np.random.default_rng(1).uniform(1, 2, SHAPES[name])
    y = drawn(name, x, p)
    groups = y.reshape(1000, -1)
    kept = (groups != 0).all(1)
    assert ((groups == 0).all(1) | kept).all()
    assert abs(kept.mean() - (1 - p)) < 0.05
    np.testing.assert_allclose(groups[kept], x.reshape(1000, -1)[kept] / (1 - p), rtol=1e-4)


@pytest.mark.parametrize("p", [0.05, 0.2, 0.5])
def test_alpha_dropout_keeps_mean_and_variance(p: float) -> None:
    x = np.random.default_rng(2).normal(size=(200, 500))
    y = drawn("alpha_dropout", x, p)
    assert abs(y.mean()) < 0.01 and abs(y.var() - 1) < 0.01
    values, counts = np.unique(y, return_counts=True)
    assert abs(counts.max() / y.size - p) < 0.01 and values[counts.argmax()] < -0.7


@pytest.mark.parametrize("name", [*SHAPES, "alpha_dropout"])
def test_nothing_is_dropped_with_probability_0(name: str) -> None:
    """As outside of training, where the ones are not drawn."""
    x = np.random.default_rng(1).normal(size=SHAPES.get(name, (4, 5)))
    np.testing.assert_array_equal(drawn(name, x, 0.0), x)


def test_what_does_not_fit_is_refused() -> None:
    for name, shape, p in (("dropout2d", (4, 3), 0.5), ("dropout3d", (4, 3, 2, 2), 0.5), ("stochastic_depth", (), 0.5),
                           ("alpha_dropout", (4,), 1.0), ("dropout2d", (4, 3, 2, 2), 1.5)):  # fmt: skip
        with pytest.raises(Mismatch):
            drawn(name, np.zeros(shape), p)
