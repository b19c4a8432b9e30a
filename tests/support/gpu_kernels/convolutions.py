"""Convolutions and their gradients as nodes, with numbers for their inputs."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

import numpy as np
from gpu_kernels.sample_nodes import OPS
from op_laws.evaluation import values_of

from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType

KINDS: Final = ("conv", "conv_dgrad", "conv_wgrad")
DTYPES: Final = (DType.F32, DType.BF16, DType.F16, DType.F64)
#: The largest rounding of a result by the largest one.
ROUNDING: Final = {DType.F64: 1e-13, DType.F32: 2e-6, DType.BF16: 2.0**-8, DType.F16: 2.0**-11}


def drawn_windows(rng: Random, axes: int) -> dict[str, Any]:
    """The batch, spatial sizes, taps, strides, pads and dilations of a convolution over ``axes`` axes."""
    geometry: dict[str, list[int]] = {name: [] for name in ("space", "taps", "stride", "pad", "dilation")}
    for _ in range(axes):
        taps, dilation = rng.randint(1, 5 if axes < 3 else 2), rng.randint(1, 3)
        pad = rng.randint(0, 3)
        geometry["taps"].append(taps)
        geometry["dilation"].append(dilation)
        geometry["pad"].append(pad)
        geometry["stride"].append(rng.randint(1, 3))
        geometry["space"].append(max(1, dilation * (taps - 1) + 1 - 2 * pad) + rng.randint(0, 6 if axes < 3 else 2))
    return {"batch": rng.randint(1, 2)} | {name: tuple(each) for name, each in geometry.items()}


def convolution(
    kind: str, last: bool, dtype: DType, sizes: dict[str, Any], seed: int
) -> tuple[Node, list[np.ndarray[Any, Any]]]:
    """The node, and normal numbers for its inputs (16-bit ones rounded, as f32). ``sizes`` as ``drawn_windows`` has
    them, and the numbers of channels ``into`` and ``out``, and of ``groups`` (1)."""
    geometry = {name: sizes[name] for name in ("stride", "pad", "dilation")}
    windows = zip(sizes["space"], sizes["taps"], *geometry.values(), strict=True)
    count = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in windows)

    def laid(first: int, channels: int, space: tuple[int, ...]) -> tuple[int, ...]:
        return (first, *space, channels) if last else (first, channels, *space)

    batch, groups = sizes["batch"], sizes.get("groups", 1)
    x, y = laid(batch, sizes["into"], sizes["space"]), laid(batch, sizes["out"], count)
    w = laid(sizes["out"], sizes["into"] // groups, sizes["taps"])
    shapes = {"conv": (x, w), "conv_dgrad": (y, w), "conv_wgrad": (x, y)}[kind]
    size = {"conv": {}, "conv_dgrad": {"size": sizes["space"]}, "conv_wgrad": {"size": sizes["taps"]}}[kind]
    rng = np.random.default_rng(seed)
    xs = [rng.normal(size=shape).astype(np.float64 if dtype is DType.F64 else np.float32) for shape in shapes]
    if dtype is DType.BF16:
        xs = [(v.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for v in xs]
    if dtype is DType.F16:
        xs = [v.astype(np.float16).astype(np.float32) for v in xs]
    values = [replace(v, type=TensorType(dtype, v.type.shape)) for v in values_of(xs)]
    op = OPS[f"{kind}_last" if last else kind]
    return Builder(name="here").node(op, *values, groups=groups, **geometry, **size), xs
