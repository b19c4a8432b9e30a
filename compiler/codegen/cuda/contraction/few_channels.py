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
from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS

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


@dataclass(frozen=True, slots=True)
class Piece:
    """What a thread computes at a time: ``lanes`` adjacent ones of the many channels, at ``pixels`` neighbours along
    the last axis."""

    lanes: int
    pixels: int

    @property
    def elements(self) -> int:
        return self.lanes * self.pixels


@dataclass(frozen=True)
class Pieces(CodeWithArgs):
    """What the three kernels have in common: threads compute with pieces of one side, and load or store the places of
    the other side that convolve with them. ``back``: pieces are of the image, else of the result."""

    sides: Sides
    back: bool

    @property
    def _pieces_sizes(self) -> Three:
        """Sizes of the side that is divided into pieces; OWN in the kernels."""
        return self.sides.shape.image if self.back else self.sides.shape.count

    @property
    def _other_sizes(self) -> Three:
        """Sizes of the other side; OTHER in the kernels."""
        return self.sides.shape.count if self.back else self.sides.shape.image

    @abstractmethod
    def _registers(self, piece: Piece) -> int:
        """Elements that a thread holds in registers."""

    def _parallel_groups(self, lanes: int) -> int:
        """Groups of channels that different threads compute."""
        return self._groups(lanes)

    def _groups(self, lanes: int) -> int:
        """Groups of ``lanes`` of the many channels."""
        return -(-self.sides.shape.channels // lanes)

    @property
    def few(self) -> int:
        """Of the few channels, those of a thread."""
        return self.sides.few

    @property
    def _vector(self) -> int:
        """Elements of a load."""
        return LOAD_BYTES // self.sides.shape.dtype.itemsize

    @property
    def _most_pixels(self) -> int:
        """Neighbours per thread; with channels first, those of a load, so that a warp reads whole lines."""
        return _MAX_PIXELS if self.sides.shape.last else max(4, self._vector)

    @property
    def _widest(self) -> int:
        """The most lanes: those that fit a load and divide the channels."""
        return min(4, self._vector, power_of_two(self.sides.shape.channels))

    @property
    def _least_pixels(self) -> int:
        """Pieces of a gradient begin at multiples of the stride, so that code knows their taps."""
        return self.sides.shape.stride[2] if self.back else 1

    @cached_property
    def piece(self) -> Piece:
        """The most elements that fit into registers and leave the device enough threads; of equal ones, that with the
        most lanes."""
        best, least = Piece(1, self._least_pixels), self._least_pixels
        for lanes, pixels in product((1, 2, 4), (least, 2 * least, 4 * least, 8 * least)):
            piece = Piece(lanes, pixels)
            if piece.elements >= best.elements and self._suits(piece):
                best = piece
        return best

    def _suits(self, piece: Piece) -> bool:
        most_pixels = max(self._least_pixels, min(self._most_pixels, self._pieces_sizes[2]))
        if piece.lanes > self._widest or piece.pixels > most_pixels:
            return False
        is_busy = self._threads(piece) >= _BUSY_THREADS or piece.elements <= self._widest
        return is_busy and self._registers(piece) <= MAX_HELD

    def _threads(self, piece: Piece) -> int:
        return self._parallel_groups(piece.lanes) * self._piece_count(piece.pixels)

    def _piece_count(self, pixels: int) -> int:
        """Pieces of one group of channels, of all images."""
        return self.sides.shape.batch * prod(self._pieces_sizes[:2]) * -(-self._pieces_sizes[2] // pixels)

    @property
    def lanes(self) -> int:
        """Adjacent channels per thread."""
        return self.piece.lanes

    @property
    def pixels(self) -> int:
        """Neighbours along the last axis per thread."""
        return self.piece.pixels

    @property
    def span(self) -> int:
        """Places along the last axis that a piece reads."""
        return self.sides.shape.span(self.pixels, self.back)[1]

    @property
    def items(self) -> int:
        """Pieces of one group of channels, of all images."""
        return self._piece_count(self.pixels)

    @property
    def _most_columns(self) -> int:
        """Groups of channels of a block for which shared memory has room."""
        s = self.sides.shape
        return _WEIGHT_BYTES // (prod(s.taps) * self.sides.few * self.lanes * s.dtype.computed.itemsize)

    @property
    def width(self) -> int:
        """Groups of channels of a block, a power of two."""
        most = max(1, min(_MAX_WIDTH if self.sides.shape.last else 8, self._most_columns))
        return min(1 << (self._groups(self.lanes) - 1).bit_length(), 1 << (most.bit_length() - 1))

    @property
    def rows(self) -> int:
        """Pieces that a block computes at a time."""
        return BLOCK_THREADS // self.width

    @property
    def possible(self) -> bool:
        """Whether the kernel can compute it: if not, a contraction does."""
        can_unroll = self.sides.shape.taps[2] <= MAX_TAPS and self.span <= MAX_TAPS and self.pixels <= 2 * _MAX_PIXELS
        return can_unroll and self._most_columns >= 1 and 0 < self.items < I32_PADDED_ELEMENTS

    def _text(self, **more: int) -> tuple[str, Numbers]:
        """The constants of a kernel and its numbers."""
        s = self.sides.shape
        text = s.head(self.lanes, self.pixels, self.back) + constants(
            FEW=self.few, WIDTH=self.width, ROWS=self.rows, **self._vectors(),
            UNROLLED=s.taps[0] * s.taps[1] if prod(s.taps) <= UNROLLED_TAPS else 1, **more,
        )  # fmt: skip
        numbers = Numbers(ITEMS=self.items, CHANNELS=s.channels)
        for name, distance in zip(("W_TAP", "W_FEW", "W_MANY"), self.sides.steps, strict=True):
            numbers.add(name, distance)
        add_axes(numbers, self._pieces_sizes, self._other_sizes, self.pixels)
        return text, numbers

    def _vectors(self) -> dict[str, int]:
        """The elements of a load of the other side, by how many its first one is after a multiple of them, and the
        elements of a load of the pieces' side: as many as all lines and pieces allow."""
        s, stride = self.sides.shape, self.sides.shape.stride[2]
        lowest, _ = s.span(self.pixels, self.back)
        step = self.pixels // stride if self.back else self.pixels * stride  # of the other side, from piece to piece
        vector = gcd(self._vector, step, self._other_sizes[2])
        own_vector = gcd(self._vector, self.pixels, self._pieces_sizes[2])
        return {"VECTOR": vector, "SHIFT": lowest % vector, "OWN_VECTOR": own_vector}


@dataclass(frozen=True)
class ToFew(Pieces):
    """The kernel ``k(x, w, others..., y, numbers)`` of a result with few channels, or with ``back``
    ``k(dy, w, others..., dx, numbers)`` of an image with few."""

    epilogue: Epilogue | None = None

    def _registers(self, piece: Piece) -> int:
        return self.sides.shape.span(piece.pixels, self.back)[1] * piece.lanes + piece.pixels * self.sides.few

    def _parallel_groups(self, lanes: int) -> int:
        return min(_MAX_WIDTH, self._groups(lanes))

    @property
    def kept(self) -> int:
        """Channels whose weights are in shared memory at a time."""
        of_block = self.width * self.lanes
        return min(self._groups(of_block), max(1, self._most_columns // self.width)) * of_block

    @property
    def geometry(self) -> Geometry:
        turns = -(-self.items // self.rows)
        several = -(-turns // _MOST_BLOCKS) if self.kept >= self.sides.shape.channels else 1
        return Geometry((-(-turns // several), 1, 1), (BLOCK_THREADS, 1, 1))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        text, numbers = self._text(KEPT=self.kept)
        return _code_and_args("to_few_channels.cu", text, numbers, self.epilogue, self.sides.shape)


@dataclass(frozen=True)
class FromFew(Pieces):
    """The kernel ``k(x, w, others..., y, numbers)`` of an image with few channels, or with ``back``
    ``k(dy, w, others..., dx, numbers)`` of a result with few."""

    epilogue: Epilogue | None = None

    def _registers(self, piece: Piece) -> int:
        return self.sides.shape.span(piece.pixels, self.back)[1] * self.sides.few + piece.elements

    @property
    def geometry(self) -> Geometry:
        across = self._groups(self.width * self.lanes)
        turns = -(-self.items // self.rows)
        several = -(-turns * across // _MOST_BLOCKS)
        return Geometry((-(-turns // several), across, 1), (BLOCK_THREADS, 1, 1))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        return _code_and_args("from_few_channels.cu", *self._text(), self.epilogue, self.sides.shape)


def _code_and_args(
    file: str, text: str, numbers: Numbers, epilogue: Epilogue | None, shape: Shape
) -> tuple[Code, ScalarArgs]:
    """``epilogue`` may add numbers, so its text comes first."""
    of_epilogue = NOTHING if epilogue is None else epilogue.text(numbers, shape.dtype)
    return Code(file, text + numbers.text() + of_epilogue), numbers.scalar_args
