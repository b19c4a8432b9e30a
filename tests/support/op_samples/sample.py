"""What a sample of an op is. Each family gives ``SAMPLES: dict[op name, list[Sample]]`` in a module of its own."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Spec:
    """A random tensor, uniform in low..high. ``dtype`` is ``float`` (tested as f64 and as f32) or a numpy name.

    ``gap``: keep away from 0 by at least this, for ops with a kink or a pole there; ``distinct``: values spread evenly
    over low..high, in random order, so that no two are near each other (for max and the like). Integers run from low
    to high, both included.
    """

    shape: tuple[int, ...]
    dtype: str = "float"
    low: float = -2.0
    high: float = 2.0
    gap: float = 0.0
    distinct: bool = False

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """The tensor, in f64 for ``float``."""
        if self.dtype == "bool":
            return np.asarray(rng.random(self.shape) < 0.5)
        if self.dtype != "float":
            return np.asarray(rng.integers(int(self.low), int(self.high), self.shape, endpoint=True), self.dtype)
        count = int(np.prod(self.shape))
        if self.distinct:
            values = rng.permutation(np.linspace(self.low, self.high, count)) if count else np.zeros(0)
        else:
            values = rng.uniform(self.low, self.high, count)
        values = np.where(np.abs(values) < self.gap, np.where(values < 0, -self.gap, self.gap) + values, values)
        return values.reshape(self.shape)


@dataclass(frozen=True)
class Sample:
    """Inputs and attributes for one application of an op, with what may be expected of it.

    ``inputs``: arrays (f64 arrays stand for ``float``) or Specs. ``attrs``: as for ``infer``: a dtype is a DType, and
    DType.FLOAT stands for the float dtype under test. ``differentiable``: indices of inputs whose gradient is compared
    with central differences; None: all float inputs. ``outputs``: indices of the outputs whose gradient is taken; None:
    all float ones. ``reference(*inputs, **attrs)``: an independent formula on the f64 inputs, attributes as ``meaning``
    sees them; it gives one array or a tuple (None in it: not compared), compared in f64 with rtol 1e-10, atol 1e-12.
    ``rtol``, ``atol``: how near f32 must be to f64; ``near`` false: not compared.
    """

    inputs: Sequence[np.ndarray | Spec]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    differentiable: tuple[int, ...] | None = None
    reference: Callable[..., Any] | None = None
    outputs: tuple[int, ...] | None = None
    rtol: float = 1e-4
    atol: float = 1e-5
    near: bool = True

    def arrays(self, op: str) -> list[np.ndarray]:
        """The inputs, floats in f64; the same ones every time."""
        rng = np.random.default_rng(zlib.crc32(f"{op} {self.inputs} {self.attrs}".encode()))
        return [x.draw(rng) if isinstance(x, Spec) else np.array(x) for x in self.inputs]
