"""The product of two matrices that the threads of a warp hold in parts (``mma.sync``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gpu_kernels import simulator


def product(words: Sequence[str], given: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
    """The 16 x 8 products in f64, without what is added to them. ``given``: of each thread of the warp the registers
    of a and those of b, of m16n8k16 or, in TF32, of m16n8k8: rows of a and columns of b lie with four threads each."""
    of_a, of_b = (np.array([each[i] for each in given], np.uint64).astype(np.uint32) for i in (0, 1))
    if words[-2] == "tf32":
        assert words[3:6] == ("m16n8k8", "row", "col")
        assert not any((part & 0x1FFF).any() for part in (of_a, of_b)), "a factor is not rounded to TF32"
        a, b = (part.view(np.float32)[..., None] for part in (of_a, of_b))
    else:
        assert words[3:6] == ("m16n8k16", "row", "col")
        halves = [part.view(np.uint16).reshape(*part.shape, 2) for part in (of_a, of_b)]
        a, b = (simulator.bf16_values(x) if words[-2] == "bf16" else x.view(np.float16) for x in halves)
    upper, lower = _lines(a[:, [0, 2]]), _lines(a[:, [1, 3]])
    return np.concatenate([upper, lower]) @ _lines(b).T


def _lines(registers: np.ndarray) -> np.ndarray:
    """8 lines, of which four threads hold each; the second register continues the first. [32, 2, n] -> [8, 8 n]."""
    return registers.reshape(8, 4, 2, -1).swapaxes(1, 2).reshape(8, -1).astype(np.float64)
