"""Sweeps whose rows are long: more elements of them a thread."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import drawn, run_launches, simulated
from op_laws.evaluation import apply

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region.reduction import row_column_sweep
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType


def test_long_rows_of_16_bits_in_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread has 32 elements of a row, in f32 half as many."""
    monkeypatch.setattr(row_column_sweep, "MULTIPROCESSORS", 2)  # of 20 rows each
    monkeypatch.setattr(row_column_sweep, "RESIDENT", 96)
    shapes = [(40, 3072), (3072,), (40,), (40,), (40, 3072)]
    xs = [simulator.held(x, DType.BF16) if x.ndim == 2 else x for x in drawn(np.random.default_rng(0), *shapes)]
    nodes = []
    for dtype in (DType.BF16, DType.F32):
        types = [TensorType(dtype if len(s) == 2 else DType.F32, s) for s in shapes]
        values = [Input(f"x{i}", Kind.DATA, t).value for i, t in enumerate(types)]
        nodes.append(Builder(name="here").node(OPS["layernorm_grad"], *values, axis=1))
    specs = [(lower(node) or [])[0].spec for node in nodes]
    assert [spec.cut.held * spec.cut.vector for spec in specs] == [32, 16]
    wide = apply(nodes[0].op, [x.astype(np.float64) for x in xs], nodes[0].attrs)
    for node, rtol in zip(nodes, (2**-8, 1e-4), strict=True):
        for g, w in zip(simulated(node, xs) or [], wide, strict=True):
            np.testing.assert_allclose(g, w, rtol=rtol, atol=rtol * max(1.0, float(np.max(np.abs(w)))))


def test_partial_sums_lie_in_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row for each team, whatever the inputs are: here the last of them is the same for all rows."""
    monkeypatch.setattr(row_column_sweep, "MULTIPROCESSORS", 2)
    monkeypatch.setattr(row_column_sweep, "RESIDENT", 96)
    rows, length = 400, 520
    shapes = [(rows, length), (rows, length), (length,)]
    x, dy, gamma = (Input(f"x{i}", Kind.DATA, TensorType(DType.F32, s)).value for i, s in enumerate(shapes))
    dx, sums = (Input(n, Kind.DATA, TensorType(DType.F32, s)).value for n, s in zip("ab", (shapes[0], shapes[2])))
    each, one = Access(DType.F32, (length, 1)), Access(DType.F32, (0, 1))
    along = RegionBuilder((rows,), (length,), [each, each, one], [each])
    along.element()
    total = along.reduce("sum", along.let(along.input(1) * along.input(2), DType.F32))
    along.element()
    along.store(0, along.let(along.input(0) * total, DType.F32))
    down = RegionBuilder((length,), (rows,), [Access(DType.F32, (1, length))] * 2, [Access(DType.F32, (1, 0))])
    down.element()
    found = down.reduce("sum", down.let(down.input(0) * down.input(1), DType.F32))
    down.row()
    down.store(0, found)
    launches = [Launch(along.region(), (x, dy, gamma), (dx,)), Launch(down.region(), (x, dy), (sums,))]
    swept = row_column_sweep.sweep(*launches, 0)
    assert swept is not None and swept[0].spec.steps > 1
    xs = drawn(np.random.default_rng(0), *shapes)
    got = run_launches(swept, (x, dy, gamma), xs, (dx, sums))
    wide = [a.astype(np.float64) for a in xs]
    np.testing.assert_allclose(got[0], wide[0] * (wide[1] * wide[2]).sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(got[1], (wide[0] * wide[1]).sum(0), rtol=1e-5)
