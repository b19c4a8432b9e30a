"""rearrange: splits, merges and reorders axes by a pattern of names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, exact_div, product, to_multiple
from dslc.compiler.ops.shape.broadcast import written
from dslc.compiler.ops.shape.views import reshape, transpose

_TOKEN = re.compile(r"\s*(?:([A-Za-z_]\w*|1)|(\()|(\))|(\S))", re.ASCII)
_HELP = 'for instance "B T (h d) -> B h T d"'

Groups = list[list[str]]


def parse_side(text: str) -> Groups:
    """The axes of one side of a pattern, each a list of its names (empty for ``1``). Raises Mismatch."""
    groups: Groups = []
    inside: list[str] | None = None
    for match in _TOKEN.finditer(text.rstrip()):
        name, opening, closing, wrong = match.groups()
        if wrong:
            raise Mismatch(f"{wrong!r} is not allowed in a pattern", _HELP)
        if opening or closing:
            if bool(opening) is (inside is not None):
                raise Mismatch(f"an extra parenthesis in {text.strip()!r}", _HELP)
            if closing and inside is not None:
                groups.append(inside)
            inside = [] if opening else None
        elif inside is not None:
            inside.extend([name] if name != "1" else [])
        else:
            groups.append([name] if name != "1" else [])
    if inside is not None:
        raise Mismatch(f"a parenthesis is not closed in {text.strip()!r}", _HELP)
    return groups


def parse(pattern: str) -> tuple[Groups, Groups]:
    """Both sides of a pattern; each name occurs once on either side. Raises Mismatch."""
    sides = pattern.split("->")
    if len(sides) != 2:
        raise Mismatch(f"the pattern {pattern!r} needs one `->`", _HELP)
    left, right = (parse_side(side) for side in sides)
    names = [[n for group in side for n in group] for side in (left, right)]
    for side in names:
        twice = sorted({n for n in side if side.count(n) > 1})
        if twice:
            raise Mismatch(f"`{twice[0]}` occurs twice on one side of {pattern!r}", _HELP)
    lone = sorted(set(names[0]) ^ set(names[1]))
    if lone:
        raise Mismatch(
            f"`{lone[0]}` occurs on one side of {pattern!r} only", "reduce with `mean`, repeat by broadcasting"
        )
    return left, right


def solve(left: Groups, shape: tuple[Size, ...], given: Mapping[str, Size]) -> dict[str, Size]:
    """The size of every name, from the tensor's shape and the sizes given. Raises Mismatch."""
    if len(left) != len(shape):
        raise Mismatch(f"the pattern names {len(left)} axes, {written(shape)} has {len(shape)}", _HELP, "E0302")
    sizes = dict(given)
    known = {n for group in left for n in group}
    for name in given:
        if name not in known:
            raise Mismatch(f"`{name}` does not occur in the pattern", None, "E0201")
    for group, size in zip(left, shape):
        unknown = [n for n in group if n not in sizes]
        have = product(tuple(sizes[n] for n in group if n in sizes))
        if len(unknown) > 1:
            raise Mismatch(
                f"the sizes of `{unknown[0]}` and `{unknown[1]}` are unknown", f"give one: `{unknown[0]}=...`"
            )
        rest = exact_div(size, have)
        if rest is None or (not unknown and rest != 1):
            inner = " ".join(group) or "1"
            help = to_multiple(size, have) if unknown else None
            raise Mismatch(f"an axis of {size} does not split into ({inner}) with known sizes {have}", help, "E0303")
        if unknown:
            sizes[unknown[0]] = rest
    return sizes


class Rearrange(Function):
    """rearrange(x, pattern, NAME=size, ...): axes split, merged and reordered, as a pattern says.

    The axes of ``x`` are left of ``->``, those of the result right; ``(h d)`` is one axis of two, with ``h`` outer;
    ``1`` is an axis of size 1. If more than one size of an axis is unknown, pass it by name.

    given: x: [B, 8]
    >>> rearrange(x, "B (h d) -> h B d", h=2)
    """

    name = "rearrange"

    def build(self, call: Call, x: Value, pattern: str, /, **sizes: Size) -> Value:
        left, right = parse(pattern)
        found = solve(left, x.type.shape, sizes)
        before = [n for group in left for n in group]
        after = [n for group in right for n in group]
        split = tuple(found[n] for n in before)
        y = x if split == x.type.shape else call.emit(reshape, x, shape=split)
        perm = tuple(before.index(n) for n in after)
        if perm != tuple(range(len(perm))):
            y = call.emit(transpose, y, perm=perm)
        joined = tuple(product(tuple(found[n] for n in group)) for group in right)
        return y if joined == y.type.shape else call.emit(reshape, y, shape=joined)


function(Rearrange())
