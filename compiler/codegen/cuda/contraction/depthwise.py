"""Depthwise convolutions and their gradients: one filter for each channel, so that nothing is summed over channels.

As a matrix product, such a convolution has one column for each group and uses almost nothing of a tile. These kernels
read each element of the image about once and are bound by memory. The gradient for the weights is a split reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
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
from dslc.compiler.codegen.cuda.cuda_cpp import Code, CodeWithArgs, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.device_model import H200, STATIC_SHARED_BYTES
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS

_SUMS_LOAD_BYTES: Final = 4  # of the gradient for the weights: a thread keeps the sums of all taps, so of few channels
_MAX_SPAN: Final = 16  # elements of a line that a thread holds in registers
_MAX_PIXELS: Final = 4
#: Registers of sums and of a line of the image, and sums of the gradient, from which a thread takes fewer channels.
#: Then it has registers to read lines ahead, and more threads run ("Depthwise" in ``benchmarks/results/ops.md``).
_MOST_HELD: Final = 48
_MOST_PAIRED: Final = 32
_NARROW_PIXELS: Final = 8  # of the gradient for the weights with one channel a thread
_MAX_SUMS: Final = 64  # sums that a thread holds in registers
_MAX_WIDTH: Final = 16  # groups of channels of a block: 256 bytes of a pixel
_SUMS_WIDTH: Final = 32
_SHARED_BYTES: Final = 40 << 10  # for weights; a block has 48 KiB without asking for more
_BANKS_BYTES: Final = 16  # of the banks of shared memory that a thread reads at once
_BUSY_THREADS: Final = 1024 * H200.multiprocessors  # threads that keep the device busy
_MOST_TOGETHER: Final = 64  # registers of the lines that such a thread reads before the products
_BUSY_BLOCKS: Final = 4 * H200.multiprocessors
_MIN_PIECES: Final = 4  # per thread of the gradient for the weights


def _narrowest(groups: int, most: int) -> int:
    """How many groups of channels a block computes if it may compute ``most``: as many blocks as then, the least
    width."""
    blocks = -(-groups // most)
    return -(-groups // blocks)


@dataclass(frozen=True)
class Depthwise(CodeWithArgs):
    """The kernel ``k(x, w, others..., y, numbers)``, or with ``back`` ``k(dy, w, others..., dx, numbers)``."""

    shape: Shape
    back: bool
    epilogue: Epilogue | None = None

    @property
    def _sides(self) -> tuple[Three, Three]:
        """The spatial sizes of the side that is written, and of the one that is read."""
        return (self.shape.image, self.shape.count) if self.back else (self.shape.count, self.shape.image)

    @property
    def _step(self) -> int:
        """A gradient's pieces begin at multiples of the stride, so that code knows their taps."""
        return self.shape.stride[2] if self.back else 1

    def _threads(self, lanes: int, pixels: int) -> int:
        s, [own, _] = self.shape, self._sides
        return s.batch * s.channels // lanes * own[0] * own[1] * -(-own[2] // pixels)

    @property
    def _load(self) -> int:
        """The channels of a load."""
        s = self.shape
        return min(LOAD_BYTES // s.dtype.itemsize, power_of_two(s.channels)) if s.last else 1

    @property
    def wide_threads(self) -> int:
        """The threads if each takes the channels of a load, and as few neighbours as possible."""
        return self._threads(self._load, self._step)

    @property
    def few(self) -> bool:
        """Whether threads of whole loads would not keep the device busy, as with one small image. Then a thread takes
        one channel, and reads lines before their products. Not if a gradient's stride leaves out lines."""
        strides = self.back and prod(self.shape.stride[:2]) > 1
        return not strides and self.wide_threads < _BUSY_THREADS

    @property
    def _wide(self) -> int:
        """The most channels per thread."""
        return 1 if self.few else self._load

    @property
    def together(self) -> int:
        """Lines of the image that a thread reads before the products."""
        s = self.shape
        lines, registers = s.taps[0] * s.taps[1], s.span(self.pixels, self.back)[1] * -(-s.dtype.itemsize // 4)
        return _narrowest(lines, max(1, _MOST_TOGETHER // registers)) if self.few else 1

    @property
    def ahead(self) -> bool:
        """Whether a thread takes half of the channels of a load, and reads lines ahead."""
        s, bytes = self.shape, self.shape.dtype.itemsize
        held = self._wide * (self.pixels + s.span(self.pixels, self.back)[1] * bytes // s.dtype.computed.itemsize)
        whole = s.dtype.is_half and self._wide * bytes == LOAD_BYTES
        return whole and prod(s.taps) <= UNROLLED_TAPS and held > _MOST_HELD

    @property
    def lanes(self) -> int:
        """Adjacent channels per thread."""
        return self._wide // 2 if self.ahead else self._wide

    @cached_property
    def pixels(self) -> int:
        """Neighbours along the last axis per thread: several if their reads overlap, fit into registers, and leave the
        device enough threads."""
        s, [own, _], found = self.shape, self._sides, self._step
        for pixels in range(2 * self._step, _MAX_PIXELS + 1, self._step):
            fits = pixels <= own[2] and s.span(pixels, self.back)[1] <= _MAX_SPAN
            if fits and self._threads(self._wide, pixels) >= _BUSY_THREADS:
                found = pixels
        return found

    @property
    def _widest(self) -> int:
        """Groups of channels whose weights fit into shared memory."""
        s = self.shape
        return min(_MAX_WIDTH, _SHARED_BYTES // (prod(s.taps) * self.lanes * s.dtype.computed.itemsize))

    @property
    def _row(self) -> int:
        """Weights of a tap in shared memory, and as many others that the taps of a channel lie in different banks."""
        s, size = self.shape, self.shape.dtype.computed.itemsize
        unit = min(self.lanes, _BANKS_BYTES // size)
        odd = (self._widest * self.lanes // unit | 1) * unit
        return odd if prod(s.taps) * odd * size <= STATIC_SHARED_BYTES else self._widest * self.lanes

    @property
    def _groups(self) -> int:
        return self.shape.channels // self.lanes if self.shape.last else 1

    @property
    def _width(self) -> int:
        return _narrowest(self._groups, self._widest) if self.shape.last else 1

    @property
    def items(self) -> int:
        """Pieces of lines that are written, of all images (with channels first, of all planes)."""
        s, [own, _] = self.shape, self._sides
        return s.batch * (1 if s.last else s.channels) * own[0] * own[1] * -(-own[2] // self.pixels)

    @property
    def possible(self) -> bool:
        """Whether the kernel can compute it: if not, a contraction does."""
        s = self.shape
        fits = self._widest >= 1 if s.last else True
        few = s.taps[2] <= MAX_TAPS and s.span(self.pixels, self.back)[1] <= MAX_TAPS
        return fits and few and self.pixels <= _MAX_SPAN and 0 < self.items < I32_PADDED_ELEMENTS

    @property
    def geometry(self) -> Geometry:
        rows = BLOCK_THREADS // self._width
        return Geometry((-(-self.items // rows), -(-self._groups // self._width), 1), (rows * self._width, 1, 1))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        s, [own, other] = self.shape, self._sides
        numbers = Numbers(ITEMS=self.items, ROWS=BLOCK_THREADS // self._width, CHANNELS=s.channels if s.last else 1)
        if s.last:
            numbers.divisor("WIDTH", self._width)
        else:
            numbers.divisor("EVERY", s.channels)
        add_axes(numbers, own, other, self.pixels)
        finished = NOTHING if self.epilogue is None else self.epilogue.text(numbers, s.dtype)
        lines = s.taps[0] * s.taps[1]
        unrolled = lines if prod(s.taps) <= UNROLLED_TAPS else 1
        text = s.head(self.lanes, self.pixels, self.back) + constants(
            ROW=self._row, UNROLLED=unrolled, AHEAD=int(self.ahead), FEW=int(self.few), TOGETHER=self.together
        )
        return Code("depthwise.cu", text + numbers.text() + finished), numbers.scalar_args


@dataclass(frozen=True)
class DepthwiseSums(Numbered):
    """The kernel ``k(x, dy, parts, numbers)``: ``count`` parts of the gradient for weights, in the dtype of sums."""

    shape: Shape

    @property
    def _wide(self) -> int:
        """The most channels per thread."""
        s = self.shape
        return min(max(1, _SUMS_LOAD_BYTES // s.dtype.itemsize), power_of_two(s.channels)) if s.last else 1

    @property
    def ahead(self) -> bool:
        """Whether a thread takes one channel instead, more neighbours, and reads lines ahead."""
        return self._wide > 1 and self._wide * prod(self.shape.taps) > _MOST_PAIRED

    @property
    def lanes(self) -> int:
        """Adjacent channels per thread."""
        return 1 if self.ahead else self._wide

    @cached_property
    def pixels(self) -> int:
        s, most = self.shape, _NARROW_PIXELS if self.ahead else _MAX_PIXELS
        fitting = [n for n in range(2, most + 1) if n <= s.count[2] and s.span(n, False)[1] <= _MAX_SPAN]
        return max(fitting, default=1)

    @property
    def _lines(self) -> int:
        """Lines of taps per thread."""
        s = self.shape
        return max(1, min(s.taps[0] * s.taps[1], _MAX_SUMS // (s.taps[2] * self.lanes)))

    @property
    def _groups(self) -> int:
        return self.shape.channels // self.lanes

    @property
    def _width(self) -> int:
        return _narrowest(self._groups, _SUMS_WIDTH) if self.shape.last else 1

    @property
    def _rows(self) -> int:
        """Threads that share the pixels of a block, a power of two, less than twice the number of pieces."""
        most = 1 << ((BLOCK_THREADS // self._width).bit_length() - 1)
        return min(most, 1 << max(0, self.items - 1).bit_length())

    @property
    def items(self) -> int:
        """Pieces of lines of dy, of all images."""
        own = self.shape.count
        return self.shape.batch * own[0] * own[1] * -(-own[2] // self.pixels)

    @property
    def possible(self) -> bool:
        """Whether the kernel can compute it: if not, a contraction does."""
        s = self.shape
        few = s.taps[2] <= MAX_TAPS and s.span(self.pixels, False)[1] <= MAX_TAPS
        return few and 0 < self.items < I32_PADDED_ELEMENTS

    @property
    def _blocks(self) -> tuple[int, int]:
        """Blocks of one part: of channels, and of lines of taps."""
        return -(-self._groups // self._width), -(-self.shape.taps[0] * self.shape.taps[1] // self._lines)

    @property
    def count(self) -> int:
        """Parts of the sum."""
        wanted = -(-_BUSY_BLOCKS // prod(self._blocks))
        return max(1, min(wanted, -(-self.items // (self._rows * _MIN_PIECES))))

    @property
    def elements(self) -> int:
        """Of one part."""
        return self.shape.channels * prod(self.shape.taps)

    @property
    def geometry(self) -> Geometry:
        across, down = self._blocks
        return Geometry((across, self.count, down), (self._rows * self._width, 1, 1))

    @property
    def numbers(self) -> Numbers:
        s = self.shape
        numbers = Numbers(ITEMS=self.items, ROWS=self._rows, CHANNELS=s.channels)
        numbers.divisor("WIDTH", self._width)
        add_axes(numbers, s.count, s.image, self.pixels)
        return numbers

    @property
    def code(self) -> Code:
        text = self.shape.head(self.lanes, self.pixels, False) + constants(LINES=self._lines, AHEAD=int(self.ahead))
        return Code("depthwise_sums.cu", text + self.numbers.text())
