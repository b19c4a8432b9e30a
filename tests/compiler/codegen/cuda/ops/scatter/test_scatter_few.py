"""Scatters of few elements to each line, as compiled: indices that differ, that are equal, that do not exist."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.scatter import scatter_few
from dslc.compiler.codegen.cuda.ops.scatter.scatter_few import FewScatter
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

HOW: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
LENGTH, COUNT = 5, 11


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter_few, "_SMALL", 0)
    monkeypatch.setattr(scatter_few, "_THREADS", 32)


def case(how: str, dtype: DType, lines: tuple[int, int]) -> tuple[Node, list[np.ndarray]]:
    (outer, inner), rng, b = lines, np.random.default_rng(3), Builder(name="here")
    index = rng.integers(0, 4, (outer, LENGTH, inner)).astype(np.int32)
    drawn = [rng.normal(size=(outer, size, inner)) for size in (COUNT, LENGTH)]
    x, src = [(d * 9).astype(np.int32) if dtype.is_int else simulator.held(d, dtype) for d in drawn]
    target, source, at = value(dtype, x.shape), value(dtype, src.shape), value(DType.I32, index.shape)
    if how == "sum":
        return b.node(OPS["scatter_add"], source, at, axis=1, count=COUNT), [src, index]
    return b.node(OPS["scatter_reduce"], target, source, at, axis=1, how=how), [x, src, index]


@pytest.mark.parametrize("lines", [(3, 1), (2, 7)])
@pytest.mark.parametrize(
    ("how", "dtype"), [("sum", DType.F32), ("sum", DType.BF16), ("sum", DType.I32), ("prod", DType.F32),
                       ("max", DType.BF16), ("min", DType.I32)]
)  # fmt: skip
def test_combinations(how: str, dtype: DType, lines: tuple[int, int]) -> None:
    node, xs = case(how, dtype, lines)
    assert [type(launch.spec) for launch in lower(node) or []][-1] is FewScatter
    *x, src, index = xs
    wanted = x[0].astype(np.float64) if x else np.zeros((lines[0], COUNT, lines[1]))
    for a, c in np.ndindex(lines):
        HOW[how].at(wanted[a, :, c], index[a, :, c], src[a, :, c].astype(np.float64))
    tolerance = 2**-7 if dtype is DType.BF16 else 1e-6
    np.testing.assert_allclose(on_machine(node, xs)[0], wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("wrong", [-1, COUNT])
@pytest.mark.parametrize("how", ["sum", "max"])
def test_an_unknown_id_spoils_its_line_alone(how: str, wrong: int) -> None:
    node, xs = case(how, DType.F32, (2, 3))
    xs[-1][1, 2, 0] = wrong
    [got] = on_machine(node, xs)
    lost = np.isnan(got).any(1)
    assert np.isnan(got[1, :, 0]).all() and lost.sum() == 1
    node, xs = case("sum", DType.I32, (2, 3))
    wanted = on_machine(node, [np.where(np.arange(LENGTH)[:, None] == 2, 0, xs[0]), xs[1]])[0]
    xs[1][:, 2] = wrong
    np.testing.assert_array_equal(on_machine(node, xs)[0], wanted)


def test_it_is_for_few_elements_of_long_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for length, count, few in ((4, 1024, True), (65, 4096, False), (4, 6, False)):
        given, at = (value(dtype, (32768, length)) for dtype in (DType.BF16, DType.I32))
        node = Builder(name="here").node(OPS["scatter_add"], given, at, axis=1, count=count)
        assert any(isinstance(launch.spec, FewScatter) for launch in lower(node) or []) == few
