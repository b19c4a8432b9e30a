"""einsum of two tensors: composed of transpose, reshape, matmul and sums."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, product
from dslc.compiler.ops.elementwise.arithmetic import mul
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.reduction.reduce import sum_
from dslc.compiler.ops.shape.views import reshape, transpose

_PATTERN = re.compile(r"\s*([A-Za-z\s]*),([A-Za-z\s]*)->([A-Za-z\s]*)", re.ASCII)
_HELP = 'for instance "bij,bjk->bik"'


def parse(pattern: str) -> tuple[str, str, str]:
    """The letters of the two operands and of the result; raises Mismatch."""
    match = _PATTERN.fullmatch(pattern)
    if match is None:
        raise Mismatch(f"{pattern!r} is not a pattern of two operands and a result", _HELP)
    a, b, out = ("".join(side.split()) for side in match.groups())
    for side in (a, b, out):
        twice = sorted({c for c in side if side.count(c) > 1})
        if twice:
            raise Mismatch(f"`{twice[0]}` occurs twice in {side!r}", "each axis of one side needs a different letter")
    lost = [c for c in out if c not in a and c not in b]
    if lost:
        raise Mismatch(f"`{lost[0]}` of the result is not an axis of an operand", _HELP)
    return a, b, out


def _sizes(letters: str, x: Value, known: dict[str, Size]) -> None:
    """Adds the sizes of ``x`` by letter; raises Mismatch E0302."""
    if len(letters) != x.type.rank:
        raise Mismatch(f"{letters!r} names {len(letters)} axes, {x.type} has {x.type.rank}", _HELP, "E0302")
    for letter, size in zip(letters, x.type.shape):
        if known.setdefault(letter, size) != size:
            raise Mismatch(f"`{letter}` is {known[letter]} and {size}", "a letter has one size", "E0302")


def _without(call: Call, x: Value, letters: str, wanted: str) -> tuple[Value, str]:
    """``x`` summed over the axes whose letter is not ``wanted``."""
    over = tuple(i for i, c in enumerate(letters) if c not in wanted)
    return (call.emit(sum_, x, over=over, keep=False) if over else x), "".join(c for c in letters if c in wanted)


def _arranged(call: Call, x: Value, letters: str, order: str, shape: Sequence[Size]) -> Value:
    """``x`` transposed to this order of letters, then reshaped to this shape."""
    if letters != order:
        x = call.emit(transpose, x, perm=tuple(letters.index(c) for c in order))
    return x if x.type.shape == tuple(shape) else call.emit(reshape, x, shape=tuple(shape))


class Einsum(Function):
    """einsum(pattern, a, b): the sum of products of two tensors, described by a pattern of letters as in numpy.

    Each letter is an axis; letters missing in the result are summed over. It becomes one matrix product over the
    common letters of the operands, with transposes and reshapes if needed.

    given: x: [B, 4, 8], y: [B, 2, 8]
    >>> einsum("bij,bkj->bik", x, y)
    """

    name = "einsum"

    def build(self, call: Call, pattern: str, a: Value, b: Value) -> Value:
        left, right, out = parse(pattern)
        if a.type.dtype is not b.type.dtype or not a.type.dtype.is_float:
            raise Mismatch(f"`einsum` of {a.type} and {b.type}", 'it takes float tensors: `cast(x, "float")`', "E0204")
        sizes: dict[str, Size] = {}
        _sizes(left, a, sizes)
        _sizes(right, b, sizes)
        a, left = _without(call, a, left, right + out)
        b, right = _without(call, b, right, left + out)
        batch = "".join(c for c in left if c in right and c in out)
        summed = "".join(c for c in left if c in right and c not in out)
        rows = "".join(c for c in left if c not in right)
        columns = "".join(c for c in right if c not in left)

        def shape(letters: str) -> tuple[Size, ...]:
            return tuple(sizes[c] for c in letters)

        lead = shape(batch)
        inner, down, across = (product(shape(letters)) for letters in (summed, rows, columns))
        if summed:
            x = _arranged(call, a, left, batch + rows + summed, (*lead, down, inner))
            if right.startswith(batch + columns):  # the product does the transpose
                y = _arranged(call, b, right, batch + columns + summed, (*lead, across, inner))
                z = call.emit(matmul, x, y, transpose_a=False, transpose_b=True)
            else:
                y = _arranged(call, b, right, batch + summed + columns, (*lead, inner, across))
                z = call.emit(matmul, x, y, transpose_a=False, transpose_b=False)
        else:
            x = _arranged(call, a, left, batch + rows, (*lead, down, 1))
            y = _arranged(call, b, right, batch + columns, (*lead, 1, across))
            z = call.emit(mul, x, y)
        found = batch + rows + columns
        z = z if z.type.shape == shape(found) else call.emit(reshape, z, shape=shape(found))
        return _arranged(call, z, found, out, shape(out))


function(Einsum())
