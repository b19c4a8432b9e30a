"""Choices and slopes that are drawn: how often each, that gradients pass, and what holds outside of training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from graphs.random_graphs import graph_of
from op_laws.evaluation import run
from op_laws.recorder import Recorder

from dslc.compiler.ir.graph import Input, Kind, Value
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.passes.lower.gradient.differentiate import differentiate


class Drawing(Recorder):
    """Draws with seed 3 at step 5, row 0; each call with a key of its own."""

    def __init__(self) -> None:
        super().__init__(DType.F64)
        self.inputs: list[Input] = []
        self.feeds: dict[Value, np.ndarray] = {}

    def random(self, purpose: str, type_shape: Any) -> Any:
        scalars = [
            Input(f"{n}{len(self.inputs)}", Kind.DATA, TensorType(DType.I64, ())) for n in ("seed", "step", "row")
        ]
        self.inputs += scalars
        self.feeds |= {i.value: np.array(n) for i, n in zip(scalars, (3, 5, 0))}
        return tuple(i.value for i in scalars), {"key": 10 + len(self.feeds), "row_elements": math.prod(type_shape[1:])}


def drawn(name: str, x: np.ndarray, **named: Any) -> tuple[np.ndarray, np.ndarray]:
    """The result, and the gradient of the sum of its squares."""
    call, given = Drawing(), Input("x", Kind.PARAM, TensorType(DType.F64, x.shape))
    y = call.build(name, given.value, **named)
    loss = call.emit(OPS["sum"], call.emit(OPS["mul"], y, y), over=tuple(range(x.ndim)), keep=False)
    slope = differentiate(graph_of([given, *call.inputs], {"loss": loss}), loss, [given.value])[given.value]
    found = run([y, slope], {given.value: x} | call.feeds)
    return found[0], found[1]


@pytest.mark.parametrize("axis", [0, 1])
def test_a_hard_choice_is_drawn_by_its_probability_and_has_the_soft_gradient(axis: int) -> None:
    p = np.array([0.1, 0.2, 0.7])
    x = np.broadcast_to(np.log(p), (4000, 3))
    x = np.ascontiguousarray(x if axis else x.T)
    hard, slope = drawn("gumbel_softmax", x, hard=True, tau=0.5, axis=axis)
    soft, _ = drawn("gumbel_softmax", x, tau=0.5, axis=axis)
    np.testing.assert_allclose(hard.sum(axis), 1)
    np.testing.assert_array_equal(hard.argmax(axis), soft.argmax(axis))
    assert set(np.unique(np.round(hard, 12))) == {0, 1}
    np.testing.assert_allclose(hard.mean(1 - axis), p, atol=0.03)
    inner = (2 * hard * soft).sum(axis, keepdims=True)
    np.testing.assert_allclose(slope, soft * (2 * hard - inner) / 0.5, atol=1e-12)


def test_slopes_are_uniform_between_their_limits() -> None:
    x = np.where(np.arange(8000).reshape(40, 200) % 4 == 0, 1.0, -1.0)
    y, slope = drawn("rrelu", x, lower=0.2, upper=0.6)
    np.testing.assert_array_equal(y[x > 0], 1)
    slopes = -y[x < 0]
    assert 0.2 <= slopes.min() < 0.21 and 0.59 < slopes.max() <= 0.6
    assert abs(slopes.mean() - 0.4) < 0.01 and abs(slopes.var() - 0.4**2 / 12) < 0.001
    np.testing.assert_allclose(slope, 2 * y * np.where(x > 0, 1, -y))
