"""Shapes larger than a task, a vector or a panel, with remainders; and that no cut of the tasks changes a bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of
from thinning import thinned

from dslc.compiler.codegen.cpu.region.schedule import cut
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry

OPS = registry.ops()
CONV = {"stride": (1, 1), "pad": (2, 2), "dilation": (1, 1), "groups": 1}
POOL = {"k": (2, 2), "stride": (2, 2), "pad": (0, 0)}
PLAIN, LEFT, RIGHT = ({"transpose_a": a, "transpose_b": b} for a, b in ((False, False), (True, False), (False, True)))
CONTRACTIONS = ("matmul", "conv", "conv_wgrad", "conv_dgrad")
#: op, attributes, shapes of the inputs
CASES: list[tuple[str, dict[str, Any], list[tuple[int, ...]]]] = [
    ("add", {}, [(64, 120), (120,)]),
    ("add", {}, [(5, 6, 28, 28), (6, 1, 1)]),
    ("mul", {}, [(30_011,), (30_011,)]),
    ("gelu", {"approximate": False}, [(3, 9001)]),
    ("relu", {}, [(700, 13)]),
    ("transpose", {"perm": (1, 0)}, [(301, 77)]),
    ("sum_to", {"shape": (1001,)}, [(33, 1001)]),
    ("sum_to", {"shape": (6, 1, 1)}, [(9, 6, 28, 28)]),
    ("sum_to", {"shape": (20_001,)}, [(3, 20_001)]),
    ("mean", {"over": (0, 1), "keep": False}, [(130, 77)]),
    ("max", {"over": (1,), "keep": False}, [(700, 37)]),
    ("softmax", {"axis": 1}, [(129, 257)]),
    ("softmax", {"axis": 1}, [(7, 33, 50)]),
    ("logsumexp", {"over": (1,), "keep": False}, [(40, 1000)]),
    ("layernorm", {"axis": 1, "eps": 1e-5}, [(70, 300), (300,), (300,)]),
    ("batchnorm", {"eps": 1e-5, "momentum": 0.1}, [(5, 9, 30, 31), *[(9,)] * 4]),
    ("layernorm_grad", {"axis": 1}, [(70, 300), (300,), (70,), (70,), (70, 300)]),
    ("matmul", PLAIN, [(130, 517), (517, 70)]),
    ("matmul", LEFT, [(300, 129), (300, 65)]),
    ("matmul", RIGHT, [(64, 400), (120, 400)]),
    ("matmul", RIGHT, [(200, 33), (10, 33)]),
    ("matmul", PLAIN, [(3, 4, 40, 31), (4, 31, 50)]),
    ("conv", CONV, [(3, 5, 28, 28), (14, 5, 5, 5)]),
    ("conv", {**CONV, "stride": (2, 2)}, [(2, 3, 33, 40), (25, 3, 5, 5)]),
    ("conv_wgrad", {**CONV, "size": (5, 5)}, [(3, 7, 40, 40), (3, 70, 40, 40)]),
    ("conv_dgrad", {**CONV, "stride": (2, 2), "size": (33, 40)}, [(2, 25, 17, 20), (25, 3, 5, 5)]),
    # few long rows, which are cut in parts
    ("sum", {"over": (0,), "keep": False}, [(300_007,)]),
    ("mean", {"over": (0, 2), "keep": False}, [(40, 3, 5003)]),
    ("sum_to", {"shape": (5, 1)}, [(150_001, 5, 2)]),
    ("sum_to", {"shape": (700,)}, [(3001, 700)]),
    ("max", {"over": (0,), "keep": False}, [(2003, 100)]),
    ("min", {"over": (0, 1), "keep": False}, [(700, 301)]),
    ("argmax", {"axis": 1}, [(3, 70_001)]),
    ("argmin", {"axis": 0}, [(70_001, 2)]),
    ("softmax", {"axis": 0}, [(300_007,)]),
    ("logsumexp", {"over": (0,), "keep": True}, [(100_003, 2)]),
    ("norm", {"over": (0,), "keep": False, "p": 3.0}, [(200_000,)]),
    ("layernorm", {"axis": 1, "eps": 1e-5}, [(2, 100_001), (100_001,), (100_001,)]),
    ("layernorm_grad", {"axis": 1}, [(900, 300), (300,), (900,), (900,), (900, 300)]),
    ("batchnorm", {"eps": 1e-5, "momentum": 0.1}, [(50, 3, 40, 31), *[(3,)] * 4]),
    ("groupnorm", {"groups": 1, "eps": 1e-5}, [(2, 6, 100, 131), (6,), (6,)]),
    ("groupnorm_grad", {}, [(2, 6, 100, 131), (6,), (2, 3), (2, 3), (2, 6, 100, 131)]),
    # running sums, windows, gathered places
    ("cumsum", {"axis": 1, "reverse": True}, [(3, 5003)]),
    ("cumsum", {"axis": 0, "reverse": False}, [(503, 70)]),
    ("slice", {"starts": (30, 776), "stops": (-1, 3), "steps": (-2, -1)}, [(31, 777)]),
    ("topk", {"axis": 1, "k": 100, "largest": True}, [(20, 3001)]),
    ("adaptive_avgpool", {"size": (7, 5)}, [(3, 5, 33, 41)]),
    ("adaptive_avgpool_grad", {"size": (33, 41)}, [(3, 5, 7, 5)]),
    ("interpolate", {"size": (61, 50), "mode": "linear"}, [(2, 3, 33, 41)]),
    ("interpolate_grad", {"size": (33, 41), "mode": "linear"}, [(2, 3, 61, 50)]),
    ("interpolate", {"size": (17, 100), "mode": "nearest"}, [(2, 3, 33, 41)]),
    ("interpolate_grad", {"size": (33, 41), "mode": "nearest"}, [(2, 3, 17, 100)]),
    ("avgpool_grad", {**POOL, "size": (28, 30)}, [(5, 7, 14, 15)]),
    ("avgpool_grad", {"k": (3, 3), "stride": (1, 3), "pad": (0, 0), "size": (9, 30)}, [(5, 7, 7, 10)]),
    ("avgpool_grad", {"k": (3, 3), "stride": (2, 2), "pad": (1, 1), "size": (28, 30)}, [(5, 7, 14, 15)]),
    ("maxpool", POOL, [(5, 70, 28, 28)]),
    ("slice", {"starts": (0, 1), "stops": (41, 700), "steps": (2, 3)}, [(41, 700)]),
    ("avgpool", POOL, [(5, 70, 27, 29)]),
]


@pytest.mark.parametrize(
    ("name", "attrs", "shapes", "dtype"), thinned(((*c, d) for c in CASES for d in (np.float32, np.float64)), 5)
)
def test_large_shapes_and_any_cut(
    name: str, attrs: dict[str, Any], shapes: list[tuple[int, ...]], dtype: type[np.floating[Any]], fuzz_seed: int
) -> None:
    rng = np.random.default_rng(fuzz_seed)
    xs = [
        np.abs(rng.standard_normal(s)).astype(dtype) if len(s) == 1 else rng.standard_normal(s).astype(dtype)
        for s in shapes
    ]
    native = Native(Builder(name="here").node(OPS[name], *values_of(xs), **attrs))
    exact = apply(OPS[name], [x.astype(np.float64) for x in xs], attrs)
    whole = native.run(xs)
    rtol, atol = (1e-4, 2e-4) if dtype is np.float32 else (1e-11, 1e-11)
    for got, want in zip(whole, exact, strict=True):
        # rounding errors of a sum that is close to zero; n products of normal numbers have a sum of about sqrt(n)
        terms = 4 * np.square(want).mean() if name in CONTRACTIONS else max(x.size for x in xs) / want.size
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol + terms * np.finfo(dtype).eps / 4)
    for splits in (2, 7):
        for one, other in zip(whole, native.run(xs, splits), strict=True):
            assert one.tobytes() == other.tobytes(), f"{splits} cuts change bits"


@pytest.mark.parametrize(
    ("name", "shape"), [("nll", (70,)), ("nll", (7, 50)), ("nll_grad", (70,)), ("nll_grad", (7, 50))]
)
def test_the_classes_of_rows(name: str, shape: tuple[int, ...], fuzz_seed: int) -> None:
    """Wrong and ignored targets, along the last axis and along another."""
    rng, classes = np.random.default_rng(fuzz_seed), 300
    target = rng.integers(-1, classes + 1, shape).astype(np.int32)
    target.reshape(-1)[:3] = (-100, classes, 2**31 - 1)
    values = rng.standard_normal(shape if name == "nll_grad" else (shape[0], classes, *shape[1:])).astype(np.float32)
    xs = [target, values] if name == "nll_grad" else [values, target]
    attrs = {"axis": 1, "ignore_index": -100, **({"classes": classes} if name == "nll_grad" else {})}
    native = Native(Builder(name="here").node(OPS[name], *values_of(xs), **attrs))
    for got, want in zip(native.run(xs, 3), apply(OPS[name], xs, attrs), strict=True):
        np.testing.assert_array_equal(got, want)
        assert np.isnan(want).any() and (want == 0).any()


def test_rows_that_are_only_written_are_written_along() -> None:
    node = Builder(name="here").node(OPS["one_hot"], *values_of([np.zeros(64, np.int32)]), count=256, dtype=DType.F32)
    [launch] = Native(node).launches
    assert not cut(launch.spec.region).columns
