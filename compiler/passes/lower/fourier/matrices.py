"""The constants of a transform: matrices and twiddle factors of roots of unity, in f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.products.fourier import root_table

if TYPE_CHECKING:
    from dslc.compiler.ir.graph import Value
    from dslc.compiler.ir.types import DType

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
#: Makes a tensor of a dtype that holds these numbers, each rounded once.
Store: TypeAlias = "Callable[[Array, DType], Value]"


@dataclass(frozen=True)
class Roots:
    """``scale`` times the powers of the root of unity of order ``count``; ``sign`` is that of its angle."""

    count: int
    sign: int
    scale: float = 1.0

    def table(self) -> tuple[Array, Array]:
        """The real and the imaginary parts of all powers."""
        cosines, sines = root_table(self.count).T
        return self.scale * cosines, self.sign * self.scale * sines

    def powers(self, down: int, across: int, step: int = 1) -> tuple[Array, Array]:
        """Those to ``step * i * j`` at [i, j], [down, across]. No angle is rounded."""
        place = step * np.outer(np.arange(down), np.arange(across)) % self.count
        re, im = self.table()
        return re[place], im[place]

    def blocks(self, down: int, across: int, inputs: int, parts: Sequence[int]) -> Array:
        """The matrix [inputs * down, parts * across] that multiplies rows of real parts, then of imaginary parts if
        ``inputs`` is 2; it gives the real parts for each 0 of ``parts``, the imaginary ones for each 1."""
        re, im = self.powers(down, across)
        rows = [(re, im), (-im, re)][:inputs]
        return np.block([[row[part] for part in parts] for row in rows])
