"""Sweeps whose rows are long: more elements of them a thread."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import drawn, simulated
from op_laws.evaluation import apply

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region import row_column_sweep
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
