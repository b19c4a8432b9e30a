"""Indices that the source counts itself, such as ``arange(10)``: they must fit the table that they index."""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import bounds
from dslc.compiler.ops.attrs import int_attr

_SAME: Final = ("expand", "reshape", "transpose", "cast")  # the results have all numbers of the input, if they fit


def require_rows(what: str, ids: Value, count: int, width: int) -> None:
    """Raises Mismatch E0209 if ``ids`` are counted and one of them is no row of a table [count, width], whatever the
    sizes of dims."""
    found = _counted(ids)
    if found is None or 0 <= found[0] <= found[1] < count:
        return
    least, most = found
    if least < 0:
        raise Mismatch(f"an id of `{what}` is {least}", "ids count from 0: `arange(n)`", "E0209")
    swapped = f"the number of rows comes first: write `{what}({width}, {count})`"
    help = swapped if most < width else f"give it {most + 1} rows: `{what}({most + 1}, {width})`"
    raise Mismatch(f"`{what}` has {count} rows, and its ids count to {most}", help, "E0209")


def _counted(ids: Value) -> tuple[int, int] | None:
    """The least and the greatest of the ids at the least sizes of dims; None if they are not counted, or if there are
    none."""
    made = ids.producer
    while isinstance(made, Node) and made.op.name in _SAME:
        if any(bounds(size)[0] < 1 for size in made.types[0].shape) or made.types[0].dtype.itemsize < 4:
            return None
        made = made.inputs[0].producer
    if not isinstance(made, Node) or made.op.name != "arange":
        return None
    count, start = bounds(made.types[0].shape[0])[0], int_attr(made.attrs, "start")
    ends = (start, start + int_attr(made.attrs, "step") * (count - 1))
    return (min(ends), max(ends)) if count > 0 else None
