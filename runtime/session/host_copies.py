"""Copies of large arrays on the host, by several threads.

A thread copies slower than the bus of a GPU, and slower still into fresh memory, whose pages the operating system
clears first.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.runtime.session import fork

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Bytes of a part: smaller ones are copied before another thread has begun.
_PART: Final = 1 << 20
_MOST: Final = 8  # threads: more do not copy faster than memory

#: By ``fork.generation()``: a child has none of its parent's threads.
_pools: dict[int, ThreadPoolExecutor] = {}


def copy_into(target: NDArray[Any], source: NDArray[Any]) -> None:
    """``np.copyto(target, source, casting="no")``. TypeError for another dtype, ValueError for another shape."""
    parts = _parts(target, source) if target.nbytes >= 2 * _PART else ()
    if len(parts) < 2:
        np.copyto(target, source, casting="no")
        return
    pool = _pools.get(fork.generation())
    if pool is None:
        pool = _pools.setdefault(fork.generation(), ThreadPoolExecutor(_MOST - 1, "dslc-copies"))
    others = [pool.submit(np.copyto, *part, casting="no") for part in parts[1:]]
    try:
        np.copyto(*parts[0], casting="no")
    finally:
        wait(others)  # also after an interrupt: the caller may reuse the arrays
    for each in others:
        each.result()


def copied(array: NDArray[Any]) -> NDArray[Any]:
    """A copy in row-major order."""
    out = np.empty(array.shape, array.dtype)
    copy_into(out, array)
    return out


def _parts(target: NDArray[Any], source: NDArray[Any]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Both arrays in as many parts as threads copy; one if they are small, or no dense arrays of one shape."""
    count = min(target.nbytes // _PART, _MOST, len(os.sched_getaffinity(0)))
    if count < 2 or target.shape != source.shape or not (target.flags.c_contiguous and source.flags.c_contiguous):
        return [(target, source)]
    flat = target.reshape(-1), source.reshape(-1)
    ends = [target.size * n // count for n in range(count + 1)]
    return [(flat[0][a:b], flat[1][a:b]) for a, b in pairwise(ends)]
