"""Convolutions between few channels and many, and their gradients: the first and last layers of images and of sound.

As a matrix product, such a convolution has a side of a few rows or columns, and uses almost nothing of a tile. These
kernels read or write each element of the side with many channels about once. The gradient for the weights is a split
reduction.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import gcd, prod
from typing import Final

from dslc.compiler.codegen.cuda.contraction.epilogue import NOTHING, Epilogue
from dslc.compiler.codegen.cuda.contraction.windows import (
    BLOCK_THREADS,
    MAX_TAPS,
    UNROLLED_TAPS,
    Shape,
    Three,
    add_axes,
)
from dslc.compiler.codegen.cuda.cuda_cpp import Code, CodeWithArgs, Numbers, constants
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS

_VECTOR_BYTES: Final = 16  # of a load
_MAX_PIXELS: Final = 8
MAX_HELD: Final = 96  # elements of the other side that a thread holds in registers
_MAX_WIDTH: Final = 16  # groups of channels of a block
_WEIGHT_BYTES: Final = 28 << 10  # of shared memory for weights, next to sums; a block has 48 KiB
_BUSY_THREADS: Final = 384 * H200.multiprocessors  # threads that keep the device busy
_MOST_BLOCKS: Final = 4 * H200.multiprocessors  # that load weights; each goes on with further pieces


@dataclass(frozen=True)
class Sides:
    """``shape.channels`` are the many; ``of_image``: the image has the ``few``, else the result of the convolution.
    ``steps``: the distances of weights, or of their gradients: of neighbouring taps, few channels and many channels."""

    shape: Shape
    few: int
    of_image: bool
    steps: Three


@dataclass(frozen=True)
class Pieces(CodeWithArgs):
    """What the three kernels have in common: a thread computes with pieces of ``pixels`` neighbours of one side and
    ``lanes`` of the many channels. ``back``: the side is the image, else the result."""

    sides: Sides
    back: bool

    @property
    def _own(self) -> Three:
        return self.sides.shape.image if self.back else self.sides.shape.count

    @property
    def _other(self) -> Three:
        return self.sides.shape.count if self.back else self.sides.shape.image

    @abstractmethod
    def _room(self, pixels: int, lanes: int) -> int:
        """Elements that a thread holds in registers."""

    def _at_once(self, lanes: int) -> int:
        """Groups of channels that threads compute at once."""
        return -(-self.sides.shape.channels // lanes)

    @property
    def few(self) -> int:
        """Of the few channels, those of a thread."""
        return self.sides.few

    @property
    def _vector(self) -> int:
        """Elements of a load."""
        return _VECTOR_BYTES // self.sides.shape.dtype.itemsize

    @property
    def _most_pixels(self) -> int:
        """Neighbours per thread; with channels first, those of a load, so that a warp reads whole lines."""
        return _MAX_PIXELS if self.sides.shape.last else max(4, self._vector)

    @cached_property
    def _block(self) -> tuple[int, int]:
        """Lanes and pixels: the most elements of the many channels that fit into registers and leave the device enough
        threads. Pieces of a gradient begin at multiples of the stride, so that code knows their taps."""
        s = self.sides.shape
        step = s.stride[2] if self.back else 1
        widest, most = min(4, self._vector, power_of_two(s.channels)), self._most_pixels
        found = (1, step)
        for lanes, pixels in product((1, 2, 4), (step, 2 * step, 4 * step, 8 * step)):
            if lanes > widest or pixels > max(step, min(most, self._own[2])):
                continue
            threads = s.batch * self._at_once(lanes) * prod(self._own[:2]) * -(-self._own[2] // pixels)
            busy = threads >= _BUSY_THREADS or lanes * pixels <= widest
            if busy and self._room(pixels, lanes) <= MAX_HELD and lanes * pixels >= prod(found):
                found = (lanes, pixels)
        return found

    @property
    def lanes(self) -> int:
        """Adjacent channels per thread."""
        return self._block[0]

    @property
    def pixels(self) -> int:
        """Neighbours along the last axis per thread."""
        return self._block[1]

    @property
    def span(self) -> int:
        """Places along the last axis that a piece reads."""
        return self.sides.shape.span(self.pixels, self.back)[1]

    @property
    def items(self) -> int:
        """Pieces, of all images."""
        return self.sides.shape.batch * prod(self._own[:2]) * -(-self._own[2] // self.pixels)

    @property
    def _most_columns(self) -> int:
        """Groups of channels of a block for which shared memory has room."""
        s = self.sides.shape
        return _WEIGHT_BYTES // (prod(s.taps) * self.sides.few * self.lanes * s.dtype.computed.itemsize)

    @property
    def width(self) -> int:
        """Groups of channels of a block, a power of two."""
        groups = -(-self.sides.shape.channels // self.lanes)
        most = max(1, min(_MAX_WIDTH if self.sides.shape.last else 8, self._most_columns))
        return min(1 << (groups - 1).bit_length(), 1 << (most.bit_length() - 1))

    @property
    def rows(self) -> int:
        """Pieces that a block computes at a time."""
        return BLOCK_THREADS // self.width

    @property
    def possible(self) -> bool:
        """Whether the kernel can compute it: if not, a contraction does."""
        s = self.sides.shape
        few = s.taps[2] <= MAX_TAPS and self.span <= MAX_TAPS and self.pixels <= 2 * _MAX_PIXELS
        return few and self._most_columns >= 1 and 0 < self.items < I32_PADDED_ELEMENTS

    def _text(self, **more: int) -> tuple[str, Numbers]:
        """The constants of a kernel and its numbers."""
        s, other, own = self.sides.shape, self._other, self._own
        lowest, _ = s.span(self.pixels, self.back)
        step = self.pixels // s.stride[2] if self.back else self.pixels * s.stride[2]
        vector = self._vector
        across = gcd(vector, step, other[2])
        lines = s.taps[0] * s.taps[1]
        text = s.head(self.lanes, self.pixels, self.back)
        text += constants(
            FEW=self.few, WIDTH=self.width, ROWS=self.rows, VECTOR=across, SHIFT=lowest % across,
            OWN_VECTOR=gcd(vector, self.pixels, own[2]), UNROLLED=lines if prod(s.taps) <= UNROLLED_TAPS else 1, **more,
        )  # fmt: skip
        numbers = Numbers(ITEMS=self.items, CHANNELS=s.channels)
        for name, distance in zip(("W_TAP", "W_FEW", "W_MANY"), self.sides.steps, strict=True):
            numbers.add(name, distance)
        add_axes(numbers, own, other, self.pixels)
        return text, numbers


@dataclass(frozen=True)
class ToFew(Pieces):
    """The kernel ``k(x, w, others..., y, numbers)`` of a result with few channels, or with ``back``
    ``k(dy, w, others..., dx, numbers)`` of an image with few."""

    epilogue: Epilogue | None = None

    def _room(self, pixels: int, lanes: int) -> int:
        return self.sides.shape.span(pixels, self.back)[1] * lanes + pixels * self.sides.few

    def _at_once(self, lanes: int) -> int:
        return min(_MAX_WIDTH, super()._at_once(lanes))

    @property
    def kept(self) -> int:
        """Channels whose weights are in shared memory at a time."""
        turn = self.width * self.lanes
        return min(-(-self.sides.shape.channels // turn), max(1, self._most_columns // self.width)) * turn

    @property
    def geometry(self) -> Geometry:
        turns = -(-self.items // self.rows)
        several = -(-turns // _MOST_BLOCKS) if self.kept >= self.sides.shape.channels else 1
        return Geometry((-(-turns // several), 1, 1), (BLOCK_THREADS, 1, 1))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        text, numbers = self._text(KEPT=self.kept)
        return _finished("to_few_channels.cu", text, numbers, self.epilogue, self.sides.shape)


@dataclass(frozen=True)
class FromFew(Pieces):
    """The kernel ``k(x, w, others..., y, numbers)`` of an image with few channels, or with ``back``
    ``k(dy, w, others..., dx, numbers)`` of a result with few."""

    epilogue: Epilogue | None = None

    def _room(self, pixels: int, lanes: int) -> int:
        return self.sides.shape.span(pixels, self.back)[1] * self.sides.few + pixels * lanes

    @property
    def geometry(self) -> Geometry:
        across = -(-self.sides.shape.channels // (self.width * self.lanes))
        turns = -(-self.items // self.rows)
        several = -(-turns * across // _MOST_BLOCKS)
        return Geometry((-(-turns // several), across, 1), (BLOCK_THREADS, 1, 1))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        return _finished("from_few_channels.cu", *self._text(), self.epilogue, self.sides.shape)


def _finished(
    file: str, text: str, numbers: Numbers, epilogue: Epilogue | None, shape: Shape
) -> tuple[Code, ScalarArgs]:
    finished = NOTHING if epilogue is None else epilogue.text(numbers, shape.dtype)
    return Code(file, text + numbers.text() + finished), numbers.scalar_args
