"""The printed kernels against the numpy meanings of the ops, run by a simulator of the few functions that they call.

A run takes a sixth of the samples of tests/ops, chosen by DSLC_SEED; all with DSLC_SOAK=1.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulator
from evaluation import apply, values_of
from samples import Sample

from dslc.base.errors import DslcError
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.regions import source_of
from dslc.compiler.codegen.cuda.units import geometry
from dslc.compiler.codegen.region import Region
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry

OPS = registry.ops()
SAMPLES: dict[str, list[Sample]] = {}
for _path in sorted((Path(__file__).parent.parent / "ops").glob("samples_*.py")):
    SAMPLES.update(importlib.import_module(_path.stem).SAMPLES)
TOLERANCE = {"f32": (2e-5, 2e-6), "f64": (1e-12, 1e-13)}
NUMPY = {"f32": np.float32, "f64": np.float64}


def cases() -> list[Any]:
    share = 1 if os.environ.get("DSLC_SOAK") == "1" else 6
    first = int(os.environ["DSLC_SEED"]) % share
    listed = []
    for name in sorted(SAMPLES):
        if name in OPS and not OPS[name].view:
            pairs = [(n, dtype) for n in range(len(SAMPLES[name])) for dtype in ("f32", "f64")]
            listed += [pytest.param(name, n, d, id=f"{name}-{n}-{d}") for n, d in pairs[first::share]]
    return listed


def node_of(name: str, number: int, dtype: str) -> tuple[Node, list[np.ndarray]]:
    sample = SAMPLES[name][number]
    xs = [np.asarray(x, NUMPY[dtype]) if x.dtype == np.float64 else x for x in sample.arrays(name)]
    attrs = {k: DType(dtype) if v is DType.FLOAT else v for k, v in sample.attrs.items()}
    return Builder(name="here").node(OPS[name], *values_of(xs), **attrs), xs


def simulated(node: Node, xs: list[np.ndarray]) -> list[np.ndarray] | None:
    """The node's outputs; None where a launch is no region."""
    launches = lower(node)
    if launches is None or not all(isinstance(x.spec, Region) for x in launches):
        return None
    known: dict[Any, np.ndarray] = {v: np.array(x).reshape(-1) for v, x in zip(node.inputs, xs)}
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
    return [known[v].reshape(v.type.ints) for v in node.outputs]


@pytest.mark.parametrize(("name", "number", "dtype"), cases())
def test_a_text_gives_what_the_meaning_gives(name: str, number: int, dtype: str) -> None:
    node, xs = node_of(name, number, dtype)
    got = simulated(node, xs)
    if got is None:
        return  # another kind of kernel, or none
    try:
        wanted = apply(node.op, xs, node.attrs)
    except DslcError:
        return  # data that the entrance refuses
    rtol, atol = TOLERANCE[dtype]
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol, equal_nan=True)
