"""The kernels of logcumsumexp and its gradient, as compiled: short lines, one block and several, against f64."""

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine, threads_of
from gpu_kernels.sample_nodes import OPS, node_of, wanted
from op_samples.every import SAMPLES

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops import running
from dslc.compiler.codegen.cuda.ops.running import Running
from dslc.compiler.codegen.cuda.ops.running_logs import Lines
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

LONG = [((400,), 0), ((2, 150, 3), 1), ((130, 8), 0)]


def logs(shape: tuple[int, ...], axis: int, reverse: bool, dtype: DType = DType.F32) -> Node:
    return Builder(name="here").node(OPS["logcumsumexp"], value(dtype, shape), axis=axis, reverse=reverse)


def back(shape: tuple[int, ...], axis: int, reverse: bool) -> Node:
    given = [value(DType.F32, shape) for _ in range(3)]
    return Builder(name="here").node(OPS["logcumsumexp_grad"], *given, axis=axis, reverse=reverse)


def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("_THREADS", 64), ("_EACH", 2), ("_MIN_ROW", 64)):
        monkeypatch.setattr(running, name, number)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(
    ("op", "number"), [(op, n) for op in ("logcumsumexp", "logcumsumexp_grad") for n in range(len(SAMPLES[op]))]
)
def test_short_lines_agree_with_the_meaning(op: str, number: int, dtype: str) -> None:
    node, xs = node_of(op, number, dtype)
    assert threads_of(node) or not xs[0].size
    error = {"f64": 1e-12, "f32": 4e-5, "bf16": 8e-3}[dtype]
    for found, expected in zip(on_machine(node, xs), wanted(node, xs, dtype), strict=True):
        np.testing.assert_allclose(found, expected, rtol=error, atol=error)


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), LONG)
def test_lines_that_blocks_share(
    shape: tuple[int, ...], axis: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(monkeypatch)
    rng = np.random.default_rng(0)
    x, dy = (rng.normal(0, scale, shape).astype(np.float32) for scale in (4, 1))
    node, attrs = logs(shape, axis, reverse), {"axis": axis, "reverse": reverse}
    assert len(lower(node) or []) == len(lower(back(shape, axis, reverse)) or []) == 2
    [wanted] = OPS["logcumsumexp"].meaning([x.astype(np.float64)], attrs)
    [y] = on_machine(node, [x])
    np.testing.assert_allclose(y, wanted, rtol=2e-6, atol=2e-6)
    [slope] = OPS["logcumsumexp_grad"].meaning([x.astype(np.float64), wanted, dy.astype(np.float64)], attrs)
    np.testing.assert_allclose(on_machine(back(shape, axis, reverse), [x, y, dy])[0], slope, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, 400])
def test_numbers_that_no_sum_holds(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """-inf counts nothing and gets no gradient; inf and nan stay; the digits of small summands next to 0 are kept."""
    in_blocks(monkeypatch)
    x = np.full(count, -20.0, np.float32)
    x[0] = 0
    [y] = on_machine(logs((count,), 0, False), [x])
    np.testing.assert_allclose(y[1:], np.log1p(np.exp(-20.0) * np.arange(1, count)), rtol=1e-5)
    x[:], x[count // 2] = -np.inf, 3
    [y] = on_machine(logs((count,), 0, False), [x])
    np.testing.assert_array_equal(y, np.where(np.arange(count) < count // 2, -np.inf, 3).astype(np.float32))
    dy = np.ones(count, np.float32)
    [dx] = on_machine(back((count,), 0, False), [x, y, dy])
    np.testing.assert_array_equal(dx, np.where(np.arange(count) == count // 2, count - count // 2, 0))
    for far in (np.inf, np.nan):
        x[:], x[count // 2] = 1, far
        [y] = on_machine(logs((count,), 0, False), [x])
        assert np.isfinite(y[: count // 2]).all()
        np.testing.assert_array_equal(y[count // 2 :], np.full(count - count // 2, far, np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "kernel"), [((3, 40), Lines), ((2, 100), Running)])
def test_casts_before_and_after_need_no_kernel(
    shape: tuple[int, int], kernel: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(monkeypatch)
    attrs = (("axis", 1), ("reverse", False))
    wide, half = (("dtype", DType.F32),), (("dtype", DType.BF16),)
    body = (("cast", (0,), wide), ("logcumsumexp", (1,), attrs), ("cast", (2,), half))
    node = Builder(name="here").node(OPS["fused_rows"], value(DType.BF16, shape), body=body)
    assert [type(launch.spec) for launch in lower(node) or []] == [kernel]
    x = simulator.held(np.random.default_rng(0).normal(size=shape), DType.BF16)
    [found] = on_machine(logs(shape, 1, False), [x])
    assert on_machine(node, [x])[0].tobytes() == simulator.held(found, DType.BF16).tobytes()


def test_many_and_short_lines_have_teams_of_threads() -> None:
    specs = [(lower(logs(shape, 1, False)) or [])[0].spec for shape in ((1 << 20, 4), (8, 50, 1 << 16), (9, 700))]
    assert [spec.team if isinstance(spec, Lines) else 0 for spec in specs] == [4, 1, 32]
    long = [launch.spec for launch in lower(logs((32768, 1024), 1, False)) or []]
    assert [(spec.threads, spec.chunks) for spec in long if isinstance(spec, Running)] == [(128, 1)]
