"""dropout: a kernel of sums draws for itself; ``codegen/cuda/region/test_drawn_masks.py`` tests the bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels.dropout_graphs import SCALARS, gradient, graph_with, run, value

from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.fuse.dropout import dropout


def test_sums_draw_across_their_rows() -> None:
    """Nothing in memory is as large as what is dropped, and a thread's neighbours lie down the columns."""
    x, bias = value("x", DType.F32, 8, 1), value("bias", DType.F32, 64)
    scalars = [value(name, DType.I64) for name in SCALARS]
    b = Builder(name="here")
    attrs: dict[str, Any] = {"p": 0.25, "key": 77, "row_elements": 64}
    drawn = b(OPS["dropout"], b(OPS["mul"], x.value, bias.value), *(s.value for s in scalars), **attrs)
    graph = graph_with([x, bias, *scalars], b(OPS["fused_sums"], drawn, body=(), summed=(0,), over=(0,)))
    body = (("mul", (0, 1), ()), ("dropout", (5, 2, 3, 4), tuple(sorted(attrs.items()))))
    given = [v.value for v in (x, bias, *scalars)]
    whole = graph_with([x, bias, *scalars], b(OPS["fused_sums"], *given, body=body, summed=(6,), over=(0,)))
    [one], [other] = run(graph), run(whole)
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)  # in another order: there are no columns to read
    assert [n.op.name for n in dropout(graph).nodes] == ["fused", "fused_sums"]


@pytest.mark.parametrize("shape", [(40, 6), (40, 7)])
def test_sums_of_narrow_rows_do_not_draw(shape: tuple[int, int]) -> None:
    """A draw would serve one element or two."""
    graph = gradient(DType.F32, shape, (0,))
    assert dropout(graph) is graph
