"""The kernels in CUDA C++: what a contraction's description means, and that every kernel compiles as it should.

That their code computes it is seen on a GPU (tests/gpu); here the description is evaluated with numpy, index by index.
"""

from __future__ import annotations

import os
import re
from math import prod
from typing import Any

import numpy as np
import pytest
from evaluation import apply, values_of
from sample_nodes import OPS, SAMPLES, node_of

from dslc.base.errors import DslcError
from dslc.compiler.codegen.cuda import attention, contractions, cpp, drawing, indexing, pooling, units
from dslc.compiler.codegen.cuda.contract import Contract, Mma
from dslc.compiler.codegen.cuda.places import Operand, Problem
from dslc.compiler.ir.op import Builder

LOWERED = {
    **contractions.LOWERED,
    **pooling.LOWERED,
    **drawing.LOWERED,
    **attention.LOWERED,
    **indexing.LOWERED,
}


def cases(names: Any, share: int) -> list[Any]:
    share = 1 if os.environ.get("DSLC_SOAK") == "1" else share
    first = int(os.environ["DSLC_SEED"]) % share
    listed = []
    for name in sorted(names):
        pairs = [(n, dtype) for n in range(len(SAMPLES[name])) for dtype in ("f32", "f64")]
        listed += [pytest.param(name, n, d, id=f"{name}-{n}-{d}") for n, d in pairs[first::share]]
    return listed


def grids(spec: Problem, groups: str) -> dict[str, np.ndarray]:
    """The index along each axis of the groups, as arrays that broadcast to [z, m, n, k]."""
    found = {}
    for place, group in enumerate("zmnk"):
        if group in groups:
            sizes = [size for _, size in spec.sizes(group)]
            shape = [1] * 4
            shape[place] = prod(sizes)
            for (axis, _), index in zip(spec.sizes(group), np.indices(sizes).reshape(len(sizes), prod(sizes))):
                found[axis] = index.reshape(shape)
    return found


def read(operand: Operand, data: np.ndarray, index: dict[str, np.ndarray]) -> np.ndarray:
    flat = data.reshape(-1).astype(np.float64)
    offset = sum((index[a] * s for a, s in operand.strides), np.zeros((1, 1, 1, 1), np.int64))
    inside = np.ones((1, 1, 1, 1), bool)
    for c in operand.coordinates:
        at = c.start + sum(index[a] * s for a, s in c.steps)
        inside = inside & (at >= 0) & (at % c.divide == 0) & (at // c.divide < c.size)
        offset = offset + at // c.divide * c.stride
    return np.where(inside, flat[np.where(inside, offset, 0)], 0)


@pytest.mark.parametrize(("name", "number", "dtype"), cases(contractions.LOWERED, 4))
def test_a_description_means_what_the_op_does(name: str, number: int, dtype: str) -> None:
    node, xs = node_of(name, number, dtype)
    launches = contractions.LOWERED[name](node) if node.types[0].bytes else []
    if not launches or not isinstance(launches[0].spec, Contract | Mma):
        return  # nothing to add up: filled with zeros, or empty
    spec, depth = launches[0].spec.problem, launches[0].spec.tile.depth
    a, b = (xs[node.inputs.index(v)] for v in launches[0].reads)
    if node.inputs[0] is node.inputs[1]:
        a = b = xs[0]
    index = grids(spec, "zmnk")
    left = read(spec.a, a, index)
    right = read(spec.b, b, index)
    sums = (left * right).sum(3, keepdims=True)
    place = sum((index[x] * s for x, s in spec.c.strides), np.zeros((1, 1, 1, 1), np.int64))
    place = np.broadcast_to(place, sums.shape)
    assert len(np.unique(place)) == place.size == prod(node.types[0].ints), "each element is written once"
    got = np.empty(place.size)
    got[place.reshape(-1)] = sums.reshape(-1)
    wanted = np.asarray(apply(node.op, [x.astype(np.float64) for x in xs], node.attrs)[0]).reshape(-1)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    part = spec.part(depth)
    assert (spec.split - 1) * part < spec.count("k") <= spec.split * part, "no part of the sum is empty"


@pytest.mark.parametrize(("name", "number", "dtype"), cases(LOWERED, 12))
def test_a_kernel_compiles_for_both_architectures(name: str, number: int, dtype: str) -> None:
    try:
        node, _ = node_of(name, number, dtype)
    except DslcError:
        return
    launches = LOWERED[name](node) if node.types[0].bytes else []
    for launch in launches or []:
        if isinstance(launch.spec, cpp.CppKernel | drawing.Draw):
            for architecture in ("sm_80", "sm_90"):
                code = units.compiled(launch.spec, launch.symbol, architecture)
                text = code.ptx.decode("ascii")
                assert f".visible .entry {launch.symbol}(" in text and code.cubin[:4] == b"\x7fELF"
                assert "st.local" not in text and f".target {architecture}" in text
                if dtype == "f32" and name not in ("randn", "init_normal"):  # normal numbers are made in f64
                    assert not re.search(r"\b(fma|mul|add)(\.rn)?\.f64", text)
                if name not in contractions.LOWERED and not name.startswith("sdpa"):
                    assert "fma.rn.f32" not in text


def test_a_large_product_keeps_its_sums_in_registers() -> None:
    shape = np.zeros((1024, 1024), np.float32)
    node = Builder(name="here").node(OPS["matmul"], *values_of([shape, shape]), transpose_a=False, transpose_b=False)
    launch, *_ = contractions.matmul(node) or []
    text = units.compiled(launch.spec, launch.symbol, "sm_90").ptx.decode("ascii")
    assert "ld.shared.v4.f32" in text and ".local" not in text
