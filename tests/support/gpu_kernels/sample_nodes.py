"""Nodes of the samples of op_samples in every float dtype, and what their ops' meanings give."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from gpu_kernels import simulator
from op_laws.evaluation import apply, type_of
from op_samples.every import SAMPLES

from dslc.base.errors import DslcError
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops import registry
from dslc.compiler.ops.compound.fused import expanded, packed_inputs
from dslc.compiler.ops.compound.fused_sums import finish_of, parted

OPS = registry.ops()
TOLERANCE = {"f32": (2e-5, 2e-6), "f64": (1e-12, 1e-13), "bf16": (2**-7, 1e-6), "f16": (2**-10, 1e-6)}
#: Ops of several steps that round in between: probabilities, slopes and products of weighted rows are of 16 bits, too.
STEPS = ("sdpa", "sdpa_grad", "strided_sdpa", "strided_sdpa_grad", "few_queries_sdpa", "contraction", "ordered_rows")


def tolerance(name: str, dtype: str) -> tuple[float, float]:
    """(relative, absolute) for results of an op."""
    if name == "few_queries_sdpa" and dtype == "f64":  # its sums are f32; the pass leaves f64 to others
        dtype = "f32"
    rtol, atol = TOLERANCE[dtype]
    return (4 * rtol, 2 * rtol) if name in STEPS and dtype in ("bf16", "f16") else (rtol, atol)


NUMPY = {"f32": np.float32, "f64": np.float64, "bf16": np.float32, "f16": np.float32}


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


def wanted(node: Node, xs: list[np.ndarray], dtype: str) -> list[np.ndarray] | None:
    """The outputs by the op's meaning, for bf16 and f16 in f32 and rounded; None for data that the entrance refuses."""
    half = dtype in ("bf16", "f16")
    if half and node.op.name in ("fused_sums", "finished_sums"):
        return by_steps(node, xs)
    if half and node.op.name == "fused_rows":
        return _rounded(xs, expanded(node.inputs, node.attrs), node.attrs["body"])[-1:]
    attrs: dict[str, Any] = {k: DType.F32 if half and v is DType(dtype) else v for k, v in node.attrs.items()}
    try:
        found = apply(node.op, xs, attrs)
    except DslcError:
        return None
    return [simulator.held(x, v.type.dtype) for x, v in zip(found, node.outputs, strict=True)]


def by_steps(node: Node, xs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of sums, every step and every sum rounded to its dtype."""
    attrs: Any = node.attrs
    wide, late = parted(xs, attrs)
    steps = expanded(parted(node.inputs, attrs)[0], attrs)
    known = _rounded(wide, steps, attrs["body"])
    packed = packed_inputs(attrs)
    shape = np.broadcast_shapes(*(x.shape for i, x in enumerate(wide) if i not in packed))
    dtypes = [v.type.dtype for v in (*node.inputs[: len(wide)], *(step.out for step in steps))]
    sums = [
        simulator.held(np.sum(np.broadcast_to(known[i], shape), axis=attrs["over"], dtype=np.float64), dtypes[i])
        for i in attrs["summed"]
    ]
    if "finish" in attrs:
        finished = _rounded([*sums, *late], finish_of(node), attrs["finish"])
        sums = [finished[i] for i in attrs["results"]]
    return [*sums, *(known[i] for i in attrs.get("kept", ()))]


def _rounded(given: Sequence[np.ndarray], steps: list[Node], body: Any) -> list[np.ndarray]:
    """What is given, then the results of steps, whose inputs ``body`` numbers."""
    known = [*given]
    for step, (_, read, _) in zip(steps, body, strict=True):
        [found] = apply(step.op, [known[i] for i in read], step.attrs)
        known.append(simulator.held(found, step.types[0].dtype))
    return known
