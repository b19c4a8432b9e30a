"""dft: discrete Fourier transforms in real arithmetic, as products with matrices of cosines and sines."""

from __future__ import annotations

import math
from typing import Final

from dslc.compiler.ir.function import Axis, Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import to_fix
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.constants.literal import of_numbers
from dslc.compiler.ops.constants.ranges import arange
from dslc.compiler.ops.elementwise.arithmetic import add, mul, sub
from dslc.compiler.ops.elementwise.division import mod
from dslc.compiler.ops.index.embedding import gather_rows
from dslc.compiler.ops.products.linear import MatmulFunction
from dslc.compiler.ops.shape.views import reshape, transpose

#: The greatest size: products of two indices fit i32, and n^2 products are long before that no good idea.
_MOST: Final = 1 << 15


def unit_root(number: int, count: int) -> tuple[float, float]:
    """The cosine and the sine of ``number / count`` of a turn; those of quarter turns are exact."""
    quarter, rest = divmod(4 * number, count)
    angle = math.pi / 2 * rest / count
    c, s = math.cos(angle), math.sin(angle)
    return [(c, s), (-s, c), (-c, -s), (s, -c)][quarter % 4]


class Dft(Function):
    """dft(re, im=none, axis=-1, inverse=false, onesided=false, size=none): the discrete Fourier transform.

    Complex numbers are two tensors: there are two results, the real and the imaginary parts; without ``im``, the input
    is real. Result k is ``sum(x[n] * exp(-2*pi*i*n*k / N))``; the inverse has the other sign and divides by N.

    ``onesided`` gives the first ``N//2 + 1`` results of a real tensor, which tell the others. With ``inverse`` it takes
    these and gives one result, the real tensor of ``size`` elements, ``2 * (n - 1)`` of n by default.

    It costs N^2 products, not N*log(N), on the units for matrix products: meant for sizes up to about a thousand. N
    must be known in the file.

    given: x: [B, 64], y: [B, 33], z: [B, 33]
    >>> re, im = dft(x, onesided=true)
    >>> signal = dft(y, z, inverse=true, onesided=true)
    """

    name = "dft"

    def build(
        self, call: Call, re: Value, im: Value | None = None, axis: Axis = -1, inverse: bool = False,
        onesided: bool = False, size: int | None = None,
    ) -> Value | tuple[Value, ...]:  # fmt: skip
        at = from_zero(self.name, re.type, axis)
        given = _checked(re, im, at)
        if onesided and (im is None) == inverse:
            help = "give `im`, too" if inverse else "without `onesided`, or without `im`"
            raise Mismatch("`onesided` of `dft` is of a real tensor", help, "E0209")
        if size is not None and not (onesided and inverse):
            raise Mismatch("`size` of `dft` without `inverse` and `onesided`", "leave it out", "E0209")
        count = given
        if onesided and inverse:
            count = 2 * (given - 1) if size is None else size
            if count < 1 or count // 2 + 1 != given:
                why = f"a signal of {count} has {count // 2 + 1} onesided results, axis {at} of {re.type} {given}"
                raise Mismatch(f"`dft`: {why}", f"`size` of {2 * given - 2} or {2 * given - 1}", "E0302")
        shares = [1.0 if 2 * k in (0, count) or not (onesided and inverse) else 2.0 for k in range(given)]
        outputs = count // 2 + 1 if onesided and not inverse else count
        form = _Transform(call, re.type.dtype, at, given, outputs, count, inverse)
        x = form.before(re, shares)
        if im is None:
            return form.after(form.product(x, "cos")), form.after(form.product(x, "sin"))
        y = form.before(im, shares)
        real = call.emit(sub, form.product(x, "cos"), form.product(y, "sin"))
        if onesided:
            return form.after(real)
        return form.after(real), form.after(call.emit(add, form.product(x, "sin"), form.product(y, "cos")))


def _checked(re: Value, im: Value | None, axis: int) -> int:
    """The size of the axis; raises Mismatch."""
    if not re.type.dtype.is_float or (im is not None and im.type != re.type):
        listed = f"{re.type}" if im is None else f"{re.type} and {im.type}"
        raise Mismatch(f"`dft` of {listed}", "floats; both parts have the same type", "E0302" if im else "E0204")
    size = re.type.shape[axis]
    if not isinstance(size, int):
        raise Mismatch(f"`dft` along axis {axis} of {re.type}", to_fix(size), "E0303")
    if not 1 <= size <= _MOST:
        raise Mismatch(f"`dft` of {size} elements", f"from 1 to {_MOST}", "E0308")
    return size


class _Transform:
    """Products of an axis of ``given`` elements, moved to the end, with matrices [given, outputs] of roots of unity of
    order ``count``."""

    def __init__(
        self, call: Call, dtype: DType, axis: int, given: int, outputs: int, count: int, inverse: bool
    ) -> None:
        self.call, self.dtype, self.axis = call, dtype, axis
        self.given, self.outputs, self.count = given, outputs, count
        self.sign, self.scale = (1.0, 1.0 / count) if inverse else (-1.0, 1.0)
        self.matrices: dict[str, Value] = {}

    def before(self, x: Value, shares: list[float]) -> Value:
        """The axis at the end, its elements times their shares."""
        if self.axis != x.type.rank - 1:
            x = self.call.emit(transpose, x, perm=self._order(x.type.rank))
        if max(shares) == 1.0:
            return x
        return self.call.emit(mul, x, self._constant(tuple(shares)))

    def after(self, x: Value) -> Value:
        """The axis at its place again."""
        if self.axis != x.type.rank - 1:
            order = self._order(x.type.rank)
            return self.call.emit(transpose, x, perm=tuple(map(order.index, range(len(order)))))
        return x

    def product(self, x: Value, part: str) -> Value:
        if part not in self.matrices:
            self.matrices[part] = self._matrix(part == "sin")
        return MatmulFunction().build(self.call, x, self.matrices[part])

    def _order(self, rank: int) -> tuple[int, ...]:
        return (*(i for i in range(rank) if i != self.axis), self.axis)

    def _constant(self, values: tuple[float, ...]) -> Value:
        return of_numbers(self.call, values, (len(values),), self.dtype)

    def _matrix(self, sine: bool) -> Value:
        """Element [n, k] is number ``n * k mod count`` of a table, so that no angle is rounded."""
        call = self.call
        roots = [unit_root(i, self.count) for i in range(self.count)]
        factor = self.sign * self.scale if sine else self.scale
        table = self._constant(tuple(root[sine] * factor for root in roots))
        down = call.emit(reshape, call.emit(arange, shape=(self.given,), start=0, step=1), shape=(self.given, 1))
        across = call.emit(arange, shape=(self.outputs,), start=0, step=1)
        place = call.emit(mod, call.emit(mul, down, across), call.full(self.count, DType.I32))
        return call.emit(gather_rows, table, place)


function(Dft())
