"""Contractions through NVIDIA's libraries: matmuls through cuBLASLt, convolutions and their gradients through cuDNN.

Such a launch has no code of its own: its description becomes a ``Gemm`` or a ``GraphOp`` instruction. The choice of
nodes depends only on shapes and dtypes, so any machine builds the same artifact. The algorithm is chosen on the GPU
that runs it. Sums are f32 (f64 of f64). Tensor cores process f32 only if a node says tf32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final, Literal

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, flag_attr, int_attr, int_tuple
from dslc.runtime.artifact.instructions import Gemm, GraphOp

#: Most bytes of workspace that an algorithm may use, plus some for alignment.
WORKSPACE: Final = (32 << 20) + 256
#: The workspace estimate of a small call: bytes for counters, and a copy of the result per ``_ADDED_AT_ONCE`` products
#: of a sum. A library may share a sum among blocks that each add that many.
_COUNTER_BYTES: Final = 64 << 10
_ADDED_AT_ONCE: Final = 32
#: Fewest multiply-adds that are worth a call: below, a launch takes longer than the contraction.
MIN_WORK: Final = 1 << 20
_CHANNEL_MULTIPLE: Final = 8  # of 16-bit images: tensor cores read as many at once
#: Channels up to which dslc's own convolution is faster: for ResNet-50's first one on an H200, the algorithm that cuDNN
#: 9.19 chooses takes 1.9 times as long with 256 images, 3.7 times with 32.
_MAX_OWN_CHANNELS: Final = 8
_MAX_ELEMENTS: Final = 2**31  # of a tensor, for libraries that use 32-bit indices
_HALF: Final = (DType.BF16, DType.F16)

Shape = tuple[int, ...]


@described("VendorGemm", "a b out transpose_a transpose_b compute")
@dataclass(frozen=True)
class VendorGemm:
    """``out = op(a) @ op(b)`` of dense matrices ``[m, k]``, or of stacks ``[z, m, k]``; a stack of 1 is broadcast to
    the other. ``transpose_a``, ``transpose_b``: the last two axes are swapped first."""

    library: ClassVar = "cublaslt"
    a: Shape
    b: Shape
    out: Shape
    transpose_a: bool
    transpose_b: bool
    compute: Literal["f32", "f64", "tf32"]

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        """The shapes of the operands and, last, of the result, as passed to the library."""
        return self.a, self.b, self.out

    @property
    def product(self) -> tuple[int, int, int, int]:
        """How many matrices, their rows and columns, and how many products each element sums."""
        rows, columns = self.out[-2:]
        return prod(self.out[:-2]), rows, columns, self.a[-2 if self.transpose_a else -1]

    def instruction(self, operands: Sequence[int], workspace: int, where: int) -> Gemm:
        """The call on buffers of a plan. It names no algorithm: the library chooses one on the GPU that runs it."""
        a, b, out = operands
        return Gemm(
            self.library, a, b, None, None, out, workspace, self.transpose_a, self.transpose_b, self.compute,
            alpha=1.0, beta=0.0, epilogue="none", algorithm=b"", stream=0, where=where,
        )  # fmt: skip


@described("VendorConv", "kind last inputs out stride pad dilation compute")
@dataclass(frozen=True)
class VendorConv:
    """``kind``: conv of (x, w), conv_dgrad of (dy, w), conv_wgrad of (x, dy), with two spatial axes and one group.

    ``last``: images are ``[B, H, W, C]`` and weights ``[O, kh, kw, C]``, else ``[B, C, H, W]`` and ``[O, C, kh, kw]``.
    """

    library: ClassVar = "cudnn"
    kind: str
    last: bool
    inputs: tuple[Shape, Shape]
    out: Shape
    stride: Shape
    pad: Shape
    dilation: Shape
    compute: Literal["f32", "tf32"]

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        """As for ``VendorGemm``."""
        return (*self.inputs, self.out)

    @property
    def product(self) -> tuple[int, int, int, int]:
        """As for ``VendorGemm``: one matrix product of image patches and weights, or of the gradient of either."""
        image, weight = {
            "conv": (self.out, self.inputs[1]), "conv_dgrad": self.inputs, "conv_wgrad": (self.inputs[1], self.out)
        }[self.kind]  # fmt: skip
        channel = -1 if self.last else 1
        places, out, into = prod(image) // image[channel], weight[0], weight[channel]
        window = prod(weight) // (out * into)
        if self.kind == "conv":
            return 1, places, out, into * window
        if self.kind == "conv_wgrad":
            return 1, out, into * window, places
        return 1, prod(self.out) // into, into, out * window

    def instruction(self, operands: Sequence[int], workspace: int, where: int) -> GraphOp:
        """As for ``VendorGemm``."""
        first, second, out = operands
        attrs: Mapping[str, object] = {
            "compute": self.compute,
            "dilation": list(self.dilation),
            "layout": "last" if self.last else "first",
            "pad": list(self.pad),
            "stride": list(self.stride),
        }
        return GraphOp(
            self.library, self.kind, attrs, (first, second), (out,), workspace,
            engine=-1, knobs=(), stream=0, where=where,
        )  # fmt: skip


def vendor_call(node: Node) -> Launch | str | None:
    """The library's call for a node; a text that says why it has none; None for a node that is no contraction.

    Sizes are ints, and none of the result's is 0.
    """
    kind = node.op.name.removesuffix("_last")
    found: VendorGemm | VendorConv | str
    if kind == "matmul":
        found = _gemm(node)
    elif kind in ("conv", "conv_dgrad", "conv_wgrad"):
        found = _conv(node, kind)
    else:
        return None
    if isinstance(found, str):
        return found
    return Launch(found, node.inputs, (node.out, Scratch(0, workspace_bytes(found))))


def workspace_bytes(call: VendorGemm | VendorConv) -> int:
    """Workspace bytes of a call, which consecutive calls share: the maximum, or the need of a small call. That is both
    factors copied in f32 (an image as its patches) and the parts of sums."""
    count, rows, columns, added = call.product
    parts = -(-added // _ADDED_AT_ONCE)
    need = 4 * count * (rows * added + added * columns + rows * columns * parts) + _COUNTER_BYTES
    return min(WORKSPACE, -(-need // 256) * 256 + 256)


def census(nodes: Iterable[Node]) -> tuple[Counter[str], Counter[str]]:
    """How many contractions go to each library, and how many of each kind run as dslc's own kernels: ``conv
    (groups)``."""
    calls: Counter[str] = Counter()
    rest: Counter[str] = Counter()
    for node in nodes:
        found = vendor_call(node)
        if isinstance(found, Launch):
            calls[found.spec.library] += 1
        elif found is not None:
            rest[f"{node.op.name.removesuffix('_last')} ({found})"] += 1
    return calls, rest


def _gemm(node: Node) -> VendorGemm | str:
    [a, b], [c] = node.input_types, node.types
    ta, tb = bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")
    inner = a.ints[-2] if ta else a.ints[-1]
    if prod(c.ints) * inner < MIN_WORK:
        return "few multiply-adds"
    if max(prod(t.ints) for t in (a, b, c)) >= _MAX_ELEMENTS:
        return "2^31 elements"
    compute: Literal["f32", "f64", "tf32"] = "f64" if a.dtype is DType.F64 else _compute(node)
    matrix_a, matrix_b, matrix_c = a.ints[-2:], b.ints[-2:], c.ints[-2:]
    each_a, each_b, each = prod(a.ints[:-2]), prod(b.ints[:-2]), prod(c.ints[:-2])
    if each == 1:
        return VendorGemm(matrix_a, matrix_b, matrix_c, ta, tb, compute)
    if each_b == 1 and not ta:  # all matrices of the stack are multiplied by the same one
        rows = each * matrix_c[0]
        return VendorGemm((rows, inner), matrix_b, (rows, matrix_c[1]), ta, tb, compute)
    if {each_a, each_b} <= {1, each}:
        return VendorGemm((each_a, *matrix_a), (each_b, *matrix_b), (each, *matrix_c), ta, tb, compute)
    return "stacks that broadcast both ways"


def _conv(node: Node, kind: str) -> VendorConv | str:
    last = node.op.name.endswith("_last")
    types = (*node.input_types, *node.types)
    rank, dtype = types[0].rank, types[0].dtype
    if rank not in (3, 4):
        return f"{rank - 2} spatial axes"
    if int_attr(node.attrs, "groups") != 1:
        return "groups"
    if dtype not in (*_HALF, DType.F32) or any(t.dtype is not dtype for t in types):
        return " and ".join(sorted({t.dtype.value for t in types}))
    if max(prod(t.ints) for t in types) >= _MAX_ELEMENTS:
        return "2^31 elements"
    first, second, out = (_plane(t.ints, last) for t in types)
    weight = out if kind == "conv_wgrad" else second
    channels = (weight[0], weight[-1 if last else 1])
    if dtype in _HALF and not last:
        return f"channels first in {dtype}"
    if dtype in _HALF and any(c % _CHANNEL_MULTIPLE for c in channels):
        return f"{channels[1]} to {channels[0]} channels in {dtype}"
    image = first if kind == "conv_dgrad" else second if kind == "conv_wgrad" else out
    if prod(weight) * prod(image) // channels[0] < MIN_WORK:
        return "few multiply-adds"
    if dtype in _HALF and kind == "conv" and channels[1] <= _MAX_OWN_CHANNELS:
        return "few channels"
    stride, pad, dilation = (int_tuple(node.attrs, n) for n in ("stride", "pad", "dilation"))
    if rank == 3:
        stride, pad, dilation = (1, *stride), (0, *pad), (1, *dilation)
    return VendorConv(kind, last, (first, second), out, stride, pad, dilation, _compute(node))


def _compute(node: Node) -> Literal["f32", "tf32"]:
    return "tf32" if flag_attr(node.attrs, "tf32") else "f32"


def _plane(shape: Shape, last: bool) -> Shape:
    """The shape with a first spatial axis of size 1 inserted if it has only one."""
    if len(shape) == 4:
        return shape
    return (shape[0], 1, *shape[1:]) if last else (*shape[:2], 1, shape[2])
