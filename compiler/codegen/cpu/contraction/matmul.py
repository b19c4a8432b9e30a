"""Lowers matrix products to contraction kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cpu.contraction.axes import Axis
from dslc.compiler.codegen.cpu.contraction.pack import Fill
from dslc.compiler.codegen.cpu.contraction.plan import Problem, Scratch, lower
from dslc.compiler.codegen.cpu.contraction.steps import Step, Steps
from dslc.compiler.ir.types import DType

_FAR_BYTES: Final = 1024  # bytes between inner indices
_FAR_DEPTH: Final = 128
_FAR_BLOCK: Final = 64
_BLOCK: Final = 512
_LONG_BYTES: Final = 384  # bytes along the sum from which on a panel of four vectors no longer fits the nearest cache


@dataclass(frozen=True, slots=True)
class Matmul:
    """``matmul`` of f32 or f64 tensors with these shapes, dense and row-major; leading axes broadcast."""

    dtype: DType
    a: tuple[int, ...]
    b: tuple[int, ...]
    transpose_a: bool
    transpose_b: bool

    def steps(self) -> Steps:
        """The kernels. Arguments: in0 and in1 with these shapes, out0 with numpy's result shape."""
        m, k = _turned(self.a[-2:], self.transpose_a)
        _, n = _turned(self.b[-2:], self.transpose_b)
        rank = max(len(self.a), len(self.b)) - 2
        left, right = (_leading(shape, rank) for shape in (self.a, self.b))
        sizes = [x if y == 1 else y for x, y in zip(left, right)]
        count = math.prod(sizes) * m * n
        if not count:
            return Steps(())
        if not k:
            return Steps((Step(Fill(self.dtype, count), ("out0",)),))
        a_strides, b_strides = _strides(left, m * k), _strides(right, k * n)
        c_strides = _strides(sizes, m * n)
        batch = tuple(Axis(*x) for x in zip(sizes, a_strides, b_strides, c_strides))
        rows = Axis(m, 1 if self.transpose_a else k, 0, n)
        columns = Axis(n, 0, k if self.transpose_b else 1, 1)
        inner = Axis(k, m if self.transpose_a else 1, 1 if self.transpose_b else n)
        outer, alone = _rows_of_batch(batch)
        scratch = Scratch()
        problem = Problem(
            self.dtype, alone, (*outer, rows), (columns,), (inner,), count,
            k_block=self._k_block(inner), widest=2 if k * self.dtype.itemsize >= _LONG_BYTES else 4,
            packed_block=_BLOCK,
        )  # fmt: skip
        return Steps(tuple(lower(problem, scratch)), tuple(scratch.bytes))

    def _k_block(self, inner: Axis) -> int:
        """The block size of the sum: small if inner indices are (nearly) a page apart, which limits the pages of a
        block and its cache lines per set."""
        far = max(inner.a, inner.b) * self.dtype.itemsize >= _FAR_BYTES and inner.size >= _FAR_DEPTH
        return _FAR_BLOCK if far else _BLOCK


def _turned(shape: Sequence[int], swap: bool) -> tuple[int, int]:
    rows, columns = shape
    return (columns, rows) if swap else (rows, columns)


def _leading(shape: Sequence[int], rank: int) -> list[int]:
    found = list(shape[:-2])
    return [1] * (rank - len(found)) + found


def _strides(sizes: Sequence[int], block: int) -> list[int]:
    """The strides of dense blocks; 0 along axes that broadcast."""
    return [0 if n == 1 else math.prod(sizes[i + 1 :]) * block for i, n in enumerate(sizes)]


def _rows_of_batch(batch: Sequence[Axis]) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Axes that do not move the right side, which become rows of the left; and the other axes."""
    return tuple(x for x in batch if not x.b), tuple(x for x in batch if x.b)
