"""orthogonal: weights whose rows, or columns, are orthonormal (Saxe, McClelland and Ganguli 2014, arXiv:1312.6120)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Cost, register
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.random.philox import normal
from dslc.compiler.ops.random.stochastic import Initial

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_BLOCK: Final = 32  # rows per block: orthogonalised one by one; then all later rows are projected on the block at once
LEAST: Final = 1e-2  # fraction of a row's length; a row that is shorter after projections is projected again
TINY: Final = 1e-150  # the least length whose square is above 0


class InitOrthogonal(Initial):
    """init_orthogonal(seed): ``gain`` times a random matrix with orthonormal rows, or columns if those are fewer.

    The matrix is ``[shape[0], rest]``, its columns the elements of the other axes: ``[out, in*k*k]`` of a convolution.
    It is the Q of the QR decomposition, with a positive diagonal of R, of a matrix of standard normal numbers, so the
    result is uniformly distributed (Mezzadri 2007, arXiv:math-ph/0609050), as in PyTorch. Computed in f64, rounded once
    to f32. Attribute ``gain``.
    """

    name = "init_orthogonal"

    def draw(self, count: int, numbers: Mapping[str, int], attrs: Mapping[str, Any]) -> Array:
        rows = int(attrs["shape"][0])
        drawn = normal(0, count, **numbers).astype(np.float64).reshape(rows, -1)
        wide = rows < drawn.shape[1]
        found = orthonormal(drawn if wide else drawn.T)
        return np.asarray(float(attrs["gain"]) * (found if wide else found.T)).astype(np.float32).reshape(-1)

    def cost(self, node: Node) -> Cost:
        """Each of n vectors of m elements is projected on those before it: 4 operations per element."""
        [type] = node.types
        elements = math.prod(type.ints)
        short = min(type.ints[0], elements // type.ints[0])
        return Cost(40 * elements + 2 * short * elements, type.bytes + 8)


def orthonormal(vectors: Array) -> Array:
    """The rows of an f64 matrix [n, m], n <= m, made orthonormal by modified Gram-Schmidt.

    Row i of the result has a positive product with row i of ``vectors``. Rows that lose most of their length are
    projected again (Daniel, Gragg, Kaufman and Stewart 1976), so that the rows are orthogonal to 1e-8 for any
    input. The bits depend neither on threads nor on the BLAS: sums run in numpy's order, products are exact.
    """
    found = np.array(vectors, np.float64, order="C")
    found /= np.maximum(np.sqrt(np.add.reduce(found * found, axis=1)), TINY)[:, None]
    for first in range(0, len(found), _BLOCK):
        block, later = found[first : first + _BLOCK], found[first + _BLOCK :]
        for i, row in enumerate(block):
            _finish(row, found[: first + i])
            rest = block[i + 1 :]
            rest -= np.add.reduce(rest * row, axis=1)[:, None] * row
        later -= _product(_product(later, block.T), block)
    return found


def _finish(row: Array, before: Array) -> None:
    """Normalises a row that had length 1 before it was projected on the preceding rows."""
    known = 1.0
    while not (length := math.sqrt(np.add.reduce(row * row))) > LEAST * known:
        if not length > TINY:
            row[...] = _missing(before)
            length = 1.0
        for other in before:
            row -= np.add.reduce(other * row) * other
        known = length
    row /= length


def _product(a: Array, b: Array) -> Array:
    """``a @ b`` of numbers from -1 to 1, to about 2^-38, the same bits from any BLAS.

    Each number is split into two integers with few enough bits that sums of their products are exact in f64, in any
    order (Ozaki, Ogita, Oishi and Rump 2012).
    """
    bits = (52 - a.shape[1].bit_length()) // 2
    high, low = zip(*(_split(x, 2.0**bits) for x in (a, b)))
    return np.asarray((high[0] @ high[1]) * 4.0**-bits + (high[0] @ low[1] + low[0] @ high[1]) * 8.0**-bits)


def _split(x: Array, scale: float) -> tuple[Array, Array]:
    scaled = x * scale
    high = np.rint(scaled)
    return high, np.rint((scaled - high) * scale)


def _missing(found: Array) -> Array:
    """The unit vector of the axis that the rows so far cover least; it replaces a row that vanished."""
    unit = np.zeros(found.shape[1])
    unit[int(np.add.reduce(found * found, axis=0).argmin())] = 1.0
    return unit


init_orthogonal = register(InitOrthogonal())
