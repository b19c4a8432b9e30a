"""``slices`` and ``placed``: several parts of one tensor read, or written, by one node, to save launches. Passes make
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dslc.compiler.ir.graph import Attr, Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import dtype_attr, int_tuple
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

MAX_BOXES: Final = 48  # per node: 4 KB hold the pointers and numbers of as many
MAX_AXES: Final = 3  # of a part that one launch copies, after axes that follow each other are one


class Box(NamedTuple):
    """The part of a tensor that has ``shape`` and begins at the index ``start`` of each axis."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    def inside(self, whole: Sequence[int]) -> bool:
        """Whether a tensor of this shape has all of the part."""
        ends = (a + n for a, n in zip(self.start, self.shape))
        return len(self.shape) == len(whole) and all(
            a >= 0 and end <= size for a, end, size in zip(self.start, ends, whole)
        )

    def apart(self, other: Box) -> bool:
        """Whether the two parts have no element in common."""
        return not prod(self.shape) * prod(other.shape) or any(
            a + n <= b or b + m <= a for a, n, b, m in zip(self.start, self.shape, other.start, other.shape)
        )

    def of(self, x: Array) -> Array:
        """The part of an array, which it shares."""
        return x[tuple(slice(a, a + n) for a, n in zip(self.start, self.shape))]


class Slices(Op):
    """slices(x): the parts of x with the attributes ``starts`` and ``shapes``, one of each for a result; cast to the
    attribute ``dtype``, if there is one."""

    name = "slices"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x] = types
        boxes = boxes_of(attrs)
        _require(boxes, x.ints)
        dtype = dtype_attr(attrs) if "dtype" in attrs else x.dtype
        return tuple(TensorType(dtype, box.shape) for box in boxes)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("slices are joined after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        parts = [box.of(xs[0]).copy() for box in boxes_of(attrs)]
        return [cast.meaning([part], attrs)[0] for part in parts] if "dtype" in attrs else parts

    def cost(self, node: Node) -> Cost:
        elements = sum(prod(t.ints) for t in node.types)
        return Cost(0, elements * (node.input_types[0].dtype.itemsize + node.types[0].dtype.itemsize))


class Placed(Op):
    """placed(x0, x1, ...): a tensor of the attribute ``shape`` whose part at ``starts[i]`` is xi, and 0 elsewhere.

    No two parts have an element in common.
    """

    name = "placed"
    in_halves = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        shape = int_tuple(attrs, "shape")
        boxes = places_of(types, attrs)
        _require(boxes, shape)
        if any(t.dtype is not types[0].dtype for t in types):
            raise Mismatch(f"parts {', '.join(map(str, types))}", "all of one dtype")
        if not all(a.apart(b) for a, b in combinations(boxes, 2)):
            raise Mismatch("parts with elements in common", "parts that are apart")
        return (TensorType(types[0].dtype, shape),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("parts are placed together after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        y = np.zeros(attrs["shape"], xs[0].dtype)
        for x, start in zip(xs, attrs["starts"]):
            Box(start, x.shape).of(y)[...] = x
        return [y]

    def cost(self, node: Node) -> Cost:
        return Cost(0, 2 * sum(t.bytes for t in node.input_types) + node.types[0].bytes)


def boxes_of(attrs: Mapping[str, Any]) -> list[Box]:
    """The parts that the results of ``slices`` are."""
    return [Box(*each) for each in zip(attrs["starts"], attrs["shapes"], strict=True)]


def places_of(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> list[Box]:
    """The parts of the result that the inputs of ``placed`` are."""
    return [Box(start, t.ints) for start, t in zip(attrs["starts"], types, strict=True)]


def as_attrs(boxes: Sequence[Box]) -> dict[str, Attr]:
    """The attributes of ``slices``."""
    return {"starts": tuple(box.start for box in boxes), "shapes": tuple(box.shape for box in boxes)}


def lines(box: Box, whole: Sequence[int]) -> tuple[int, list[tuple[int, int]]]:
    """Where a part begins in a row-major tensor of shape ``whole``, and the sizes and strides of its axes, the last one
    first. Axes that follow each other in memory are one; axes of one element are left out."""
    start, stride, found = 0, 1, [(1, 1)]
    for first, n, size in zip(reversed(box.start), reversed(box.shape), reversed(whole)):
        start += first * stride
        count, step = found[-1]
        if stride == count * step:
            found[-1] = (count * n, step)
        elif n != 1:
            found.append((n, stride))
        stride *= size
    return start, found


def _require(boxes: Sequence[Box], whole: Sequence[int]) -> None:
    if not 1 <= len(boxes) <= MAX_BOXES or not all(box.inside(whole) for box in boxes):
        raise Mismatch(f"parts {list(boxes)} of {tuple(whole)}", f"1 to {MAX_BOXES} parts inside the tensor")


slices = register(Slices())
placed = register(Placed())
