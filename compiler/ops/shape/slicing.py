"""slice, pad and concat: parts of tensors and concatenation; the functions split, concat, stack
and flip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call
from dslc.compiler.ir.graph import Attr, Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size, bounds, floor_div
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_attr, int_tuple, ints_attr, number_attr, shape_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.broadcast import written

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def _moved(node: Node) -> Cost:
    return Cost(0, sum(t.bytes for t in (*node.input_types, *node.types)))


class Slice(Op):
    """slice(x): elements ``starts[i]``, ``starts[i] + steps[i]``, ... up to but excluding ``stops[i]``, of each axis.

    Attributes ``starts``, ``stops`` (sizes) and ``steps`` (nonzero ints), one per axis. Forwards
    0 <= start <= stop <= size; backwards, with a step below 0, size > start >= stop >= -1, where -1 is before the
    first element. A view for kernels that read by strides.
    """

    name = "slice"
    by_axis = ("starts", "stops", "steps")
    kernel_kind = "copies"
    moves = True
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        shape = types[0].shape
        starts, stops, steps = shape_attr(attrs, "starts"), shape_attr(attrs, "stops"), ints_attr(attrs, "steps")
        assert len(starts) == len(stops) == len(steps) == len(shape), (
            "slice needs starts, stops and steps for each axis"
        )
        result: list[Size] = []
        for axis, (start, stop, step, size) in enumerate(zip(starts, stops, steps, shape)):
            if step == 0:
                raise Mismatch("a step of 0", "a step is at least 1 or at most -1", "E0209")
            low, span, room = (
                (start, stop - start, size - stop) if step > 0 else (stop + 1, start - stop, size - 1 - start)
            )
            if min(bounds(low)[0], bounds(span)[0], bounds(room)[0]) < 0:
                why = f"{start}:{stop} is not inside axis {axis} of {written(shape)} for every possible size"
                raise Mismatch(why, "limit the range or the dim", "E0304")
            result.append(floor_div(span + (abs(step) - 1), abs(step)))
        return (TensorType(types[0].dtype, tuple(result)),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        before, after, dy = node.inputs[0].type.ints, node.out.type.ints, only(dys)
        starts, steps = ints_attr(node.attrs, "starts"), ints_attr(node.attrs, "steps")
        if min(steps, default=1) < 0:
            dy = reversed_along(b, dy, tuple(axis for axis, step in enumerate(steps) if step < 0))
        ends = tuple(start + (n - 1) * step for start, step, n in zip(starts, steps, after))
        # if no element is taken, the whole axis is padding
        low = tuple(min(s, e) if n else size for s, e, n, size in zip(starts, ends, after, before))
        high = tuple(size - 1 - max(s, e) if n else 0 for s, e, n, size in zip(starts, ends, after, before))
        return (b(pad, dy, low=low, high=high, interior=tuple(abs(s) - 1 for s in steps), value=0.0),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [xs[0][tuple(map(_part, attrs["starts"], attrs["stops"], attrs["steps"]))]]

    def cost(self, node: Node) -> Cost:
        return Cost(0, 2 * node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        axis = axes[0]
        if axis is None:
            return (None,)
        starts, stops, steps = (shape_attr(node.attrs, name) for name in ("starts", "stops", "steps"))
        whole = starts[axis] == 0 and stops[axis] == node.input_types[0].shape[axis] and steps[axis] == 1
        return (axis,) if whole else None


class Pad(Op):
    """pad(x): axis ``i`` gets ``low[i]`` elements before, ``high[i]`` after, ``interior[i]`` between, all of ``value``.

    Attributes ``low``, ``high``, ``interior`` (ints from 0, one for each axis) and ``value``, a number.
    """

    name = "pad"
    by_axis = ("low", "high", "interior")
    kernel_kind = "copies"
    moves = True
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        low, high, interior = (ints_attr(attrs, name) for name in ("low", "high", "interior"))
        shape = types[0].shape
        assert len(low) == len(high) == len(interior) == len(shape), "pad needs low, high and interior for each axis"
        if min((*low, *high, *interior), default=0) < 0:
            raise Mismatch("padding cannot be negative", "use a slice, `x[a:b]`, instead", "E0209")
        if types[0].dtype.is_int and not number_attr(attrs, "value").is_integer():
            raise Mismatch(f"{attrs['value']} is no {types[0].dtype}", "pad with an integer", "E0204")
        sizes: list[Size] = []
        for size, a, z, gap in zip(shape, low, high, interior):
            if gap and bounds(size)[0] == 0 and bounds(size)[1] > 0:
                raise Mismatch(
                    f"an axis of {size} may be empty, so its number of gaps is unknown", "let it start at 1", "E0308"
                )
            gaps = (size - 1) * gap if size != 0 else 0
            sizes.append(size + gaps + a + z)
        return (TensorType(types[0].dtype, tuple(sizes)),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        before, after = node.inputs[0].type.ints, node.out.type.ints
        low, interior = ints_attr(node.attrs, "low"), ints_attr(node.attrs, "interior")
        steps = tuple(gap + 1 for gap in interior)
        starts = tuple(min(a, size) for a, size in zip(low, after))
        stops = tuple(a + (n - 1) * step + 1 if n else a for a, n, step in zip(starts, before, steps))
        return (b(slice_, only(dys), starts=starts, stops=stops, steps=steps),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x = xs[0]
        parts = list(zip(x.shape, int_tuple(attrs, "low"), int_tuple(attrs, "high"), int_tuple(attrs, "interior")))
        shape = tuple(n + a + z + max(n - 1, 0) * gap for n, a, z, gap in parts)
        y = np.full(shape, number_attr(attrs, "value"), x.dtype)
        y[tuple(slice(a, a + n + max(n - 1, 0) * gap, gap + 1) for n, a, _, gap in parts)] = x
        return [y]

    def cost(self, node: Node) -> Cost:
        return _moved(node)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        axis = axes[0]
        if axis is None:
            return (None,)
        touched = any(ints_attr(node.attrs, name)[axis] for name in ("low", "high", "interior"))
        return None if touched else (axis,)


class Concat(Op):
    """concat(xs): tensors of one dtype joined along the attribute ``axis``; other sizes agree."""

    name = "concat"
    kernel_kind = "copies"
    moves = True
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        axis, first = int_attr(attrs, "axis"), types[0]
        assert 0 <= axis < first.rank
        total: Size = 0
        for t in types:
            if t.dtype is not first.dtype:
                raise Mismatch(f"{first.dtype} and {t.dtype} in one tensor", "convert one with `cast`", "E0204")
            if t.rank != first.rank or any(a != b for i, (a, b) in enumerate(zip(t.shape, first.shape)) if i != axis):
                why = f"{written(first.shape)} and {written(t.shape)} differ in more than axis {axis}"
                raise Mismatch(why, "all other sizes must agree", "E0302")
            total = total + t.shape[axis]
        return (TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        axis, dy, at = int_attr(node.attrs, "axis"), only(dys), 0
        shape = dy.type.ints
        found: list[Value | None] = []
        for t in node.input_types:
            starts, stops = [0] * len(shape), list(shape)
            starts[axis], stops[axis] = at, at + t.ints[axis]
            at = stops[axis]
            found.append(b(slice_, dy, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(shape)))
        return found

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [np.concatenate(list(xs), axis=attrs["axis"])]

    def cost(self, node: Node) -> Cost:
        return _moved(node)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        found = {axis for axis in axes if axis is not None}  # a part without rows is equal for all of them
        if len(found) > 1 or int_attr(node.attrs, "axis") in found:
            return None
        return (found.pop() if found else None,)


def _part(start: int, stop: int, step: int) -> slice:
    """The slice in numpy's form, where -1 is the last position. An empty axis is read backwards from -1."""
    return slice(0, 0) if start < 0 else slice(start, None if stop < 0 else stop, step)


def reversed_along(b: Builder, x: Value, over: Sequence[int]) -> Value:
    """``x`` with its elements in reverse order along the axes ``over``."""
    return b(slice_, x, **reversal(x.type.shape, over))


def reversal(shape: Sequence[Size], over: Sequence[int]) -> dict[str, Attr]:
    turned = [axis in over for axis in range(len(shape))]
    return {
        "starts": tuple(size - 1 if back else 0 for size, back in zip(shape, turned)),
        "stops": tuple(-1 if back else size for size, back in zip(shape, turned)),
        "steps": tuple(-1 if back else 1 for back in turned),
    }


slice_ = register(Slice())
pad = register(Pad())
concat = register(Concat())


def piece(call: Call, x: Value, axis: int, start: Size, stop: Size, step: int = 1) -> Value:
    """``x`` from ``start`` to ``stop`` along one axis, every ``step``-th element."""
    rank = x.type.rank
    starts: list[Size] = [0] * rank
    stops: list[Size] = list(x.type.shape)
    starts[axis], stops[axis] = start, stop
    steps = tuple(step if i == axis else 1 for i in range(rank))
    return call.emit(slice_, x, starts=tuple(starts), stops=tuple(stops), steps=steps)
