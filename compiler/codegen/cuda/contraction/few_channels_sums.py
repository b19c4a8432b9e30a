"""The gradient for the weights of convolutions of few channels: a split reduction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.contraction.few_channels import MAX_HELD, Piece, Pieces
from dslc.compiler.codegen.cuda.contraction.windows import BLOCK_THREADS
from dslc.compiler.codegen.cuda.cuda_cpp import Code
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ops.spatial.few_channels import MOST

_MAX_SUMS: Final = 64  # sums that a thread holds in registers
_MAX_READ: Final = 64  # elements of a run of the few channels that a thread reads for its neighbours
_MAX_RUN: Final = 8  # of the few channels
_HELD_BYTES: Final = 32 << 10  # of shared memory for the sums of a block's warps
_BUSY_BLOCKS: Final = 2 * H200.multiprocessors
_FUSED_PER_CYCLE: Final = 128  # multiply-adds of a multiprocessor in f32
_CLOCK: Final = H200.scalar / (2 * _FUSED_PER_CYCLE * H200.multiprocessors)  # cycles per second
_START: Final = 5e-6  # seconds of a gradient for weights without work
_WAITING: Final = 1.7  # its time by that of its loads and multiply-adds
_MIN_PIECES: Final = 4  # per thread of the gradient for the weights


@dataclass(frozen=True)
class FewSums(Pieces):
    """The kernel ``k(many, few, parts, numbers)``: ``count`` parts of the gradient for weights, in the dtype of sums.
    ``back``: the image has the many channels, else the gradient of the result. If the few are more than a thread can
    hold the sums of, it takes a run of them; the last run ends with the last channel."""

    @property
    def few(self) -> int:
        """Of the few channels, those of a thread: all up to ``MOST``, else runs of about one length, as long as there
        is room for the sums of four of the many, and for what its neighbours read."""
        s, all_few = self.sides.shape, self.sides.few
        if all_few <= MOST:
            return all_few
        most = min(_MAX_SUMS // (4 * s.taps[2]), _MAX_READ // s.span(self._most_pixels, self.back)[1], _MAX_RUN)
        runs = -(-all_few // max(1, most))
        return -(-all_few // runs)

    @property
    def runs(self) -> int:
        """Of the few channels."""
        return -(-self.sides.few // self.few)

    def _parallel_groups(self, lanes: int) -> int:
        return self._groups(lanes) * self.runs

    def _registers(self, piece: Piece) -> int:
        s = self.sides.shape
        if s.taps[2] * self.few * piece.lanes > _MAX_SUMS:
            return MAX_HELD + 1  # the sums alone are too many
        return s.span(piece.pixels, self.back)[1] * self.few + piece.elements

    @property
    def _sums(self) -> int:
        """Sums of a line of taps."""
        return self.sides.shape.taps[2] * self.few * self.lanes

    @property
    def _most_columns(self) -> int:
        warps = BLOCK_THREADS // 32 if self.sides.shape.last else 1
        return _HELD_BYTES // (warps * self._sums * self.sides.shape.dtype.computed.itemsize)

    @property
    def lines(self) -> int:
        """Lines of taps per thread."""
        s = self.sides.shape
        return max(1, min(s.taps[0] * s.taps[1], _MAX_SUMS // self._sums))

    @property
    def possible(self) -> bool:
        can_take_runs = self.runs == 1 or not self.sides.shape.last
        return can_take_runs and super().possible and self._sums <= 2 * _MAX_SUMS

    @property
    def _blocks(self) -> tuple[int, int]:
        """Blocks of one part: of the many channels, and of lines of taps and runs of the few."""
        s = self.sides.shape
        return self._groups(self.width * self.lanes), -(-s.taps[0] * s.taps[1] // self.lines) * self.runs

    @property
    def count(self) -> int:
        """Parts of the sum."""
        wanted = -(-_BUSY_BLOCKS // prod(self._blocks))
        return max(1, min(wanted, -(-self.items // (self.rows * _MIN_PIECES))))

    @property
    def seconds(self) -> float:
        """Modelled time, with the launch that adds the parts: of a warp's loads from the nearest cache, and of its
        multiply-adds. A line that a stride leaves gaps in takes the time of all that it spans. The factor is the median
        of 33 gradients ("Weight gradients" in ``benchmarks/results/ops.md``), all within 0.6 and 1.5 of it."""
        s, step = self.sides.shape, self.sides.shape.stride[2]
        products = self.lines * s.taps[2] * self.few * self.pixels * self.lanes / (step if self.back else 1)
        read = self.lines * self.few * -(-self.span // self._vector) * self._vector * (1 if self.back else step)
        cycles = self.pixels * self.lanes + read + products * 32 / _FUSED_PER_CYCLE
        warps = self.items * self._groups(self.lanes) * self.geometry.grid[2] / 32
        return _START + _WAITING * warps * cycles / (H200.multiprocessors * _CLOCK)

    @property
    def elements(self) -> int:
        """Of one part."""
        return self.sides.shape.channels * self.sides.few * prod(self.sides.shape.taps)

    @property
    def geometry(self) -> Geometry:
        across, down = self._blocks
        return Geometry((across, self.count, down), (BLOCK_THREADS, 1, 1))

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        text, numbers = self._text(LINES=self.lines, EVERY=self.sides.few, RUNS=self.runs)
        numbers.add("WEIGHTS", self.elements)
        return Code("few_channels_sums.cu", text + numbers.text()), numbers.scalar_args
