"""Measures the roof of this machine: its copy bandwidth and its arithmetic rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.runtime.cpu.native import thread_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COPIED: Final = 128 << 20  # bytes that all threads copy together: several times the size of the caches
_SIDE: Final = 768  # matrix size at which BLAS is near its best rate
_ROUNDS: Final = 4


def machine_roof() -> dict[str, float]:
    """``copy``: bytes read and written per second by a copy; ``matrix32`` and ``matrix64``: operations per second of
    numpy's matrix products. With as many threads as kernels use; takes some tenths of a second."""
    threads = thread_count()
    roof = {"copy": _copy_rate(threads)}
    for name, dtype in (("matrix32", np.float32), ("matrix64", np.float64)):
        a = np.ones((_SIDE, _SIDE), dtype)
        outs = [np.empty_like(a) for _ in range(threads)]
        roof[name] = 2 * _SIDE**3 * threads / _shortest(partial(_product, a, outs), threads)
    return roof


def _copy_rate(threads: int) -> float:
    part = max(1, _COPIED // threads)
    sources, targets = ([np.ones(part, np.uint8) for _ in range(threads)] for _ in range(2))
    return 2 * part * threads / _shortest(lambda i: np.copyto(targets[i], sources[i]), threads)


def _product(a: NDArray[Any], outs: Sequence[NDArray[Any]], i: int) -> None:
    np.matmul(a, a, out=outs[i])


def _shortest(work: Callable[[int], None], threads: int) -> float:
    """Seconds of the fastest round, with all threads running concurrently."""
    times = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_ROUNDS):
            begun = time.perf_counter()
            list(pool.map(work, range(threads)))
            times.append(time.perf_counter() - begun)
    return min(times)
