"""cuDNN, which computes convolutions, attention, and the gradients of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final, Literal

from dslc.compiler.codegen.cuda.contraction.direct import seconds_of_weights
from dslc.compiler.codegen.cuda.libraries.cudnn_attention import (
    VendorAttention,
    attention_call,
    why_own_attention,
)
from dslc.compiler.codegen.cuda.libraries.cudnn_pace import (
    copied_bytes,
    is_far,
    is_slow,
    is_small_in_16_bits,
    weights_seconds,
)
from dslc.compiler.codegen.cuda.libraries.cudnn_plans import PLAN, engine_and_knobs
from dslc.compiler.codegen.cuda.libraries.library import (
    MAX_ELEMENTS,
    NOT_FOR_IT,
    WORKSPACE,
    Library,
    NoCall,
    Shape,
    compute_of,
    is_small,
    shared_room,
)
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.compound.contraction import added, product_and_epilogue
from dslc.compiler.ops.spatial.few_channels import is_of_few_channels, packs_taps
from dslc.runtime.artifact.instructions import GraphOp

_CHANNEL_MULTIPLE: Final = 8  # of 16-bit images: tensor cores read as many at once
#: Channels up to which dslc's own convolution of 16 bits or in TF32 is faster: for ResNet-50's first on an H200, the
#: algorithm that cuDNN 9.19 chooses takes 1.9 times as long with 256 images of 16 bits, 3.7 times with 32; for
#: SqueezeNet's in TF32 with 128 images, twice as long. Its weight gradient of 16 bits is for windows that do not
#: overlap: 138 us for the patches of ViT-B/16 with 64 images; cuDNN's only algorithm with repeatable bits takes 1,800.
#: It is not for ResNet-50's: 139 us, cuDNN 160, its best 129.
_MAX_OWN_CHANNELS: Final = 8
_MEASURED: Final = "sm_90"  # the architecture on which both ways were timed
_PLANES: Final = 4  # axes of images with two spatial ones
_RANKS: Final = (3, 4, 5)  # of images with one to three spatial axes
_HALF: Final = (DType.BF16, DType.F16)


@described("VendorConv", "kind last inputs out stride pad dilation compute")
@dataclass(frozen=True)
class VendorConv:
    """``kind``: conv of (x, w), conv_dgrad of (dy, w), conv_wgrad of (x, dy), with two or three spatial axes.
    Its groups follow from the channels.

    ``last``: images are ``[B, H, W, C]`` and weights ``[O, kh, kw, C]``, else ``[B, C, H, W]`` and ``[O, C, kh, kw]``;
    a third spatial axis comes before the two.
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
        """As for ``LibraryCall``; without an algorithm, cuDNN chooses one on the GPU that runs it."""
        return (*self.inputs, self.out)

    @property
    def weight(self) -> Shape:
        """The shape of the weight or of its gradient."""
        return self.out if self.kind == "conv_wgrad" else self.inputs[1]

    @property
    def window(self) -> Shape:
        """The weight's spatial axes."""
        return self.weight[1:-1] if self.last else self.weight[2:]

    @property
    def channels(self) -> tuple[int, int]:
        """Of the weight: of the result of the convolution, and those of the image in a group."""
        return self.weight[0], self.weight[self._channel]

    @property
    def groups(self) -> int:
        """How many groups share the channels."""
        image = self.out if self.kind == "conv_dgrad" else self.inputs[0]
        return image[self._channel] // self.channels[1]

    @property
    def product(self) -> tuple[int, int, int, int]:
        """As many matrix products as groups, of image patches and weights, or of the gradient of either."""
        out, into, places, window = self.channels[0] // self.groups, self.channels[1], self.places, prod(self.window)
        if self.kind == "conv":
            return self.groups, places, out, into * window
        if self.kind == "conv_wgrad":
            return self.groups, out, into * window, places
        return self.groups, prod(self.out) // (into * self.groups), into, out * window

    @property
    def room(self) -> int:
        """As for ``Call``."""
        return shared_room(self.product, WORKSPACE + copied_bytes(self))

    @property
    def multiply_adds(self) -> int:
        """Those of the convolution; a gradient has as many."""
        return prod(self.weight) * self.places

    @property
    def places(self) -> int:
        """The images' places in the result of the convolution."""
        result = {"conv": self.out, "conv_dgrad": self.inputs[0], "conv_wgrad": self.inputs[1]}[self.kind]
        return prod(result) // self.channels[0]

    @property
    def _channel(self) -> int:
        return -1 if self.last else 1

    def instruction(self, operands: Sequence[int], workspace: int, where: int, algorithm: str = "") -> GraphOp:
        """As for ``LibraryCall``; without an algorithm, cuDNN chooses one on the GPU that runs it."""
        first, second, out = operands
        engine, knobs = engine_and_knobs(algorithm)
        attrs: Mapping[str, object] = {
            "compute": self.compute,
            "dilation": list(self.dilation),
            "layout": "last" if self.last else "first",
            "pad": list(self.pad),
            "stride": list(self.stride),
        }
        return GraphOp(
            self.library, self.kind, attrs, (first, second), (out,), workspace,
            engine=engine, knobs=knobs, stream=0, where=where,
        )  # fmt: skip


