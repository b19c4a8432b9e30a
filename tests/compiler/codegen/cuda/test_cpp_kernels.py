"""The kernels in CUDA C++: what a contraction's description means, and that every kernel compiles as it should.

That their code computes it is seen on a GPU (tests/gpu); here the description is evaluated with numpy, index by index.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import pytest
from gpu_kernels.kernel_sources import ops_of
from gpu_kernels.sample_nodes import OPS, SAMPLES, node_of
from op_laws.evaluation import apply, values_of
from thinning import SOAK, turn

from dslc.base.errors import DslcError
from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda import cuda_cpp
from dslc.compiler.codegen.cuda.attention import lower as attention
from dslc.compiler.codegen.cuda.contraction import lower as contraction
from dslc.compiler.codegen.cuda.contraction.kernel import Contract, Mma
from dslc.compiler.codegen.cuda.contraction.problem import Operand, Problem, Window, seen
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops import pooling
from dslc.compiler.codegen.cuda.ops import random as cuda_random
from dslc.compiler.codegen.cuda.ops.copies import indexing
from dslc.compiler.codegen.region import random
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

#: One that DSLC_PART draws; both with DSLC_SOAK=1.
ARCHITECTURES = ("sm_80", "sm_90") if SOAK else (("sm_80", "sm_90")[turn(2)],)
CPP = ops_of(contraction, pooling, cuda_random, random, attention, indexing)


def cases(names: Any, share: int) -> list[Any]:
    share = 1 if SOAK else share
    first = turn(share)
    listed = []
    for name in sorted(names):
        pairs = [(n, dtype) for n in range(len(SAMPLES[name])) for dtype in ("f32", "f64")]
        listed += [pytest.param(name, n, d, id=f"{name}-{n}-{d}") for n, d in pairs[first % len(pairs) :: share]]
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
    offset = sum((index[a] * s for a, s in operand.strides), np.full((1, 1, 1, 1), operand.start))
    inside = np.ones((1, 1, 1, 1), bool)
    for window in operand.windows:
        at = window.start + sum(index[a] * s for a, s in window.steps)
        inside = inside & (at >= 0) & (at < window.size)
    return np.where(inside, flat[np.where(inside, offset, 0)], 0)


@pytest.mark.parametrize(("name", "number", "dtype"), cases(contraction.PROBLEMS, 4))
def test_a_description_means_what_the_op_does(name: str, number: int, dtype: str) -> None:
    node, xs = node_of(name, number, dtype)
    launches = contraction.product(node) if node.types[0].bytes else []
    specs = [x.spec for x in launches or [] if isinstance(x.spec, Contract | Mma)]
    if not launches or not specs:
        return  # nothing to add up: filled with zeros, or empty
    a, b = (xs[node.inputs.index(v)] for v in launches[0].reads)
    if node.inputs[0] is node.inputs[1]:
        a = b = xs[0]
    got = np.full(prod(node.types[0].ints), np.nan)
    for spec in specs:
        written(got, spec.problem, a, b)
    wanted = np.asarray(apply(node.op, [x.astype(np.float64) for x in xs], node.attrs)[0]).reshape(-1)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    longest = max((spec.problem for spec in specs), key=lambda p: p.count("k"))
    part = longest.part(specs[0].tile.depth)
    assert (longest.split - 1) * part < longest.count("k") <= longest.split * part, "no part of the sum is empty"


def written(got: np.ndarray, problem: Problem, a: np.ndarray, b: np.ndarray) -> None:
    """Puts the sums where c has them; nobody has written there before."""
    index = grids(problem, "zmnk")
    sums = (read(problem.a, a, index) * read(problem.b, b, index)).sum(3, keepdims=True)
    place = sum((index[x] * s for x, s in problem.c.strides), np.full((1, 1, 1, 1), problem.c.start))
    place = np.broadcast_to(place, sums.shape).reshape(-1)
    assert len(np.unique(place)) == place.size and np.isnan(got[place]).all(), "each element is written once"
    got[place] = sums.reshape(-1)


@pytest.mark.parametrize("seed", range(40))
def test_classes_of_pixels_make_the_gradient_of_any_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 3))
    stride, pad, dilation = (tuple(map(int, rng.integers(low, high, rank))) for low, high in ((1, 5), (0, 4), (1, 4)))
    taps = tuple(map(int, rng.integers(1, 5, rank)))
    size = [int(d * (t - 1) + 1 + rng.integers(0, 8)) for t, d in zip(taps, dilation)]
    count = [(s + 2 * p - d * (t - 1) - 1) // by + 1 for s, p, d, t, by in zip(size, pad, dilation, taps, stride)]
    groups, last = int(rng.integers(1, 3)), bool(rng.integers(2))
    dy, w = rng.normal(size=(2, 2 * groups, *count)), rng.normal(size=(2 * groups, 3, *taps))
    if last:
        dy, w = (np.moveaxis(x, 1, -1) for x in (dy, w))
    geometry: Any = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups, "size": tuple(size)}
    op = OPS["conv_dgrad_last" if last else "conv_dgrad"]
    node = Builder(name="here").node(op, *values_of([np.float32(dy), np.float32(w)]), **geometry)
    [wanted] = apply(op, [dy, w], node.attrs)
    launches = [x for x in contraction.product(node) if isinstance(x.spec, Contract)]
    if not launches:
        assert not np.any(wanted), "zeros are filled in"
        return
    assert len(launches) == prod(map(min, stride, size))
    got = np.full(prod(node.types[0].ints), np.nan)
    for launch in launches:
        written(got, launch.spec.problem, *((dy, w) if launch.reads[0] is node.inputs[0] else (w, dy)))
    np.testing.assert_allclose(got, np.asarray(wanted).reshape(-1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_joined_axes_lie_where_the_given_ones_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes, strides, steps, step = [], {}, {}, int(rng.integers(1, 3))
    for number in range(5):
        size = int(rng.integers(1, 4))
        axes.insert(0, (f"x{number}", size))
        if rng.integers(4):
            strides[f"x{number}"] = step
        if not rng.integers(3):
            steps[f"x{number}"] = int(rng.integers(1, 3))
        step *= size if rng.integers(4) else size + 1
    operand = Operand(DType.F32, 1, tuple(strides.items()), (Window(tuple(steps.items()), 0, 9),))
    joined = seen(operand, axes)
    sizes = [size for _, size in axes]
    given = np.indices(sizes).reshape(5, -1)
    found = np.indices([x.size for x in joined]).reshape(len(joined), -1)
    for moved, by in ((strides, [x.stride for x in joined]), (steps, [x.steps[0] for x in joined])):
        wanted = sum(given[i] * moved.get(name, 0) for i, (name, _) in enumerate(axes))
        np.testing.assert_array_equal(wanted, sum(found[i] * s for i, s in enumerate(by)))
    assert len(seen(Operand(DType.F32, 1, ()), axes)) == 1, "what does not move is one axis"


def test_quotients_by_magic_numbers() -> None:
    rng = np.random.default_rng(0)
    near = [s + d for s in (1 << n for n in range(2, 31)) for d in (-1, 0, 1)]
    for size in (1, 2, 3, 5, 7, *near, *map(int, rng.integers(1, 1 << 31, 200))):
        numbers = cuda_cpp.Numbers()
        assert numbers.divisor("n", size) == ("s.n", "s.n_magic", "s.n_shift")
        (_, same), (_, magic), (_, shift) = numbers.scalar_args
        assert same == size and -(1 << 31) <= magic < 1 << 31
        some = [0, 1, size - 1, size, (1 << 31) - 1, *map(int, rng.integers(0, 1 << 31, 20))]
        for x in {*some, *(n // size * size for n in some), *(max(0, n // size * size - 1) for n in some)}:
            assert (2 * x * (int(magic) % (1 << 32)) >> 32) >> int(shift) == x // size, (x, size)


@pytest.mark.parametrize(("name", "number", "dtype"), cases(CPP, 40))
def test_a_kernel_compiles(name: str, number: int, dtype: str) -> None:
    try:
        node, _ = node_of(name, number, dtype)
    except DslcError:
        return
    for launch in lower(node) or []:
        if isinstance(launch.code, cuda_cpp.CppKernel | cuda_cpp.Code):
            for architecture in ARCHITECTURES:
                code = cuda_compile.compiled(launch.code, launch.symbol, architecture)
                text = code.ptx.decode("ascii")
                assert f".visible .entry {launch.symbol}(" in text and code.cubin[:4] == b"\x7fELF"
                assert "st.local" not in text and f".target {architecture}" in text
                in_f64 = name in ("randn", "init_normal", "init_orthogonal")
                if dtype == "f32" and not in_f64:
                    assert not re.search(r"\b(fma|mul|add)(\.rn)?\.f64", text)
                if name not in (*contraction.PROBLEMS, "contraction") and not name.startswith("sdpa"):
                    assert "fma.rn.f32" not in text


def test_a_large_product_keeps_its_sums_in_registers() -> None:
    shape = np.zeros((1024, 1024), np.float32)
    node = Builder(name="here").node(OPS["matmul"], *values_of([shape, shape]), transpose_a=False, transpose_b=False)
    launch, *_ = contraction.product(node)
    text = cuda_compile.compiled(launch.code, launch.symbol, "sm_90").ptx.decode("ascii")
    assert "ld.shared.v4.f32" in text and ".local" not in text
