"""dft: discrete Fourier transforms in real arithmetic."""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.function import Axis, Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import to_fix
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.constants.literal import of_numbers
from dslc.compiler.ops.elementwise.arithmetic import mul
from dslc.compiler.ops.products.fourier import fourier
from dslc.compiler.ops.shape.views import transpose

#: The greatest size: products of two indices fit i32.
_MOST: Final = 1 << 15


class Dft(Function):
    """dft(re, im=none, axis=-1, inverse=false, onesided=false, size=none): the discrete Fourier transform.

    Complex numbers are two tensors: there are two results, the real and the imaginary parts; without ``im``, the input
    is real. Result k is ``sum(x[n] * exp(-2*pi*i*n*k / N))``; the inverse has the other sign and divides by N.

    ``onesided`` gives the first ``N//2 + 1`` results of a real tensor, which tell the others. With ``inverse`` it takes
    these and gives one result, the real tensor of ``size`` elements, ``2 * (n - 1)`` of n by default.

    It is computed as products of matrices. A long composite N takes several stages of small ones where that is faster:
    two for N = N1 * N2 cost about 4*N*(N1 + N2) operations. A prime N costs N^2. Zeros that a ``pad`` adds after the
    elements cost nothing, nor do results after the last one that a slice takes. N must be known in the file.

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
        outputs = count // 2 + 1 if onesided and not inverse else count
        x = [_last(call, each, at) for each in (re, im) if each is not None]
        if onesided and inverse:  # the results that are not given are conjugates of those that are
            shares = tuple(1.0 if 2 * k in (0, count) else 2.0 for k in range(given))
            if max(shares) > 1.0:
                weight = of_numbers(call, shares, (given,), re.type.dtype)
                x = [call.emit(mul, each, weight) for each in x]
        y = call.emit_all(
            fourier, *x, count=count, outputs=outputs, sign=1 if inverse else -1,
            parts="re" if onesided and inverse else "both", scale=1.0 / count if inverse else 1.0,
        )  # fmt: skip
        found = tuple(_back(call, each, at) for each in y)
        return found if len(found) > 1 else found[0]


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


def _order(rank: int, axis: int) -> tuple[int, ...]:
    return (*(i for i in range(rank) if i != axis), axis)


def _last(call: Call, x: Value, axis: int) -> Value:
    """The axis at the end."""
    return x if axis == x.type.rank - 1 else call.emit(transpose, x, perm=_order(x.type.rank, axis))


def _back(call: Call, x: Value, axis: int) -> Value:
    """The last axis at this place."""
    if axis == x.type.rank - 1:
        return x
    order = _order(x.type.rank, axis)
    return call.emit(transpose, x, perm=tuple(map(order.index, range(len(order)))))


function(Dft())
