"""Pooling as kernels: maxpool, avgpool and their gradients, over up to three spatial axes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, Literal

from dslc.compiler.codegen.cuda.cpp import C_TYPES, register
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.channels_last import first_type

Mode = Literal["max", "max_grad", "mean", "mean_grad"]
_MODES: Final[tuple[Mode, ...]] = ("max", "max_grad", "mean", "mean_grad")
_THREADS: Final = 256
_BLOCKS: Final = 1 << 16  # a thread takes several elements from there on


@dataclass(frozen=True)
class Pool:
    """``image`` and ``count``: sizes of the spatial axes of the larger and the smaller side, ``planes`` of each.

    With channels first ``channels`` is 1 and a plane an image's channel; with channels last, a plane is an image.
    """

    mode: Mode
    dtype: DType
    place: DType
    planes: int
    channels: int
    image: tuple[int, int, int]
    count: tuple[int, int, int]
    taps: tuple[int, int, int]
    stride: tuple[int, int, int]
    pad: tuple[int, int, int]
    file: str = "pool.cu"

    @property
    def elements(self) -> int:
        """Of the result."""
        return self.planes * self.channels * prod(self.image if self.mode.endswith("grad") else self.count)

    @property
    def geometry(self) -> Geometry:
        return Geometry((min(-(-self.elements // _THREADS), _BLOCKS), 1, 1), (_THREADS, 1, 1))

    def head(self) -> str:
        axes = {"IMAGE": self.image, "COUNT": self.count, "TAPS": self.taps, "STRIDE": self.stride, "EDGE": self.pad}
        text = f"#define MODE {_MODES.index(self.mode)}\n"
        text += f"using X = {C_TYPES[self.dtype]};\nusing Y = {C_TYPES[self.place]};\n"
        text += f"using SUM = {C_TYPES[self.dtype.computed]};\nconstexpr long long ELEMENTS = {self.elements};\n"
        text += f"constexpr int CHANNELS = {self.channels};\n"
        return text + "".join(
            f"__device__ constexpr int {n}[3] = {{{', '.join(map(str, v))}}};\n" for n, v in axes.items()
        )


register(Pool)


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


def maxpool(node: Node) -> list[Launch] | None:
    return _lower(node, "max", node.input_types[0], node.types[0], node.types[1].dtype)


def maxpool_grad(node: Node) -> list[Launch] | None:
    dy, place = node.input_types
    return _lower(node, "max_grad", node.types[0], dy, place.dtype)


def avgpool(node: Node) -> list[Launch] | None:
    return _lower(node, "mean", node.input_types[0], node.types[0], DType.U8)


def avgpool_grad(node: Node) -> list[Launch] | None:
    return _lower(node, "mean_grad", node.types[0], node.input_types[0], DType.U8)


_FIRST: Final = {"maxpool": maxpool, "maxpool_grad": maxpool_grad, "avgpool": avgpool, "avgpool_grad": avgpool_grad}
LOWERED: Final = {**_FIRST, **{f"{name}_last": function for name, function in _FIRST.items()}}
