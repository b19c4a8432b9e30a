"""Checks a plan's calls of cuDNN for attention: whether the parts of its operands lie in their tensors and fit."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.instructions import GraphOp
from dslc.runtime.artifact.plan import Buffer

_ATTRS: Final = ("causal", "reads", "scale", "writes")
ALIGNMENT: Final = 16  # bytes; cuDNN assumes this alignment of operands and rows
#: How many operands and results an operation has.
KINDS: Final = {"sdpa": (3, 2), "sdpa_grad": (6, 3)}
#: Which of the operands and results, counted on from 0, holds the logarithms of rows' sums, in f32.
SUMS: Final = 4


class _Part(NamedTuple):
    """As in the attributes: in elements of the tensor ``buffer``."""

    buffer: Buffer
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    start: int


def attention_fault(graph: GraphOp, buffers: Sequence[Buffer]) -> str | None:
    """Why an attention or its gradient is invalid; None if it is valid. Its indices have been checked."""
    attrs, (reads, writes) = graph.attrs, KINDS[graph.kind]
    names = sorted({*attrs} - {"window"})
    if tuple(names) != _ATTRS or type(attrs["causal"]) is not bool:
        return f"the attributes of `{graph.kind}` are {', '.join(_ATTRS)}, and window if it has one"
    window = attrs.get("window", 1)
    if not ints([window], 1, 1):
        return f"the window of `{graph.kind}` is an int above 0"
    if type(attrs["scale"]) is not float or not isfinite(attrs["scale"]) or attrs["scale"] <= 0:
        return f"the scale of `{graph.kind}` is a number above 0"
    if len(graph.inputs) != reads or not _rows(attrs["reads"], reads, 3) or not _rows(attrs["writes"], writes, 4):
        return f"`{graph.kind}` has {reads} operands and {writes} results, each a part of a tensor"
    numbers = [number for number, *_ in attrs["writes"]]
    if sorted({*numbers} - {*range(len(graph.outputs))}) or len({*numbers}) != len(graph.outputs):
        return f"`{graph.kind}` writes each of its outputs"
    sources = [*graph.inputs, *(graph.outputs[number] for number in numbers)]
    listed = [*attrs["reads"], *(part for _, *part in attrs["writes"])]
    parts = [_part(buffers[source], part) for source, part in zip(sources, listed)]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return f"a part of `{graph.kind}` is not in its tensor"
    return _unfit(graph, found)


def _unfit(graph: GraphOp, parts: Sequence[_Part]) -> str | None:
    """Why parts that lie in their tensors do not fit each other."""
    dtype = parts[0].buffer.dtype
    if dtype not in ("f16", "bf16"):
        return f"`{graph.kind}` is of f16 or bf16, not {dtype}"
    for number, part in enumerate(parts):
        wanted = "f32" if number == SUMS else dtype
        if part.buffer.dtype != wanted:
            return f"operand {number} of `{graph.kind}` is {part.buffer}, not {wanted}"
        steps = (*part.strides[:-1], part.start) if number != SUMS else (part.start,)
        if (
            part.strides[-1] != 1
            or any(n * ITEMSIZE[wanted] % ALIGNMENT for n in steps)
            or part.buffer.offset % ALIGNMENT
        ):
            return f"rows of operand {number} of `{graph.kind}` do not begin at multiples of {ALIGNMENT} bytes"
    q, k, v = (part.sizes for part in parts[:3])
    y, row = (*q[:3], v[3]), (*q[:3], 1)
    sizes = [q, k, v, y, row] if graph.kind == "sdpa" else [q, k, v, y, row, y, q, k, v]
    keys = (k[0], k[1], v[2]) == (v[0], v[1], k[2]) and k[3] == q[3] and k[0] == q[0] and q[1] % k[1] == 0
    square = graph.attrs["causal"] or "window" in graph.attrs
    if not keys or [part.sizes for part in parts] != sizes or (square and q[2] != k[2]):
        return f"the operands and results of `{graph.kind}` do not fit each other"
    return None


def _rows(value: Any, count: int, width: int) -> bool:
    """Whether it is a list of ``count`` lists of ``width`` items."""
    return (
        isinstance(value, list | tuple)
        and len(value) == count
        and all(isinstance(row, list | tuple) and len(row) == width for row in value)
        and (width == 3 or all(type(row[0]) is int for row in value))
    )


def _part(buffer: Buffer, listed: Sequence[Any]) -> _Part | None:
    """The part as it is listed; None if it is malformed or not in its tensor."""
    sizes, strides, start = listed
    if not (ints(sizes, 1, 4) and ints(strides, 0, 4) and type(start) is int and start >= 0):
        return None
    last = start + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    return _Part(buffer, tuple(sizes), tuple(strides), start) if last * ITEMSIZE[buffer.dtype] < buffer.bytes else None


def ints(value: Any, least: int, count: int) -> bool:
    """True for ``count`` ints of at least ``least`` that fit into 32 bits."""
    return isinstance(value, list | tuple) and len(value) == count and all(
        type(v) is int and least <= v < 1 << 31 for v in value
    )  # fmt: skip
