"""The numbers of a case's inputs, equal on both sides. Needs numpy alone."""

from __future__ import annotations

import zlib
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from op_sweep.case import Run, Tensor

_PERIOD: Final = (1 << 20) - 3  # numbers that are drawn; larger tensors repeat them
_NUMPY: Final = {"f64": np.float64, "f32": np.float32, "bf16": np.float32, "f16": np.float16}


def period(name: str, tensor: Tensor) -> NDArray[Any]:
    """The numbers that fill one input, repeated if it is larger: a vector, f32 for floats. The name is the seed."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    few = min(prod(tensor.shape), _PERIOD)
    if tensor.dtype != "float":
        return _integers(rng, tensor, few)
    match tensor.kind:
        case "normal":
            return rng.standard_normal(few, np.float32)
        case "between":  # for functions with a corner, where gradients differ by definition
            whole = rng.standard_normal(few, np.float32).round()
            return (whole + rng.uniform(0.1, 0.9, few)).astype(np.float32)
        case "whole":
            return rng.standard_normal(few, np.float32).round()
        case "sign":
            return (2 * rng.integers(0, 2, few) - 1).astype(np.float32)
        case "boxes":
            corner = rng.uniform(0, 0.7 * tensor.high, (*tensor.shape[:-1], 2))
            x = np.concatenate([corner, corner + rng.uniform(0.05, 0.3, corner.shape) * tensor.high], -1)
            return x.reshape(-1).astype(np.float32)
    low, high = {"positive": (0.1, 2), "unit": (-0.9, 0.9), "chance": (0.05, 0.95), "above": (1.1, 3)}[tensor.kind]
    return rng.uniform(low, high, few).astype(np.float32)


def _integers(rng: np.random.Generator, tensor: Tensor, few: int) -> NDArray[Any]:
    dtype = {"b1": np.bool_, "i32": np.int32, "i64": np.int64, "u8": np.uint8}[tensor.dtype]
    if tensor.kind == "apart":
        lines = min(64, prod(tensor.shape[:-1]))
        found = [rng.permutation(tensor.high)[: tensor.shape[-1]] for _ in range(lines)]
        return np.concatenate(found).astype(dtype)
    return rng.integers(0, tensor.high, few).astype(dtype)


def drawn(name: str, tensor: Tensor) -> NDArray[Any]:
    """One input."""
    return np.resize(period(name, tensor), tensor.shape)


def periods(run: Run, shapes: list[tuple[int, ...]]) -> list[tuple[str, tuple[int, ...], NDArray[Any]]]:
    """The inputs of a run: name, shape and the numbers that repeat. After them the gradients of its float results,
    whose ``shapes`` are given: ``seed0`` and so on."""
    case = run.case
    found = [(name, x.shape, period(f"{case.function} {name}", x)) for name, x in case.inputs.items()]
    for number, shape in enumerate(shapes):
        name = f"seed{number}"
        found.append((name, shape, period(f"{case.function} {name}", _normal(shape))))
    return found


def _normal(shape: tuple[int, ...]) -> Tensor:
    from op_sweep.case import Tensor

    return Tensor(shape)


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
