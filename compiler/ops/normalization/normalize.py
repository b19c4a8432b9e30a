"""normalize: scales pixels to mean 0 and standard deviation 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dslc.compiler.ir.function import Axis, Call, Floats, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.constants.literal import of_numbers
from dslc.compiler.ops.elementwise.arithmetic import div, sub
from dslc.compiler.ops.elementwise.convert import cast


class Normalize(Function):
    """normalize(x, mean, std, axis=-1): ``(x/255 - mean) / std`` for u8, ``(x - mean) / std`` for floats.

    ``mean`` and ``std`` are one number, or a list with one per position along the axis.

    given: image: u8[B, 224, 224, 3]
    >>> x = normalize(image, mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    """

    name = "normalize"
    elsewhere = (
        "vectors of length 1 are `x / maximum(norm(x, over=1, keep=true), 1e-12)`; this function divides by `std=`"
    )

    def build(self, call: Call, x: Value, *, mean: Floats, std: Floats, axis: Axis = -1) -> Value:
        axis = from_zero(self.name, x.type, axis)
        for name, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, x.type.shape[axis]):
                raise Mismatch(
                    f"`{name}` has {len(values)} numbers; axis {axis} of {x.type} has size {x.type.shape[axis]}",
                    "one number for each position along `axis`",
                    "E0302",
                )
            if not all(math.isfinite(v) for v in values):
                raise Mismatch(f"`{name}` of `normalize` is not finite", "finite numbers", "E0209")
        if min(std) <= 0:
            raise Mismatch(f"`std` of `normalize` is {min(std):g}", "numbers above 0", "E0209")
        if x.type.dtype is DType.U8:
            x = call.emit(div, call.emit(cast, x, dtype=DType.FLOAT), call.full(255.0))
        elif not x.type.dtype.is_float:
            raise Mismatch(
                f"`normalize` takes u8 or float tensors, not {x.type.dtype}", 'convert it: `cast(x, "float")`', "E0204"
            )
        rank = x.type.rank
        centred = call.emit(sub, x, _along(call, mean, axis, rank))
        return call.emit(div, centred, _along(call, std, axis, rank))


def _along(call: Call, values: Sequence[float], axis: int, rank: int) -> Value:
    """A constant that lies along ``axis`` (from 0) of tensors of this rank; a single value is a scalar."""
    shape = () if len(values) == 1 else (len(values), *(1,) * (rank - 1 - axis))
    return of_numbers(call, values, shape)


function(Normalize())
