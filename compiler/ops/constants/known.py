"""Numbers that an expression computed as a tensor of rank 0: `1 / sqrt(8)` may stand where a number is needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.sizes import Poly, Size
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.constants.constant import full
from dslc.compiler.ops.elementwise.arithmetic import Elementwise
from dslc.compiler.ops.lazy import np

_OF_SIZES: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
}


def number_or(value: Any) -> Any:
    """The number that a tensor is, if it has rank 0 and is computed elementwise from numbers alone, in f64; a list with
    such tensors as numbers; any other value as it is."""
    if isinstance(value, list):
        return [number_or(each) for each in value] if any(isinstance(each, Value) for each in value) else value
    found = _computed(value, _number, _in_f64) if isinstance(value, Value) else None
    return value if found is None or not math.isfinite(found) else float(found)


def size_or(value: Any) -> Any:
    """The size that a float tensor of rank 0 is, if sums and products of sizes and whole numbers made it, as
    ``T - 1.0``; any other value as it is."""
    found = _computed(value, _size, _of_sizes) if isinstance(value, Value) else None
    return value if found is None else found


def _number(value: Any) -> Any:
    return np.float64(value) if isinstance(value, (int, float)) else None


def _in_f64(node: Node, xs: list[Any]) -> Any:
    return node.op.meaning([np.asarray(x) for x in xs], node.attrs)[0] if isinstance(node.op, Elementwise) else None


def _size(value: Any) -> Size | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, (int, Poly)) and not isinstance(value, bool) else None


def _of_sizes(node: Node, xs: list[Any]) -> Size | None:
    rule = _OF_SIZES.get(node.op.name)
    return None if rule is None else rule(*xs)


def _computed(value: Value, leaf: Callable[[Any], Any], rule: Callable[[Node, list[Any]], Any]) -> Any:
    """What the rules make of a tensor of rank 0, or None. Every node is computed once, without recursion."""
    done: dict[Value, Any] = {}
    stack = [value]
    while stack:
        each = stack[-1]
        node = each.producer
        if not isinstance(node, Node) or each.type.shape or each.type.dtype is not DType.FLOAT:
            return None
        missing = [x for x in node.inputs if x not in done]
        if missing:
            stack.extend(missing)
            continue
        found = leaf(node.attrs["value"]) if node.op is full else rule(node, [done[x] for x in node.inputs])
        if found is None:
            return None
        done[stack.pop()] = found
    return done[value]
