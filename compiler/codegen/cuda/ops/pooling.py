"""Pooling kernels: maxpool, avgpool and their gradients, over up to three spatial axes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, Literal

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.spatial.channels_last import first_type

Mode = Literal["max", "max_grad", "mean", "mean_grad"]
_MODES: Final[tuple[Mode, ...]] = ("max", "max_grad", "mean", "mean_grad")  # in the order of pool.cu
_BLOCK_THREADS: Final = 256
_FEW_THREADS: Final = 512 * H200.multiprocessors  # with more, others work while one waits for memory
_MOST_AHEAD: Final = 256  # bytes of a window that a thread holds in registers

Three = tuple[int, int, int]


@dataclass(frozen=True)
class Pool(Numbered):
    """``image`` and ``count``: sizes of the spatial axes of the larger and the smaller side, with ``planes`` planes
    each.

    With channels first, ``channels`` is 1 and a plane is one channel of an image; with channels last, a plane is an
    image.
    """

    mode: Mode
    dtype: DType
    place: DType
    planes: int
    channels: int
    image: Three
    count: Three
    taps: Three
    stride: Three
    pad: Three

    @property
    def back(self) -> bool:
        """Whether the result is an image: a gradient."""
        return self.mode.endswith("grad")

    @property
    def lanes(self) -> int:
        """Channels per thread."""
        return min(LOAD_BYTES // max(self.dtype.itemsize, self.place.itemsize), power_of_two(self.channels))

    @property
    def items(self) -> int:
        """Threads per plane."""
        return prod(self.image if self.back else self.count) * self.channels // self.lanes

    @property
    def together(self) -> int:
        """Planes that a block's thread index covers: usually all."""
        return max(1, min(self.planes, I32_PADDED_ELEMENTS // self.items))

    @property
    def ahead(self) -> bool:
        """Whether a thread reads a window at once, and then its largest or its mean: if there are few threads."""
        held = prod(self.taps) * self.lanes * self.dtype.itemsize
        return not self.back and self.planes * self.items < _FEW_THREADS and held <= _MOST_AHEAD

    @property
    def geometry(self) -> Geometry:
        blocks = -(-self.together * self.items // _BLOCK_THREADS)
        return Geometry((blocks, -(-self.planes // self.together), 1), (_BLOCK_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        own, other = (self.image, self.count) if self.back else (self.count, self.image)
        numbers = Numbers(
            ITEMS=self.together * self.items, PLANES=self.planes, PLANES_A_BLOCK=self.together, CHANNELS=self.channels
        )
        numbers.divisor("PARTS", self.channels // self.lanes)
        for axis in range(3):
            numbers.divisor(f"OWN{axis}", own[axis])
            numbers.add(f"OTHER{axis}", other[axis])
        return numbers

    @property
    def code(self) -> Code:
        most = self.planes * self.channels * max(prod(self.image), prod(self.count))
        steps = [-(-k // s) for k, s in zip(self.taps, self.stride)] if self.back else self.taps
        axes = {"STEPS": steps, "TAPS": self.taps, "STRIDE": self.stride, "EDGE": self.pad}
        text = f"#define MODE {_MODES.index(self.mode)}\n#define AHEAD {int(self.ahead)}\n"
        text += f"using X = {C_TYPES[self.dtype]};\n"
        text += f"using Y = {C_TYPES[self.place]};\nusing SUM = {C_TYPES[self.dtype.computed]};\n"
        text += f"using INDEX = {'int' if most <= I32_PADDED_ELEMENTS else 'long long'};\n"
        text += constants(LANES=self.lanes, BACK=int(self.back)) + self.numbers.text()
        text += "".join(f"__device__ constexpr int {n}[3] = {{{', '.join(map(str, v))}}};\n" for n, v in axes.items())
        return Code("pool.cu", text)


def _lower(node: Node, mode: Mode, image: TensorType, out: TensorType, place: DType) -> list[Launch] | None:
    if image.rank > 5:
        return None
    channels = 1
    if node.op.name.endswith("_last"):
        channels, image, out = image.ints[-1], first_type(image), first_type(out)

    def three(values: tuple[int, ...], fill: int) -> tuple[int, int, int]:
        a, b, c = (*[fill] * (3 - len(values)), *values)
        return a, b, c

    k, stride, pad = (int_tuple(node.attrs, n) for n in ("k", "stride", "pad"))
    spec = Pool(
        mode, image.dtype, place, prod(image.ints[:2]) // channels, channels,
        three(image.ints[2:], 1), three(out.ints[2:], 1), three(k, 1), three(stride, 1), three(pad, 0),
    )  # fmt: skip
    return [Launch(spec, node.inputs, node.outputs)]


@lowers("maxpool", "maxpool_last", target="cuda")
def maxpool(node: Node) -> list[Launch] | None:
    return _lower(node, "max", node.input_types[0], node.types[0], node.types[1].dtype)


@lowers("maxpool_grad", "maxpool_grad_last", target="cuda")
def maxpool_grad(node: Node) -> list[Launch] | None:
    dy, place = node.input_types
    return _lower(node, "max_grad", node.types[0], dy, place.dtype)


@lowers("avgpool", "avgpool_last", target="cuda")
def avgpool(node: Node) -> list[Launch] | None:
    return _lower(node, "mean", node.input_types[0], node.types[0], DType.U8)


@lowers("avgpool_grad", "avgpool_grad_last", target="cuda")
def avgpool_grad(node: Node) -> list[Launch] | None:
    return _lower(node, "mean_grad", node.types[0], node.input_types[0], DType.U8)