@described("VendorConvSum", "conv added relu")
@dataclass(frozen=True)
class VendorConvSum:
    """A convolution to which cuDNN adds further operands before it rounds. ``added``: what each of them is: a ``bias``
    for each channel, or ``c``, of the result's shape; ``relu``: of the sum."""

    library: ClassVar = "cudnn"
    conv: VendorConv
    added: tuple[str, ...]
    relu: bool

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """As for ``LibraryCall``."""
        first, second, out = self.conv.shapes
        return first, second, *(out if kind == "c" else (self.conv.channels[0],) for kind in self.added), out

    @property
    def product(self) -> tuple[int, int, int, int]:
        """As of the convolution."""
        return self.conv.product

    @property
    def room(self) -> int:
        """As of the convolution."""
        return self.conv.room

    def instruction(self, operands: Sequence[int], workspace: int, where: int, algorithm: str = "") -> GraphOp:
        """As of the convolution."""
        first, second, *others, out = operands
        plain = self.conv.instruction((first, second, out), workspace, where, algorithm)
        attrs = {**plain.attrs, "added": list(self.added), "relu": self.relu}
        return replace(plain, attrs=attrs, inputs=(first, second, *others))


def _call(node: Node) -> VendorConv | VendorConvSum | VendorAttention | NoCall:
    if node.op.name != "contraction":
        return _plain(node)
    found, more = _plain(product_and_epilogue(node)[0]), added(node)
    if not isinstance(found, VendorConv) or found.kind != "conv" or more is None:
        return NOT_FOR_IT
    found = _in_planes(found, images=True)
    if node.types[0].dtype not in _HALF or len(found.out) != _PLANES or "bias" not in more.kinds:
        return NOT_FOR_IT  # cuDNN has no compiled plans for it, or was not seen to have any
    if is_far(found):
        return NOT_FOR_IT
    return VendorConvSum(found, *more)


def _plain(node: Node) -> VendorConv | VendorAttention | NoCall:
    kind = _kind(node)
    if kind is None:
        return attention_call(node)
    last = node.op.name.endswith("_last")
    types = (*node.input_types, *node.types)
    rank, dtype = types[0].rank, types[0].dtype
    if rank not in _RANKS:
        return NoCall(f"{rank - 2} spatial axes")
    if dtype not in (*_HALF, DType.F32) or any(t.dtype is not dtype for t in types):
        return NoCall(" and ".join(sorted({t.dtype.value for t in types})))
    if max(prod(t.ints) for t in types) >= MAX_ELEMENTS:
        return NoCall("2^31 elements")
    if dtype in _HALF and not last:
        return NoCall(f"channels first in {dtype}")
    first, second, out = (_plane(t.ints, last) for t in types)
    stride, pad, dilation = (int_tuple(node.attrs, n) for n in ("stride", "pad", "dilation"))
    if rank == 3:
        stride, pad, dilation = (1, *stride), (0, *pad), (1, *dilation)
    call = VendorConv(kind, last, (first, second), out, stride, pad, dilation, compute_of(node))
    call = call if dtype in _HALF else _in_planes(call)
    return NoCall("few multiply-adds") if is_small(call.multiply_adds) else call


