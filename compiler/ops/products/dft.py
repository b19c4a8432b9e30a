"""dft: discrete Fourier transforms in real arithmetic."""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.function import Axis, Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import to_fix
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.products.fourier import fourier
from dslc.compiler.ops.products.fourier_plan import PRIMES, has_small_factors

#: The greatest size: products of two indices fit i32. A larger one must have small prime factors, for stages.
_MOST: Final = 1 << 15
_MOST_OF_STAGES: Final = 1 << 20


class Dft(Function):
    """dft(re, im=none, axis=-1, inverse=false, onesided=false, size=none): the discrete Fourier transform.

    Complex numbers are two tensors: there are two results, the real and the imaginary parts; without ``im``, the input
    is real. Result k is ``sum(x[n] * exp(-2*pi*i*n*k / N))``; the inverse has the other sign and divides by N.

    ``onesided`` gives the first ``N//2 + 1`` results of a real tensor, which tell the others. With ``inverse`` it takes
    these and gives one result, the real tensor of ``size`` elements, ``2 * (n - 1)`` of n by default.

    A GPU computes it in stages in shared memory, about 5*N*log2(N) operations; N with a prime factor above 13 takes two
    to six times as many. Elsewhere it is products of matrices: a long composite N takes several stages of small ones
    where that is faster, of N = N1 * N2 about 4*N*(N1 + N2) operations; a prime N costs N^2. Zeros that a ``pad`` adds
    after the elements cost nothing there, nor do results after the last one that a slice takes. N must be known in the
    file: up to 32768, or up to 1048576 without a prime factor above 13.

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
        _check_count(count)
        outputs = count // 2 + 1 if onesided and not inverse else count
        x = [re] if im is None else [re, im]
        found = call.emit_all(
            fourier, *x, axis=at, count=count, outputs=outputs, sign=1 if inverse else -1,
            parts="re" if onesided and inverse else "both", scale=1.0 / count if inverse else 1.0,
            twice="given" if onesided and inverse else "",
        )  # fmt: skip
        return found if len(found) > 1 else found[0]


def _checked(re: Value, im: Value | None, axis: int) -> int:
    """The size of the axis; raises Mismatch."""
    if not re.type.dtype.is_float or (im is not None and im.type != re.type):
        listed = f"{re.type}" if im is None else f"{re.type} and {im.type}"
        raise Mismatch(f"`dft` of {listed}", "floats; both parts have the same type", "E0302" if im else "E0204")
    size = re.type.shape[axis]
    if not isinstance(size, int):
        raise Mismatch(f"`dft` along axis {axis} of {re.type}", to_fix(size), "E0303")
    if size < 1:
        raise Mismatch(f"`dft` of {size} elements", f"from 1 to {_MOST}", "E0308")
    return size


def _check_count(count: int) -> None:
    """Raises Mismatch."""
    if count > _MOST and (count > _MOST_OF_STAGES or not has_small_factors(count)):
        help = f"up to {_MOST}, or up to {_MOST_OF_STAGES} without a prime factor above {max(PRIMES)}"
        raise Mismatch(f"`dft` of {count} elements", help, "E0308")


function(Dft())
