"""Regions that copy windows out of tensors, and that add windows up."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, all_strides, dense
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_tuple


@lowers("unfold")
def unfold(node: Node) -> list[Launch]:
    """A copy from overlapping strides."""
    [x], [y] = node.input_types, node.types
    _, stride, dilation = (int_tuple(node.attrs, name) for name in ("k", "stride", "dilation"))
    steps = all_strides(x.ints)
    apart = [n * d for n, d in zip(steps[2:], dilation)] + [n * s for n, s in zip(steps[2:], stride)]
    strides = tuple(n if size != 1 else 0 for n, size in zip((*steps[:2], *apart), y.ints))
    builder = RegionBuilder(y.ints, (), [Access(x.dtype, strides)], [Access(y.dtype, dense(y.ints))])
    builder.row()
    builder.store(0, builder.let(builder.input(0), y.dtype))
    return [Launch(builder.region(), node.inputs, node.outputs)]


@dataclass(frozen=True)
class _Axis:
    """Windows along an axis: which of them contain an element, and at which tap."""

    k: int
    stride: int
    dilation: int
    count: int

    @property
    def _reach(self) -> int:
        """How many windows begin where they may contain an element."""
        return -(-(self.dilation * (self.k - 1) + 1) // self.stride)

    @property
    def steps(self) -> int:
        """The candidates: windows, or taps if these are fewer."""
        return min(self._reach, self.k)

    def candidate(self, i: Expr, t: Expr) -> tuple[Expr, Expr, Expr]:
        """Of element i: the window, the tap, and whether they meet there."""
        if self._reach <= self.k:
            window = call("floordiv", i, self.stride) - t
            inside = i - window * self.stride
            tap, rest = call("floordiv", inside, self.dilation), call("mod", inside, self.dilation)
            meets = call("and", call("eq", rest, 0), tap < self.k)
        else:
            inside = i - t * self.dilation
            window, tap = call("floordiv", inside, self.stride), t
            meets = call("eq", call("mod", inside, self.stride), 0)
        return window, tap, call("and", meets, call("and", window >= 0, window < self.count))


@lowers("fold")
def fold(node: Node) -> list[Launch]:
    """Each element sums the taps of the windows that contain it."""
    [y], [x] = node.input_types, node.types
    k, stride, dilation = (int_tuple(node.attrs, name) for name in ("k", "stride", "dilation"))
    count = len(k)
    axes = [_Axis(*each) for each in zip(k, stride, dilation, y.ints[2 + count :])]
    steps, none = dense(y.ints), (0,) * (2 * count)
    places = DType.I32 if 2 * max(prod(y.ints), prod(x.ints)) < I32_ELEMENTS else DType.I64
    b = RegionBuilder(
        x.ints, [a.steps for a in axes], [Access(y.dtype, (*steps[:2], *none))],
        [Access(x.dtype, (*dense(x.ints), *none[:count]))], range(2, 2 + 2 * count),
    )  # fmt: skip
    b.row()
    own = [b.let(b.along(2 + n), places) for n in range(count)]
    b.element()
    where, mask = as_expr(0), as_expr(True)
    for n, axis in enumerate(axes):
        window, tap, meets = axis.candidate(own[n], b.let(b.along(2 + count + n), places))
        mask = b.let(call("and", mask, meets), DType.B1)
        where = b.let(where + tap * steps[2 + n] + window * steps[2 + count + n], places)
    value = b.fetch(0, where, mask)
    total = b.reduce("sum", b.let(select(mask, value, 0.0), x.dtype))
    b.row()
    b.store(0, b.let(total, x.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]
