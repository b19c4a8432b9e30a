"""Axes of a region, cut into pieces along which other tensors have strides, too.

An op may have merged axes that an operand next to it does not have. For example, a softmax over the last axis of
[8, 4, 10] has rows of one axis of 32; a mask [8, 1, 10] that is added before has no stride along it. Cut into 8 and 4,
the mask has the strides 10 and 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Columns
from dslc.compiler.codegen.region.collapse import merged_axes
from dslc.compiler.codegen.region.ir import Access, MixedRadix, Region, all_strides, broadcast_strides
from dslc.compiler.ir.graph import Value

#: Sizes of the pieces of an axis, outermost first, and a tensor's stride along each.
_Pieces: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


class AxisPieces:
    """The outer axes of a region and the pieces into which they are cut; at first each axis is one piece.

    An operand is a tensor that is broadcast to the shape of a ``value`` which the region accesses.
    """

    def __init__(self, region: Region) -> None:
        self._region = region
        self._cuts: list[tuple[int, ...]] = [(size,) for size in region.outer]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The outer axes after the cuts."""
        return tuple(size for cut in self._cuts for size in cut)

    def axis(self, old: int) -> int:
        """The new number of an axis of the region, outer or inner; of several pieces, the first one's."""
        cuts = self._cuts[:old]
        return sum(map(len, cuts)) + max(0, old - len(self._cuts))

    def cut_for(self, value: Value, access: Access, operand: Value) -> None:
        """Cuts the axes along which an operand has no single stride. Raises Unfit."""
        own = _operand_strides(operand, value)
        for axis, (size, stride) in enumerate(zip(self._region.outer, access.strides)):
            sizes, strides = _pieces_of(size, stride, value.type.ints, own)
            if len(merged_axes(sizes, strides)[0]) > 1:
                columns = axis == len(self._cuts) - 1 and isinstance(schedule(self._region), Columns)
                if self._cuts[axis] not in ((size,), sizes) or self._region.indices or columns:
                    raise Unfit("the operands of its neighbours have other axes")
                self._cuts[axis] = sizes

    def strides(self, strides: Sequence[int]) -> tuple[int, ...]:
        """Strides over the axes of the region, over the pieces instead."""
        cut = [stride * step for stride, cut in zip(strides, self._cuts) for step in all_strides(cut)]
        return (*cut, *strides[len(self._cuts) :])

    def access(self, access: Access) -> Access:
        """An access of the region, over the pieces. Raises Unfit."""
        if all(len(cut) == 1 for cut in self._cuts):
            return access
        if access.mixed_radix or access.repeat > 1:
            raise Unfit("its input has mixed axes")
        return replace(access, strides=self.strides(access.strides))

    def operand_access(self, access: Access, value: Value, operand: Value) -> Access:
        """The access to an operand, where the region accesses the value. Raises Unfit."""
        dtype, shape = operand.type.dtype, value.type.ints
        if access.bits:
            raise Unfit("its input is packed")
        if operand.type.ints == shape:
            return replace(self.access(access), dtype=dtype)
        if access.mixed_radix or access.repeat > 1:
            raise Unfit("its input has mixed axes")
        own, rest, offset = _operand_strides(operand, value), access.offset, 0
        for step, stride in zip(all_strides(shape), own):
            offset += rest // step * stride
            rest %= step
        strides: list[int] = []
        for cut, stride, size in zip(self._cuts, access.strides, self._region.outer):
            pieces = _pieces_of(size, stride, shape, own)
            sizes, steps = merged_axes(*pieces)
            strides += [steps[0] * each for each in all_strides(cut)] if len(sizes) == 1 else pieces[1]
        mixed: list[MixedRadix] = []
        axes = len(strides) + len(self._region.inner)
        for size, stride in zip(self._region.inner, access.strides[len(self._region.outer) :]):
            sizes, steps = merged_axes(*_pieces_of(size, stride, shape, own))
            if len(sizes) > 1:
                one = tuple(int(axis == len(strides)) for axis in range(axes))
                mixed.append(MixedRadix(one, sizes, steps))
            strides.append(steps[0] if len(sizes) == 1 else 0)
        return Access(dtype, tuple(strides), offset, mixed_radix=tuple(mixed))


def _operand_strides(operand: Value, value: Value) -> tuple[int, ...]:
    return broadcast_strides(operand.type.ints, value.type.ints)


def _pieces_of(size: int, stride: int, shape: Sequence[int], own: Sequence[int]) -> _Pieces:
    """An axis of ``size`` elements of a dense tensor of this shape, ``stride`` apart, as axes of the tensor: their
    sizes, and the strides ``own`` of an operand along them. Raises Unfit."""
    steps = all_strides(shape)
    if size == 1 or stride == 0:
        return (size,), (0,)
    sizes: list[int] = []
    strides: list[int] = []
    left = size
    while left > 1:
        possible = [axis for axis, (n, step) in enumerate(zip(shape, steps)) if n > 1 and stride % step == 0]
        axis = max(possible, key=lambda axis: steps[axis] if steps[axis] <= stride else -1)
        times = stride // steps[axis]
        if times * (left - 1) < shape[axis]:
            count = left
        elif times == 1 and left % shape[axis] == 0:
            count = shape[axis]
        else:
            raise Unfit("its axes are not those of the tensor")
        sizes.insert(0, count)
        strides.insert(0, times * own[axis])
        left //= count
        stride = steps[axis] * shape[axis]
    return tuple(sizes), tuple(strides)
