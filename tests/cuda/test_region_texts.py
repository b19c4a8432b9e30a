"""The printed kernels against the numpy meanings of the ops, run by a simulator of the few functions that they call.

A run takes a sixth of the samples of tests/ops, chosen by DSLC_SEED; all with DSLC_SOAK=1.
"""

from __future__ import annotations

import importlib
import os
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulator
from evaluation import apply, type_of, values_of
from samples import Sample

from dslc.base.errors import DslcError
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.regions import source_of
from dslc.compiler.codegen.cuda.units import geometry
from dslc.compiler.codegen.region import Region
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops import registry

OPS = registry.ops()
SAMPLES: dict[str, list[Sample]] = {}
for _path in sorted((Path(__file__).parent.parent / "ops").glob("samples_*.py")):
    SAMPLES.update(importlib.import_module(_path.stem).SAMPLES)
TOLERANCE = {"f32": (2e-5, 2e-6), "f64": (1e-12, 1e-13), "bf16": (2**-7, 1e-6), "f16": (2**-10, 1e-6)}
NUMPY = {"f32": np.float32, "f64": np.float64, "bf16": np.float32, "f16": np.float32}


def cases() -> list[Any]:
    share = 1 if os.environ.get("DSLC_SOAK") == "1" else 6
    first = int(os.environ["DSLC_SEED"]) % share
    listed = []
    for name in sorted(SAMPLES):
        if name in OPS and not OPS[name].view:
            pairs = [(n, dtype) for n in range(len(SAMPLES[name])) for dtype in TOLERANCE]
            listed += [pytest.param(name, n, d, id=f"{name}-{n}-{d}") for n, d in pairs[first::share]]
    return listed


def node_of(name: str, number: int, dtype: str) -> tuple[Node, list[np.ndarray]]:
    """The node, and its inputs: for bf16 and f16 as f32 of values that these hold.

    An op that keeps statistics in f32 takes them so: as few of the inputs as it wants are f32.
    """
    sample, wanted = SAMPLES[name][number], DType(dtype)
    arrays = sample.arrays(name)
    attrs = {k: wanted if v is DType.FLOAT else v for k, v in sample.attrs.items()}
    floats = [i for i, x in enumerate(arrays) if x.dtype == np.float64]
    half = dtype in ("bf16", "f16")
    for wide in (c for k in range(len(floats) + 1 if half else 1) for c in combinations(floats, k)):
        dtypes = {i: DType.F32 if i in wide else wanted for i in floats}
        xs = [np.asarray(x, NUMPY[dtype]) if i in dtypes else x for i, x in enumerate(arrays)]
        xs = [simulator.held(x, dtypes[i]) if i in dtypes else x for i, x in enumerate(xs)]
        types = [TensorType(dtypes[i], x.shape) if i in dtypes else type_of(x) for i, x in enumerate(xs)]
        values = [Input(f"x{i}", Kind.DATA, t).value for i, t in enumerate(types)]
        try:
            return Builder(name="here").node(OPS[name], *values, **attrs), xs
        except (AssertionError, Mismatch):
            if not half:
                raise
    raise AssertionError(f"{name} takes no {dtype}")


def simulated(node: Node, xs: list[np.ndarray]) -> list[np.ndarray] | None:
    """The node's outputs; None where a launch is no region."""
    launches = lower(node)
    if launches is None or not all(isinstance(x.spec, Region) for x in launches):
        return None
    known: dict[Any, np.ndarray] = {
        v: simulator.memory(np.array(x).reshape(-1), v.type.dtype) for v, x in zip(node.inputs, xs)
    }
    for v in node.outputs:
        dtype = simulator.numpy_type(v.type.dtype)
        known[v] = np.full(int(np.prod(v.type.ints)) * dtype.itemsize, 0xFF, np.uint8).view(dtype)
    for block in (b for launch in launches for b in launch.scratch):
        known.setdefault(block, np.full(block.bytes, 0xFF, np.uint8))
    for launch in launches:
        accesses = (*launch.spec.inputs, *launch.spec.outputs)
        memory = [known[v] for v in (*launch.reads, *launch.writes)]
        memory = [m.view(simulator.numpy_type(a.dtype)) for m, a in zip(memory, accesses, strict=True)]
        simulator.run(source_of(launch.symbol, launch.spec), geometry(launch.spec).grid[0], memory)
    return [simulator.values(known[v], v.type.dtype).reshape(v.type.ints) for v in node.outputs]


def drawn(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in shapes]


LONG: list[tuple[str, list[tuple[int, ...]], dict[str, Any], int]] = [
    # name, shapes, attributes, launches
    ("sum", [(150_000,)], {"over": (0,), "keep": False}, 2),
    ("sum", [(150_001,)], {"over": (0,), "keep": False}, 3),  # in parts, and a smaller part
    ("max", [(150_000,)], {"over": (0,), "keep": False}, 2),
    ("sum", [(1500, 100)], {"over": (0,), "keep": False}, 2),
    ("sum", [(1511, 100)], {"over": (0,), "keep": False}, 3),
    ("mean", [(3, 300, 200)], {"over": (1,), "keep": False}, 2),
    ("batchnorm", [(16, 6, 40, 40), (6,), (6,), (6,), (6,)], {"eps": 1e-5, "momentum": 0.1}, 5),
    ("batchnorm_grad", [(16, 6, 40, 40), (6,), (6,), (6,), (16, 6, 40, 40)], {}, 3),
    ("layernorm_grad", [(1500, 96), (96,), (1500,), (1500,), (1500, 96)], {"axis": 1}, 3),
    ("layernorm", [(2, 150_000), (150_000,), (150_000,)], {"axis": 1, "eps": 1e-5}, 5),
    ("softmax", [(3, 60_000)], {"axis": 1}, 5),
]


@pytest.mark.parametrize(("name", "shapes", "attrs", "count"), LONG, ids=[f"{n}-{s[0]}" for n, s, _, _ in LONG])
def test_few_long_rows_are_shared_out(
    name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], count: int
) -> None:
    xs = drawn(np.random.default_rng(len(shapes)), *shapes)
    node = Builder(name="here").node(OPS[name], *values_of(xs), **attrs)
    launches = lower(node)
    assert launches is not None and len(launches) == count
    got = simulated(node, xs)
    assert got is not None
    wide = apply(node.op, [x.astype(np.float64) for x in xs], node.attrs)
    for g, w in zip(got, wide, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4 * max(1.0, float(np.max(np.abs(w)))))


@pytest.mark.parametrize(("name", "number", "dtype"), cases())
def test_a_text_gives_what_the_meaning_gives(name: str, number: int, dtype: str) -> None:
    """bf16 and f16 against the meaning in f32 of the same inputs, rounded: a unit apart at most."""
    node, xs = node_of(name, number, dtype)
    got = simulated(node, xs)
    if got is None:
        return  # another kind of kernel, or none
    half = dtype in ("bf16", "f16")
    attrs = {k: DType.F32 if half and v is DType(dtype) else v for k, v in node.attrs.items()}
    try:
        wanted = apply(node.op, xs, attrs)
    except DslcError:
        return  # data that the entrance refuses
    rtol, atol = TOLERANCE[dtype]
    for g, w, v in zip(got, wanted, node.outputs, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, simulator.held(w, v.type.dtype), rtol=rtol, atol=atol, equal_nan=True)
