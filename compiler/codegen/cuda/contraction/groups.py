"""Convolutions with groups of few channels and their gradients, in 16 bits with channels last, on tensor cores.

As a matrix product, such a convolution has few columns, and reads each place of the image once for each tap. These
kernels copy what a tile of pixels reads to shared memory once. With 8 x 16 pixels and 3 x 3 taps, that is 1.4 reads of
a place instead of 9. The gradient for the weights is a split reduction. With a stride, the gradient for the image has a
kernel for each class of pixels whose indices differ by multiples of it, as they use the same taps.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import gcd, prod
from typing import Final

from dslc.compiler.codegen.cuda.contraction.epilogue import NOTHING, Epilogue
from dslc.compiler.codegen.cuda.contraction.windows import Shape
from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, CodeWithArgs, Numbers, constants
from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS

_CHUNK: Final = 8  # 16-bit channels of one copy
_CHUNK_BYTES: Final = 16
_PIXELS: Final = (128, 64)  # of a tile
_ACROSS: Final = (128, 64, 32, 16, 8, 4)
_TILE_PLACES: Final = 64  # what a tile takes in any case, in places copied
_WARPS: Final = 4
_MOST_WARPS: Final = 8
_SHARED_BYTES: Final = 64 << 10  # of a block: three of them on a multiprocessor
_MOST_CHUNKS: Final = 128  # of all taps, which code unrolls
_MOST_COLUMNS: Final = 64  # channels of a group of the side that is written
_MOST_SUMS: Final = 96  # of the gradient for weights that a thread holds in registers
_BUSY_BLOCKS: Final = 8 * H200.multiprocessors
_BUSY_SUMS: Final = 4 * H200.multiprocessors  # blocks of the gradient for weights: each has a part of its own


@dataclass(frozen=True)
class Groups:
    """``shape``: with the larger number of channels; ``into`` and ``out``: channels of a group of the image and of the
    result."""

    shape: Shape
    groups: int
    into: int
    out: int

    @property
    def possible(self) -> bool:
        """Whether the kernels know such convolutions: of up to two axes (``Shape.in_planes``) and more than one tap, in
        whole chunks."""
        s = self.shape
        plane = s.image[0] == s.count[0] == s.taps[0] == 1 and s.pad[0] == 0
        most = prod(s.taps) * max(self.into, self.out)
        chunks = self.into % _CHUNK == self.out % _CHUNK == 0 and most <= _MOST_CHUNKS * _CHUNK
        return s.last and s.dtype.is_half and self.groups > 1 and plane and chunks and prod(s.taps) > 1


@dataclass(frozen=True)
class _Axis:
    """``own`` pixels, in tiles, and ``other`` places that they read: pixel p reads for tap j at ``p * stride - low +
    j * gap``, and multiplies by the weight of tap ``first + j * by``. It is written at ``start + p * step`` of
    ``whole``."""

    own: int
    other: int
    taps: int
    stride: int
    gap: int
    low: int
    first: int
    by: int
    start: int
    step: int
    whole: int


def _forward(s: Shape, axis: int) -> _Axis:
    own = s.count[axis]
    reading = s.taps[axis], s.stride[axis], s.dilation[axis], s.pad[axis]
    return _Axis(own, s.image[axis], *reading, 0, 1, 0, 1, own)


def _backward(s: Shape, axis: int, place: int) -> _Axis:
    """Of pixels ``place``, ``place + stride``, ... of the image. Every ``stride / gcd(stride, dilation)``-th tap adds a
    place of the result to them; the one with the lowest place comes first."""
    stride, dilation, reach = s.stride[axis], s.dilation[axis], place + s.pad[axis]
    every = stride // gcd(stride, dilation)
    found = [t for t in range(s.taps[axis]) if (reach - t * dilation) % stride == 0]
    last = found[-1] if found else 0
    gap, low = every * dilation // stride, (last * dilation - reach) // stride
    own = -(-(s.image[axis] - place) // stride)
    return _Axis(own, s.count[axis], len(found), 1, gap, low, last, -every, place, stride, s.image[axis])


def _line(channels: int) -> int:
    """Bytes of a place in shared memory: an odd number of chunks."""
    return (channels // _CHUNK | 1) * _CHUNK_BYTES


@dataclass(frozen=True)
class _Tiles(CodeWithArgs):
    """What both kernels have: tiles of pixels, of each of which one or two are in shared memory at a time."""

    sides: Groups

    back = False

    @cached_property
    def _axes(self) -> tuple[_Axis, _Axis]:
        return _forward(self.sides.shape, 1), _forward(self.sides.shape, 2)

    @abstractmethod
    def _stage_bytes(self, down: int, across: int) -> int:
        """Shared memory for a tile."""

    @property
    def _kept_bytes(self) -> int:
        """Shared memory for all tiles of a block."""
        return 0

    @property
    def _into(self) -> int:
        """Channels of a group of the side that is read, with a halo."""
        return self.sides.out if self.back else self.sides.into

    @property
    def _out(self) -> int:
        return self.sides.into if self.back else self.sides.out

    @property
    def _taps(self) -> int:
        return prod(axis.taps for axis in self._axes)

    def _patch(self, down: int, across: int) -> int:
        """Places that a tile of pixels reads."""
        pixels = zip(self._axes, (down, across))
        return prod((n - 1) * axis.stride + (axis.taps - 1) * axis.gap + 1 for axis, n in pixels)

    @cached_property
    def tile(self) -> tuple[int, int]:
        """Pixels down and across: of tiles that fit, those with the fewest copies and products of all."""
        height, width = (axis.own for axis in self._axes)
        known = [(pixels // across, across) for pixels in _PIXELS for across in _ACROSS if across <= pixels]

        def places(tile: tuple[int, int]) -> tuple[bool, int]:
            each = self._patch(*tile) + prod(tile) + _TILE_PLACES
            beyond = self._kept_bytes + 2 * self._stage_bytes(*tile) > _SHARED_BYTES
            return beyond, -(-height // tile[0]) * -(-width // tile[1]) * each

        return min(known, key=places)

    def _shared_bytes(self, blocks: int) -> int:
        """Of a block, if a group has so many: with a second tile if it goes on with another one."""
        return self._kept_bytes + (2 if blocks < self.items else 1) * self._stage_bytes(*self.tile)

    @property
    def _counts(self) -> tuple[int, int]:
        """Tiles of a plane, down and across."""
        down, across = self._axes
        return -(-down.own // self.tile[0]), -(-across.own // self.tile[1])

    @property
    def items(self) -> int:
        """Tiles of all images."""
        return self.sides.shape.batch * prod(self._counts)

    def _text(self, warps: int) -> tuple[str, Numbers]:
        s, (down, across) = self.sides.shape, self.tile
        text = f"using X = {C_TYPES[s.dtype]};\nusing INDEX = {s.index};\n"
        text = f'#define MMA_TYPE "{s.dtype.value}"\n' + text
        text += constants(INTO=self._into, OUT=self._out, DOWN=down, ACROSS=across, WARPS=warps, BACK=int(self.back))
        for n, axis in enumerate(self._axes, 1):
            reading = {"TAPS": axis.taps, "STRIDE": axis.stride, "GAP": axis.gap, "LOW": axis.low}
            reading |= {"EVERY": s.taps[n], "FIRST": axis.first, "BY": axis.by}
            text += constants(**{f"{name}{n}": value for name, value in reading.items()})
        numbers = Numbers(ITEMS=self.items, READ=self._into * self.sides.groups, WRITTEN=self._out * self.sides.groups)
        for name, count in zip(("LINES", "COLUMNS"), self._counts):
            numbers.divisor(name, count)
        for n, axis in enumerate(self._axes, 1):
            for name in ("own", "other", "start", "step", "whole"):
                numbers.add(f"{name.upper()}{n}", getattr(axis, name))
        return text, numbers


@dataclass(frozen=True)
class GroupedConvolution(_Tiles):
    """The kernel ``k(x, w, others..., y, numbers)``, or ``k(dy, w, others..., dx, numbers)`` for the pixels of a
    ``place`` of each axis: those whose indices differ from it by multiples of the stride."""

    place: tuple[int, int] | None = None
    epilogue: Epilogue | None = None

    @property
    def back(self) -> bool:  # type: ignore[override]
        return self.place is not None

    @cached_property
    def _axes(self) -> tuple[_Axis, _Axis]:
        if self.place is None:
            return super()._axes
        return _backward(self.sides.shape, 1, self.place[0]), _backward(self.sides.shape, 2, self.place[1])

    @property
    def _blocks(self) -> int:
        """Of each group."""
        return min(self.items, -(-_BUSY_BLOCKS // self.sides.groups))

    @property
    def _kept_bytes(self) -> int:
        deep = self._taps * self._into
        return _CHUNK_BYTES + (deep * _line(self._out) if self.back else self._out * _line(deep))

    def _stage_bytes(self, down: int, across: int) -> int:
        return self._patch(down, across) * _line(self._into)

    @property
    def possible(self) -> bool:
        """Whether the kernel can compute it: if not, a contraction does."""
        known = self.sides.possible and self._out <= _MOST_COLUMNS and self._taps > 0
        fits = known and self._shared_bytes(self._blocks) <= _SHARED_BYTES
        return fits and 0 < self.items < I32_PADDED_ELEMENTS

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.sides.groups, self._blocks, 1), (_WARPS * WARP, 1, 1), self._shared_bytes(self._blocks))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        text, numbers = self._text(_WARPS)
        finished = NOTHING if self.epilogue is None else self.epilogue.text(numbers, self.sides.shape.dtype)
        return Code("groups.cu", text + numbers.text() + finished), numbers.scalar_args


def back_to_image(sides: Groups) -> tuple[GroupedConvolution, ...]:
    """The kernels of the gradient for the image, one for each class of pixels; none if one of them is impossible."""
    s = sides.shape
    places = product(range(min(s.stride[1], s.image[1])), range(min(s.stride[2], s.image[2])))
    found = tuple(GroupedConvolution(sides, place) for place in places)
    return found if all(spec.possible for spec in found) else ()


@dataclass(frozen=True)
class GroupedSums(_Tiles):
    """The kernel ``k(x, dy, parts, numbers)``: ``count`` parts of the gradient for weights, in f32."""

    @property
    def _warps(self) -> int:
        return _WARPS if self._sums(_WARPS) <= _MOST_SUMS else _MOST_WARPS

    def _sums(self, warps: int) -> int:
        """Of a thread."""
        chunks = self._taps * self._into // _CHUNK
        return -(-self._out // 16) * -(-chunks // (2 * warps)) * 8

    @property
    def count(self) -> int:
        """Parts of the sum."""
        return min(self.items, -(-_BUSY_SUMS // self.sides.groups))

    @property
    def elements(self) -> int:
        """Of one part."""
        return self.sides.groups * self._out * self._into * self._taps

    def _stage_bytes(self, down: int, across: int) -> int:
        return self._patch(down, across) * _line(self._into) + down * across * _line(self._out)

    @property
    def possible(self) -> bool:
        """Whether the kernel can compute it: if not, a contraction does."""
        fits = self._shared_bytes(self.count) <= _SHARED_BYTES and self._sums(_MOST_WARPS) <= _MOST_SUMS
        return self.sides.possible and fits and 0 < self.items < I32_PADDED_ELEMENTS

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.sides.groups, self.count, 1), (self._warps * WARP, 1, 1), self._shared_bytes(self.count))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        text, numbers = self._text(self._warps)
        numbers.add("ELEMENTS", self.elements)
        return Code("groups_sums.cu", text + numbers.text()), numbers.scalar_args
