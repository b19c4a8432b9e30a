"""The numbers of a case's inputs, equal on both sides. Needs numpy alone."""

from __future__ import annotations

import zlib
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from op_sweep.case import Case, Run, Tensor

_PERIOD: Final = (1 << 20) - 3  # numbers that are drawn; larger tensors repeat them
_NUMPY: Final = {"f64": np.float64, "f32": np.float32, "bf16": np.float32, "f16": np.float16}


def drawn(name: str, tensor: Tensor) -> NDArray[Any]:
    """The numbers of one input: f32 for floats. The name of the run is the seed."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    count = prod(tensor.shape)
    few = min(count, _PERIOD)
    if tensor.dtype != "float":
        return _integers(rng, tensor)
    match tensor.kind:
        case "normal":
            x = rng.standard_normal(few, np.float32)
        case "sign":
            x = (2 * rng.integers(0, 2, few) - 1).astype(np.float32)
        case "boxes":
            corner = rng.uniform(0, 0.7 * tensor.high, (*tensor.shape[:-1], 2))
            x = np.concatenate([corner, corner + rng.uniform(0.05, 0.3, corner.shape) * tensor.high], -1)
        case kind:
            low, high = {"positive": (0.1, 2), "unit": (-0.9, 0.9), "chance": (0.05, 0.95), "above": (1.1, 3)}[kind]
            x = rng.uniform(low, high, few).astype(np.float32)
    return np.resize(x.astype(np.float32), tensor.shape)


def _integers(rng: np.random.Generator, tensor: Tensor) -> NDArray[Any]:
    dtype = {"b1": np.bool_, "i32": np.int32, "i64": np.int64, "u8": np.uint8}[tensor.dtype]
    if tensor.kind == "apart":
        size = tensor.shape[-1]
        lines = min(64, prod(tensor.shape[:-1]))
        found = np.stack([rng.permutation(tensor.high)[:size] for _ in range(lines)])
        return np.resize(found, tensor.shape).astype(dtype)
    x = rng.integers(0, tensor.high, min(prod(tensor.shape), _PERIOD))
    return np.resize(x, tensor.shape).astype(dtype)


def inputs(case: Case) -> dict[str, NDArray[Any]]:
    """All inputs of a case."""
    return {name: drawn(f"{case.function} {name}", x) for name, x in case.inputs.items()}


def seed(run: Run, number: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """The gradient of a float result."""
    from op_sweep.case import Tensor

    return drawn(f"{run.case.function} seed {number}", Tensor(tuple(shape)))


def stored(x: NDArray[Any], dtype: str) -> NDArray[Any]:
    """An f32 tensor in a dtype as kernels read it; bf16 as raw bits, rounded to the nearest value, ties to even."""
    if dtype == "bf16":
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return x.astype(_NUMPY[dtype])


def shown(x: NDArray[Any], dtype: str) -> NDArray[Any]:
    """A result as numbers: f64 for floats, i64 for the others."""
    if dtype == "bf16":
        return (x.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
