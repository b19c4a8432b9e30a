"""A kernel in CUDA C++ that a package brings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_BLOCKS: Final = 2**31 - 1  # CUDA C++ Programming Guide, compute capabilities: grid in x
MAX_THREADS: Final = 1024  # of a block
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True)
class Cuda:
    """``source`` defines ``__device__ void kernel(const X0 *x0, ..., Y0 *y0, ...)``: pointers to the inputs, then to
    the outputs, all dense and row-major. The types X0, X1, ... and Y0, ... are those of the elements: float, double,
    int, ..., and for 16-bit floats ``f16`` and ``bf16``, which ``wide(x)`` reads as float and ``store(&y, v)`` writes.

    ``blocks`` blocks of ``threads`` threads run it; each element of the outputs must be written, and by one thread, in
    an order that does not depend on scheduling. ``constants``: names in capitals of ints that the source reads. The
    text is complete: it includes no file. ValueError for a launch that no GPU can do.
    """

    source: str
    blocks: int
    threads: int = 256
    constants: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.blocks <= MAX_BLOCKS or not 1 <= self.threads <= MAX_THREADS:
            raise ValueError(f"{self.blocks} blocks of {self.threads} threads: at most {MAX_BLOCKS} of {MAX_THREADS}")
        if "#include" in self.source:
            raise ValueError("the source of a kernel must not include files")
        if not re.search(r"\bkernel\s*\(", self.source):
            raise ValueError("the source must define __device__ void kernel(...)")
        for name, value in self.constants.items():
            if not _NAME.fullmatch(name) or type(value) is not int or not -(2**63) <= value < 2**63:
                raise ValueError(f"the constant {name} = {value!r} is no int with a name in capitals")
