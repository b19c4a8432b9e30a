"""Runs nodes through the numpy meanings of their ops: the smallest executor there can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dslc.compiler.ir.graph import Input, Kind, Node, Value
from dslc.compiler.ir.op import Op
from dslc.compiler.ir.types import DType, TensorType
from dslc.runtime.artifact.dtypes import name_of, numpy_dtype


def plain(attr: Any) -> Any:
    """An attribute as JSON brings it to ``meaning``: names for dtypes, lists for tuples."""
    if isinstance(attr, DType):
        return attr.value
    return [plain(a) for a in attr] if isinstance(attr, tuple | list) else attr


def plain_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in attrs.items()}


def type_of(x: np.ndarray) -> TensorType:
    name = name_of(x.dtype)
    assert name is not None, x.dtype
    return TensorType(DType(name), x.shape)


def values_of(arrays: Iterable[np.ndarray], prefix: str = "x") -> list[Value]:
    """Graph inputs of the arrays' types."""
    return [Input(f"{prefix}{i}", Kind.DATA, type_of(a)).value for i, a in enumerate(arrays)]


def apply(op: Op, xs: Sequence[np.ndarray], attrs: Mapping[str, Any]) -> list[np.ndarray]:
    """The outputs of an op; its inputs are read-only, as in the executor."""
    guarded = []
    for x in xs:
        view = x.view()
        view.flags.writeable = False
        guarded.append(view)
    return list(op.meaning(guarded, plain_attrs(attrs)))


def run(roots: Sequence[Value], feeds: Mapping[Value, np.ndarray]) -> list[np.ndarray]:
    """The arrays of ``roots``. ``feeds`` are known; their producers are not evaluated.

    Raises AssertionError for an input without a feed, and where an op's result is not of the type it announced.
    """
    known = dict(feeds)
    for node in _needed(roots, known):
        arrays = apply(node.op, [known[v] for v in node.inputs], node.attrs)
        for value, array in zip(node.outputs, arrays, strict=True):
            assert array.dtype == numpy_dtype(value.type.dtype.value), f"{node.op.name} gives {array.dtype}"
            assert array.shape == value.type.shape, f"{node.op.name} gives {array.shape}, not {value.type}"
            known[value] = array
    return [known[v] for v in roots]


def _needed(roots: Sequence[Value], known: Mapping[Value, np.ndarray]) -> list[Node]:
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = []

    def push(value: Value) -> None:
        if value in known:
            return
        assert isinstance(value.producer, Node), f"no feed for {value.producer!r}"
        stack.append((value.producer, False))

    for root in roots:
        push(root)
        while stack:
            node, entered = stack.pop()
            if entered:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                for value in node.inputs:
                    push(value)
    return order
