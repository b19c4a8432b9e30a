"""tensor: a constant tensor of written numbers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Final

from dslc.compiler.ir.function import Call, Function, Numbers, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Poly
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.constants.constant import of_dtype, same_bits
from dslc.compiler.ops.constants.literal import of_numbers
from dslc.compiler.ops.written_dtypes import dtype_named

_STORED_AS: Final = {DType.FLOAT: DType.F64}  # written floats have 53 bits
_MOST_NUMBERS: Final = 2**18  # of one tensor: about a second of checks
_MOST_AXES: Final = 32  # of an array of numpy 1


class TensorFunction(Function):
    """tensor(values, dtype=none): a constant tensor of a list of numbers, of lists of numbers, and so on.

    The numbers may be `inf`, `-inf` and `nan`. ``dtype``: "float", "f32", "f64", an integer, or "b1" for `true` and
    `false`; without it, "i32" if all numbers are ints, else "float". Floats are rounded once. The tensor is no
    parameter; more than 64 numbers are stored in the artifact.

    given: x: [B, 2]
    >>> x @ tensor([[0.5, -1], [2, inf]])
    """

    name = "tensor"

    def build(self, call: Call, values: Numbers, dtype: str | None = None) -> Value:
        shape = _shape(values)
        numbers = [_checked(item, place) for item, place in _leaves(values, shape, ())]
        known = _inferred(numbers) if dtype is None else dtype_named(self.name, dtype)
        if known in (DType.F16, DType.BF16):
            help = f'`cast(tensor(...), "{known}")` rounds it'
            raise Mismatch(f'`tensor` has no dtype "{known}"', help, "E0209")
        return of_numbers(call, [_of_dtype(n, known) for n in numbers], shape, known, _STORED_AS.get(known, known))


def _shape(values: Any) -> tuple[int, ...]:
    """The shape that the first elements have."""
    shape = []
    while isinstance(values, list | tuple):
        shape.append(len(values))
        if not values:
            break
        values = values[0]
        if len(shape) > _MOST_AXES:
            raise Mismatch(f"`tensor` of more than {_MOST_AXES} levels of lists", "fewer levels", "E0306")
    if prod(size for size in shape if size) > _MOST_NUMBERS:
        why = f"`tensor` of {prod(shape):,} numbers; it takes at most {_MOST_NUMBERS:,}"
        raise Mismatch(why, 'store them in a file: `use "table.npy" (table)`', "E0305")
    return tuple(shape)


def _leaves(values: Any, shape: tuple[int, ...], place: tuple[int, ...]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """The numbers and their places, in row-major order. Raises Mismatch E0302 for lists of different lengths."""
    is_list = isinstance(values, list | tuple)
    if is_list is not bool(shape) or (is_list and len(values) != shape[0]):
        found = f"a list of {len(values)}" if is_list else "a number"
        wanted = f"a list of {shape[0]}" if shape else "a number"
        where = "".join(f"[{i}]" for i in place)
        first = "[0]" * len(place)
        why = f"the element {where} is {found}, {first} is {wanted}"
        raise Mismatch(why, "all lists at one level have the same length", "E0302")
    if not is_list:
        yield values, place
        return
    for i, value in enumerate(values):
        yield from _leaves(value, shape[1:], (*place, i))


def _checked(value: Any, place: tuple[int, ...]) -> Any:
    if isinstance(value, int | float):
        return value
    at = "".join(f"[{i}]" for i in place) or "its argument"
    if isinstance(value, Value):
        raise Mismatch(f"`tensor` takes numbers, {at} is a tensor", "`stack` and `concat` join tensors", "E0202")
    if isinstance(value, Poly):
        help = "`full([], T)` is a tensor of a size; `stack` joins tensors"
        raise Mismatch(f"`tensor` takes numbers, {at} is the size `{value}`", help, "E0205")
    shown = "a string" if isinstance(value, str) else "something else"
    raise Mismatch(f"`tensor` takes numbers, {at} is {shown}", "numbers, or `true` and `false`", "E0202")


def _inferred(numbers: list[Any]) -> DType:
    bools = [isinstance(n, bool) for n in numbers]
    if any(bools) and not all(bools):
        raise Mismatch("`tensor` of numbers and bools", "numbers alone, or `true` and `false` alone", "E0204")
    if numbers and all(bools):
        return DType.B1
    return DType.I32 if numbers and all(isinstance(n, int) for n in numbers) else DType.FLOAT


def _of_dtype(value: Any, dtype: DType) -> Any:
    try:
        return of_dtype(value, dtype)
    except Mismatch as wrong:
        if wrong.code == "E0209" and dtype is DType.I32:
            help = f'`tensor(..., dtype="i64")`{same_bits(value, dtype)}'
            raise Mismatch(wrong.why, help, wrong.code) from None
        raise


function(TensorFunction())
