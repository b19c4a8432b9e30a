"""First layers of vision and sound: convolutions of an image of few channels on tensor cores, in 16 bits or in TF32.

Channels are last. If three colours were filled up to a run of 8 channels, 5 of 8 products would be with zeros, and the
image would be written once more. Here the sum runs over chunks of neighbouring taps with their channels
(``packed_taps.cuh``): implicit im2col (Chetlur et al. 2014, arXiv:1410.0759) whose rows overlap in shared memory. Of
16-bit elements a chunk has 8; of f32 elements, which are rounded to TF32 on the way, 4.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Final

from dslc.compiler.codegen.cuda.contraction.epilogue import NOTHING, Epilogue
from dslc.compiler.codegen.cuda.contraction.windows import Shape
from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, CodeWithArgs, Numbers, constants
from dslc.compiler.codegen.cuda.hardware import BLOCK_SHARED_BYTES
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.spatial.few_channels import RUN, RUN_BYTES, TILE_BYTES, run_elements, taps_of_run

_BANKS: Final = 8  # chunks of different banks
_MULTIPROCESSORS: Final = H200.multiprocessors
_RESERVED: Final = 1 << 10  # bytes of shared memory that each block costs in addition (CUDA C++ Programming Guide)
_PLACES: Final = 128  # of the result, that a block computes at a time
_MMA: Final = 16  # rows of a tensor core
_MAX_COLS: Final = 64  # of the many channels, of a block
_MAX_EIGHTS: Final = 7  # times 8 elements of chunks, whose sums a warp holds for 32 channels: 56 registers
_WARPS: Final = 8  # of a block of the gradient, if its sums need no more
_MAX_ALONG: Final = 4  # warps of a block along chunks


@dataclass(frozen=True)
class PackedTaps(CodeWithArgs):
    """What both kernels have in common. ``shape.channels`` are the many, a multiple of 8; ``few``: up to 4. Taps
    are neighbours: no axis has a dilation."""

    shape: Shape
    few: int

    @property
    def run(self) -> int:
        """Elements of a chunk."""
        return run_elements(self.shape.dtype)

    @property
    def pair(self) -> int:
        """Taps of a chunk."""
        return taps_of_run(self.few, self.run)

    @property
    def copies(self) -> int:
        """Of a tile of the image, so that each window begins at a chunk of one of them."""
        return self.pair // gcd(self.shape.stride[2], self.pair)

    @property
    def phases(self) -> int:
        """Chunks from a window to the next one: as many parts has a line of the tile, so that windows side by side are
        in different banks. With copies, it has one."""
        return self.shape.stride[2] // self.pair if self.copies == 1 else 1

    @property
    def chunks(self) -> int:
        """Of a window."""
        taps = self.shape.taps
        return taps[0] * taps[1] * -(-taps[2] // self.pair)

    @cached_property
    def _tile(self) -> tuple[int, int]:
        """Lines and places of a line that a block computes: of the tiles whose image has room, the one with the fewest
        places outside of the result, and then the smallest image."""
        s = self.shape

        def cost(wide: int) -> tuple[bool, int, int]:
            tall = _PLACES // wide
            tiles, bytes = -(-s.count[1] // tall) * -(-s.count[2] // wide), self._bytes_of(tall, wide)
            return bytes > TILE_BYTES, tiles, bytes

        wide = min((_MMA << n for n in range((_PLACES // _MMA).bit_length())), key=cost)
        return _PLACES // wide, wide

    def _line_of(self, wide: int) -> int:
        """Chunks of a line of a copy: whole phases; with several copies, so many that windows side by side are in
        different banks."""
        last = (wide - 1) * self.shape.stride[2] // self.pair + -(-self.shape.taps[2] // self.pair)
        if self.copies == 1:
            return -(-last // self.phases) * self.phases
        apart = _BANKS // self.copies
        return last + (apart - last) % (2 * apart)

    def _bytes_of(self, tall: int, wide: int) -> int:
        """Of the image that a tile reads."""
        s = self.shape
        lines = s.taps[0] * ((tall - 1) * s.stride[1] + s.taps[1])
        return lines * self.copies * self._line_of(wide) * RUN_BYTES

    @property
    def _image_bytes(self) -> int:
        return self._bytes_of(*self._tile)

    @property
    def _most_cols(self) -> int:
        return _MAX_COLS

    @property
    def cols(self) -> int:
        """The many channels of a block, a multiple of 16."""
        every = self.shape.channels
        return -(-every // (-(-every // self._most_cols) * _MMA)) * _MMA

    @property
    def _columns(self) -> int:
        return -(-self.shape.channels // self.cols)

    @property
    def _tiles(self) -> int:
        s, (tall, wide) = self.shape, self._tile
        return s.batch * s.count[0] * -(-s.count[1] // tall) * -(-s.count[2] // wide)

    @property
    @abstractmethod
    def _threads(self) -> int:
        """Of a block."""

    @property
    @abstractmethod
    def _most_threads(self) -> int:
        """Of a multiprocessor: as many as the registers suffice for."""

    @property
    @abstractmethod
    def _shared(self) -> int:
        """Bytes of a block."""

    @property
    def _resident(self) -> int:
        """Blocks that a multiprocessor runs at a time."""
        return max(1, min(self._most_threads // self._threads, H200.shared_bytes // (self._shared + _RESERVED)))

    def _blocks(self, across: int) -> int:
        """Blocks along the tiles, each of which goes on with further ones: as many as the device runs at a time with
        ``across`` blocks for each."""
        return min(self._tiles, max(1, _MULTIPROCESSORS * self._resident // across))

    @property
    def possible(self) -> bool:
        """Whether the kernel can compute it: if not, tiles do."""
        return self._shared <= BLOCK_SHARED_BYTES and 0 < self._tiles < I32_PADDED_ELEMENTS

    def _text(self, **more: int) -> tuple[str, Numbers]:
        """The constants of a kernel and its numbers."""
        s, (tall, wide) = self.shape, self._tile
        axes = {"TAPS": s.taps, "STRIDE": s.stride, "EDGE": s.pad}
        text = f'#define MMA_TYPE "{s.dtype}"\n' if s.dtype.is_half else ""
        text += f"using X = {C_TYPES[s.dtype]};\nusing INDEX = {s.index};\n"
        text += "".join(
            f"__device__ constexpr int {name}[3] = {{{', '.join(map(str, each))}}};\n" for name, each in axes.items()
        )
        text += constants(
            FEW=self.few, STORED=self.run // self.pair, COPIES=self.copies, PHASES=self.phases,
            TALL=tall, WIDE=wide, LINE=self._line_of(wide), COLS=self.cols, THREADS=self._threads,
            RESIDENT=self._resident, **more,
        )  # fmt: skip
        numbers = Numbers(TILES=self._tiles, CHANNELS=s.channels)
        numbers.divisor("ACROSS", -(-s.count[2] // wide))
        numbers.divisor("DOWN", -(-s.count[1] // tall))
        numbers.divisor("OWN0", s.count[0])
        numbers.add("OWN1", s.count[1])
        numbers.add("OWN2", s.count[2])
        for axis, size in enumerate(s.image):
            numbers.add(f"OTHER{axis}", size)
        return text, numbers


@dataclass(frozen=True)
class PackedConv(PackedTaps):
    """The kernel ``k(x, w, others..., y, numbers)`` of the convolution; ``epilogue``: applied to the sums and the
    others."""

    epilogue: Epilogue | None = None

    @property
    def _most_cols(self) -> int:
        """As many as there is room for the weights of."""
        room = BLOCK_SHARED_BYTES - self._image_bytes
        return max(_MMA, min(_MAX_COLS, room // self._weight_bytes // _MMA * _MMA))

    @property
    def _threads(self) -> int:
        return _PLACES

    @property
    def _most_threads(self) -> int:
        return 3 * _PLACES  # of four blocks, threads spill registers and are slower on an H200

    @property
    def _weight_bytes(self) -> int:
        """Of one of the many channels."""
        return (self.chunks + self.chunks % 2) * RUN_BYTES

    @property
    def _shared(self) -> int:
        return self._image_bytes + self._weight_bytes * self.cols

    @property
    def geometry(self) -> Geometry:
        return Geometry((self._blocks(self._columns), self._columns, 1), (self._threads, 1, 1), self._shared)

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        text, numbers = self._text()
        finished = NOTHING if self.epilogue is None else self.epilogue.text(numbers, self.shape.dtype)
        return Code("packed_taps.cu", text + numbers.text() + finished), numbers.scalar_args


@dataclass(frozen=True)
class PackedSums(PackedTaps):
    """The kernel ``k(x, dy, parts, numbers)``: ``count`` parts of the gradient for weights, in f32."""

    @property
    def _deep(self) -> int:
        """Channels of a warp."""
        return 2 * _MMA if self.cols % (2 * _MMA) == 0 else _MMA

    @property
    def phases(self) -> int:
        """Floats come one by one, from four windows and eight neighbours: in one part, these are in different banks."""
        return 1 if self.run < RUN else super().phases

    @property
    def _most_cols(self) -> int:
        """As many as there is room for the result's gradient of, twice."""
        room = BLOCK_SHARED_BYTES // 2 - self._image_bytes
        most = room // (_PLACES * self.shape.dtype.itemsize) - RUN
        return max(_MMA, min(_MAX_COLS, most // _MMA * _MMA))

    @property
    def _eights(self) -> int:
        """Of the elements of a window's chunks: columns of a tensor core."""
        return -(-self.chunks * self.run // RUN)

    @property
    def _slices(self) -> int:
        """Blocks that share the chunks of a window."""
        return -(-self._eights // (_MAX_EIGHTS * _MAX_ALONG))

    @property
    def _warps(self) -> tuple[int, int, int]:
        """Warps of a block along channels, along chunks, and that share the places."""
        m, n = self.cols // self._deep, -(-self._eights // (_MAX_EIGHTS * self._slices))
        k = 1 << (max(1, _WARPS // (m * n)).bit_length() - 1)
        return m, n, k

    @property
    def _threads(self) -> int:
        return 32 * prod(self._warps)

    @property
    def _most_threads(self) -> int:
        return 2 * 32 * _WARPS

    @property
    def _of_warp(self) -> int:
        """Of the eights of a window, those of a warp."""
        return -(-self._eights // (self._slices * self._warps[1]))

    @property
    def _shared(self) -> int:
        stage = self._image_bytes + _PLACES * (self.cols + RUN) * self.shape.dtype.itemsize
        _, n, k = self._warps
        together = self.cols * n * self._of_warp * RUN * DType.F32.itemsize if k > 1 else 0
        return max(2 * stage, together)

    @property
    def count(self) -> int:
        """Parts of the sum."""
        return self._blocks(self._columns * self._slices)

    @property
    def elements(self) -> int:
        """Of one part."""
        return self.shape.channels * self.few * prod(self.shape.taps)

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.count, self._columns, self._slices), (self._threads, 1, 1), self._shared)

    @cached_property
    def _code_and_args(self) -> tuple[Code, ScalarArgs]:
        m, n, k = self._warps
        text, numbers = self._text(DEEP=self._deep, WARPS_M=m, WARPS_N=n, WARPS_K=k, EIGHTS=self._of_warp)
        numbers.add("WEIGHTS", self.elements)
        return Code("packed_taps_sums.cu", text + numbers.text()), numbers.scalar_args