def why_own(node: Node, architecture: str) -> str | None:
    """As for ``Library.own``. Of groups, cuDNN's own choice for the gradient of the image is often its plainest
    algorithm, ``eng0``."""
    if node.op.name == "contraction":
        node = product_and_epilogue(node)[0]
    call = _plain(node)
    if isinstance(call, VendorAttention):
        return why_own_attention(call, architecture)
    assert isinstance(call, VendorConv), "only calls are asked about"
    if int_attr(node.attrs, "groups") != 1:
        return "groups"
    if is_of_few_channels(node) or (node.op.name.endswith("_last") and packs_taps(node)):
        return "few channels"
    dtype, channels = node.types[0].dtype, call.channels
    if dtype in _HALF and any(c % _CHANNEL_MULTIPLE for c in channels):
        return f"{channels[1]} to {channels[0]} channels in {dtype}, not both multiples of {_CHANNEL_MULTIPLE}"
    if call.kind == "conv_wgrad" and dtype is DType.F32 and seconds_of_weights(node) < weights_seconds(call):
        return "an own kernel is faster than cuDNN's repeatable one"
    if dtype is DType.F32 and is_slow(call):
        return "cuDNN is slow for such windows in f32"
    few = channels[1] <= _MAX_OWN_CHANNELS
    if few and call.kind == "conv" and (call.compute == "tf32" or dtype in _HALF):
        return "few channels"
    if few and call.kind == "conv_wgrad" and dtype in _HALF and call.stride == call.window:
        return "patches of few channels"
    if dtype in _HALF and architecture == _MEASURED and is_small_in_16_bits(call):
        return "few multiply-adds: own kernels have small tiles"
    return None


def _kind(node: Node) -> str | None:
    kind = node.op.name.removesuffix("_last")
    return kind if kind in ("conv", "conv_dgrad", "conv_wgrad") else None


def _plane(shape: Shape, last: bool) -> Shape:
    """The shape with a first spatial axis of size 1 inserted if it has only one."""
    if len(shape) > 3:
        return shape
    return (shape[0], 1, *shape[1:]) if last else (*shape[:2], 1, shape[2])


def _in_planes(call: VendorConv, images: bool = False) -> VendorConv:
    """The call of f32 factors with two spatial axes instead of three, if windows of size 1 (stride 1, no padding) keep
    the places of two neighbouring axes apart. These are then one axis of the same memory: images of windows (3, 1, 1)
    become ``[B, D, H * W, C]``, or ``[B, C, D, H * W]``. ``images``: with channels last, those of windows (1, 3, 3)
    become ``[B * D, H, W, C]``: cuDNN adds a bias to sums of two axes only.

    cuDNN 9.19 runs the same kernels of both forms equally fast, but proposes others first. On an H200, the first plans
    for R(2+1)D-18 and SlowFast-R50 of 100 us or more take 20, 1 and 0 % less for `conv` and its gradients for the image
    and the weight in f32 (9 of 25 faster, 1 slower), and 18, 16 and 11 % less in TF32 (11 of 19 faster, 8 slower). Of
    16 bits they take more, so they stay, and so does the batch of windows (1, 3, 3) if nothing is added: `conv` takes 5
    % less, its gradient for the image 5 % more."""
    first = 1 if call.last else 2  # spatial axis
    window = call.weight[first : first + len(call.pad)]
    apart = [first + n for n, each in enumerate(zip(window, call.stride, call.pad)) if each == (1, 1, 0)]
    axis = next((axis for axis in apart if (axis == 1 if images else axis - 1 in apart)), None)
    if len(call.out) == _PLANES or axis is None:
        return call

    def joined(shape: Shape) -> Shape:
        return (*shape[: axis - 1], shape[axis - 1] * shape[axis], *shape[axis + 1 :])

    def kept(numbers: Shape) -> Shape:
        return (*numbers[: axis - first], *numbers[axis - first + 1 :])

    one, two = call.inputs
    return replace(
        call, inputs=(joined(one), joined(two)), out=joined(call.out),
        stride=kept(call.stride), pad=kept(call.pad), dilation=kept(call.dilation),
    )  # fmt: skip


#: An algorithm is cuDNN's name of a plan.
LIBRARY: Final = Library(VendorConv.library, _call, PLAN, why_own)
