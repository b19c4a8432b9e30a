"""Each kernel against the numpy meaning of its op, over the samples of op_samples; f32 to 2e-5, f64 to 1e-12. Sums of
products may cancel, so their absolute error is by the largest one.

A run takes a tenth of the samples, chosen by DSLC_PART; all with DSLC_SOAK=1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of
from op_samples.every import SAMPLES
from thinning import taken

from dslc.base.errors import DslcError
from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.cost import MATRIX_KINDS, kind
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry

pytestmark = pytest.mark.slow

OPS = registry.ops()

#: Ops of the table without a kernel yet; the list may shrink, never grow.
WITHOUT = {
    *("init_orthogonal", "casts", "pick", "contraction", "pack_bits", "unpack_bits"),
    *("strided_sdpa", "strided_sdpa_grad", "few_queries_sdpa", "put_rows", "slices", "together"),  # for GPUs alone
    *("ordered_rows", "row_order", "take_last", "give_last"),  # these, too
}
TOLERANCE = {"f32": (2e-5, 2e-6), "f64": (1e-12, 1e-13)}
NUMPY = {"f32": np.float32, "f64": np.float64}


def cases() -> list[Any]:
    listed = []
    for name in sorted(SAMPLES):
        if name in OPS and not OPS[name].view:
            pairs = [(n, dtype) for n in range(len(SAMPLES[name])) for dtype in ("f32", "f64")]
            listed += [pytest.param(name, n, d, id=f"{name}-{n}-{d}") for n, d in taken(pairs, 10)]
    return listed


def node_of(name: str, number: int, dtype: str) -> tuple[Node, list[np.ndarray]]:
    sample = SAMPLES[name][number]
    xs = [np.asarray(x, NUMPY[dtype]) if x.dtype == np.float64 else x for x in sample.arrays(name)]
    attrs = {k: DType(dtype) if v is DType.FLOAT else v for k, v in sample.attrs.items()}
    return Builder(name="here").node(OPS[name], *values_of(xs), **attrs), xs


@pytest.mark.parametrize(("name", "number", "dtype"), cases())
def test_a_kernel_gives_what_the_meaning_gives(name: str, number: int, dtype: str) -> None:
    node, xs = node_of(name, number, dtype)
    if lower(node) is None:
        return  # the reference provider runs it; which ops must have kernels is tested below
    try:
        wanted = apply(node.op, xs, node.attrs)
    except DslcError:
        return  # data that the entrance refuses
    rtol, atol = TOLERANCE[dtype]
    got = Native(node).run(xs, splits=1 + number % 3)
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        scale = max(1.0, np.abs(w[np.isfinite(w)]).max(initial=0.0)) if kind(node) in MATRIX_KINDS else 1.0
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol * scale, equal_nan=True)


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - WITHOUT))
def test_an_op_of_the_table_has_a_kernel(name: str) -> None:
    if name in OPS and not OPS[name].view:
        assert any(lower(node_of(name, n, "f32")[0]) is not None for n in range(len(SAMPLES[name])))
