"""A package whose op has several inputs, of two dtypes, several results, and an attribute."""

from typing import Final

PAIRS: Final = '''from __future__ import annotations

import numpy as np

from dslc.own_ops import Composed, Cuda, Function, Value, register

SOURCE = """
__device__ void kernel(const X0 *x, const X1 *at, Y0 *scaled, Y1 *chosen) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < COUNT) store(scaled + i, wide(x[i]) * K);
  if (i < ROWS) store(chosen + i, wide(x[i * SIZE + at[i]]));
}
"""


class BothOp(Composed):
    """pairs.both(x, at): k times x, and an element of each row."""

    name = "pairs.both"

    def compose(self, f, x, at, k):
        one = f.reshape(f.gather(x, f.reshape(at, [at.type.shape[0], 1]), axis=1), [at.type.shape[0]])
        return f.mul(x, float(k)), one

    def meaning(self, xs, attrs):
        x, at = xs
        return [x * x.dtype.type(attrs["k"]), np.take_along_axis(x, at[:, None], 1)[:, 0]]

    def cuda(self, types, results, attrs):
        rows, size = types[0].ints
        constants = {"COUNT": rows * size, "ROWS": rows, "SIZE": size, "K": attrs["k"]}
        return Cuda(SOURCE, blocks=-(-rows * size // 128), threads=128, constants=constants)

    def index_range(self, node, index):
        return (0, node.inputs[0].type.shape[1]) if index == 1 else None


class Both(Function):
    """both(x, at, k=2): k times x, and the element of each row that ``at`` names.

    given: x: [B, 8], at: i32[B]
    >>> scaled, chosen = both(x, at, k=3)
    >>> scaled * 2
    """

    name = "both"

    def build(self, call, x: Value, at: Value, k: int = 2):
        return call.emit_all(op, x, at, k=k)


op = register(BothOp())
functions = [Both()]
'''
