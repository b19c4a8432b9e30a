"""Gradients of products along lines: exact at zeros and with any signs, of any order, in memory linear in the line."""

from __future__ import annotations

import numpy as np
import pytest
from op_laws.evaluation import apply, values_of
from op_laws.sample_cases import gradients_of, node_of

from dslc.compiler.ir.graph import Graph, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.passes.lower.gradient.differentiate import differentiate
from dslc.runtime.artifact.dtypes import numpy_dtype

#: Lines without a zero, with one at the begin, within and at the end, and with several; of both signs.
LINES = np.array([
    [2.0, -3.0, 0.5, -1.0, 4.0],
    [0.0, -3.0, 0.5, -1.0, 4.0],
    [2.0, -3.0, 0.0, -1.0, 4.0],
    [2.0, -3.0, 0.5, -1.0, 0.0],
    [2.0, 0.0, 0.5, 0.0, -4.0],
    [0.0, 0.0, 0.0, 2.0, 0.0],
    [-2.0, -0.5, -1.5, -1.0, -3.0],
])  # fmt: skip
WEIGHTS = np.array([1.0, -2.0, 0.5, 3.0, -1.0])
ERROR = {"f64": 1e-15, "f32": 1e-6, "f16": 2e-3}  # of the largest gradient of a line


def _without(line: np.ndarray, reverse: bool) -> np.ndarray:
    """The gradient of a line's running products: of each the product of all others, written out."""
    n = len(line)
    parts = [range(i, n) if reverse else range(i + 1) for i in range(n)]
    return np.array([
        sum(WEIGHTS[i] * np.prod([line[j] for j in part if j != k]) for i, part in enumerate(parts) if k in part)
        for k in range(n)
    ])  # fmt: skip


@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_gradient_of_a_running_product(axis: int, reverse: bool, dtype: str) -> None:
    kind = numpy_dtype(dtype)
    x = (LINES.T if axis == 0 else LINES).astype(kind)
    op, attrs = OPS["cumprod"], {"axis": axis, "reverse": reverse}
    node, [y] = node_of(op, [x], attrs), apply(op, [x], attrs)
    dy = np.broadcast_to(WEIGHTS[:, None] if axis == 0 else WEIGHTS, x.shape).astype(kind)
    [found] = gradients_of(op, node, {node.inputs[0]: x, node.out: y}, [dy])
    wanted = np.array([_without(line, reverse) for line in LINES])
    found = (found.T if axis == 0 else found).astype(np.float64)
    size = np.abs(wanted).max(1, keepdims=True)
    assert (np.abs(found - wanted) <= ERROR[dtype] * size).all()
    assert (found[wanted == 0] == 0).all()


def _largest(name: str, count: int) -> int:
    """Elements of the largest value of a second derivative along a line."""
    attrs = {"over": (0,), "keep": False} if name == "prod" else {"axis": 0, "reverse": False}
    b, [x] = Builder(), values_of([np.ones(count)])
    y = b(OPS[name], x, **attrs)
    whole = b(OPS["sum"], y, over=(0,), keep=False) if y.type.rank else y
    once = _derivative(whole, x)
    twice = _derivative(b(OPS["sum"], b(OPS["mul"], once, once), over=(0,), keep=False), x)
    found, stack, largest = set(), [twice], 0
    while stack:
        value = stack.pop()
        largest = max(largest, value.type.bytes // value.type.dtype.itemsize)
        if value.producer not in found and hasattr(value.producer, "inputs"):
            found.add(value.producer)
            stack += value.producer.inputs
    return largest


def _derivative(y: Value, x: Value) -> Value:
    return differentiate(Graph((), (), {}), y, [x])[x]


@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_second_derivatives_take_memory_that_is_linear_in_the_line(name: str) -> None:
    assert _largest(name, 300) == 300


def test_a_recurrence_of_16_bits_is_added_up_in_32() -> None:
    ones, small = np.ones(1000, np.float16), np.full(1000, 2**-10, np.float16)
    found, wanted = [], small.astype(float)[0] * np.arange(1, 1001)
    for flag in (False, True):
        [y] = apply(OPS["recurrence"], [ones, small], {"axis": 0, "reverse": flag, "late": not flag})
        assert y.dtype == np.float16
        found.append(y[::-1] if flag else y)
    for y in found:
        np.testing.assert_array_equal(y, wanted.astype(np.float16))
