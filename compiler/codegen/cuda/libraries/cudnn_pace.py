"""How fast cuDNN computes convolutions with repeatable bits next to own kernels, and the memory that it needs for it.

The figures of the modelled time of gradients for weights, in f32 and TF32, were fitted to 47 gradients on one H200 with
cuDNN 9.19 on 2026-11-28, those in TF32 also to 15 of SqueezeNet's ("Weight gradients" in
``benchmarks/results/ops.md``):

- In TF32, tensor cores multiply the channels of a tap, filled up to whole tiles: of an image with 16 channels three
  quarters are zeros. A window of one place is a matrix product, whose tiles are smaller.
- In f32, Winograd's minimal filtering (Lavin and Gray 2016) computes windows of 3 x 3 with stride 1, if its transforms
  of both images fit the workspace.
- What is left has algorithms that split sums too little: a place of the result takes 6 ns up to 160 us, and
  multiplications come on top.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from dslc.compiler.codegen.cuda.libraries.library import WORKSPACE

if TYPE_CHECKING:
    from dslc.compiler.codegen.cuda.libraries.cudnn import VendorConv

_START: Final = 5e-6  # seconds
#: Tiles of channels, and operations per second.
_TF32_TILES: Final = ((64, 64, 90e12), (64, 128, 140e12), (128, 64, 140e12), (128, 128, 155e12))
_PRODUCTS: Final = (*_TF32_TILES, (16, 16, 90e12))
_WINOGRAD: Final = (64, 128, 60e12)
_TRANSFORMED: Final = 36 / 16  # elements of a transform of 6 x 6 for each of the 4 x 4 places that it is of
_PLACE: Final = 6e-9  # seconds
_MOST_PLACES: Final = 160e-6
_SCALAR: Final = 20e12  # operations per second
#: Own kernels compute convolutions of 16 bits and their gradients of at most so many multiply-adds (windows of one
#: place, and larger ones of all but gradients for weights), whose results have at most so many bytes. On an H200 they
#: take 0.38 to 1.22 of the time of the fastest plan of cuDNN 9.19 that `cudnn.benchmark` of PyTorch finds, on the mean
#: 0.75 ("Small convolutions" in ``benchmarks/results/ops.md``); with four times the multiply-adds, cuDNN is faster.
_SMALL: Final = 1 << 27
_SMALL_WINDOWS: Final = 1 << 28
_SMALL_RESULT: Final = 4 << 20
#: How many places a window has (3 x 3 x 3), and how far it reaches (its longest side less 1, times the dilation), for
#: which cuDNN 9.19 has quick kernels in f32, and kernels in TF32 that copy no factor. Beyond them, those in TF32 need a
#: workspace for both factors, and the others take up to 350 times as long: windows of 3 x 3 from 2,048 to 256 channels,
#: dilation 12, 511 ms ("Far windows" in ``benchmarks/results/ops.md``, one H200, as all that follows). In 16 bits, the
#: kernel with a bias that it proposes first takes 4.3 ms for 9 x 9 of 256 channels with stride 2.
_REACH: Final = 16
_PLACES: Final = 27
#: In f32, cuDNN 9.19 is faster than own kernels for windows with sides of at most 5 and few places: of 7 x 7 these take
#: 0.88 of its time, and 0.43 for the gradient of the image; of 11 x 11 0.87 and 0.08. Of windows along one axis it is
#: faster up to 11 places, but not for the gradient of the image.
_F32_SIDE: Final = 5
_F32_PLACES: Final = 14


def weights_seconds(call: VendorConv) -> float:
    """Of a ``conv_wgrad`` without groups."""
    window, places = call.window, call.places
    if call.compute == "tf32":
        return _START + min(_filled(call, *tile) for tile in (_PRODUCTS if prod(window) == 1 else _TF32_TILES))
    transforms = _TRANSFORMED * 4 * sum(map(prod, call.inputs))
    if window == (3, 3) and call.stride == call.dilation == (1, 1) and transforms <= WORKSPACE:
        return _filled(call, *_WINOGRAD)
    return min(_PLACE * places, _MOST_PLACES) + 2 * call.multiply_adds / _SCALAR


def _filled(call: VendorConv, into: int, out: int, rate: float) -> float:
    """Seconds of the products if channels are filled up to tiles."""
    outputs, inputs = call.channels
    whole = -(-outputs // out) * out * (-(-inputs // into) * into)
    return 2 * call.multiply_adds / (outputs * inputs) * whole / rate


def is_far(call: VendorConv) -> bool:
    """Whether a window reaches far or has many places, for which cuDNN has few quick kernels."""
    reach = max(d * (side - 1) for d, side in zip(call.dilation, call.window))
    return reach > _REACH or prod(call.window) > _PLACES


def copied_bytes(call: VendorConv) -> int:
    """Bytes of the copies of both factors that cuDNN needs to be fast in TF32; 0 if it needs none."""
    return 4 * sum(map(prod, call.inputs)) if call.compute == "tf32" and is_far(call) else 0


def is_slow(call: VendorConv) -> bool:
    """Whether own kernels compute a convolution of f32 images, or its gradient for the image, faster, in f32 because of
    a long window. The gradient with strides and dilation takes cuDNN 43 ms where own kernels take 0.6, also in TF32."""
    if call.kind == "conv_dgrad" and max(call.stride) > 1 and max(call.dilation) > 1:
        return True
    if call.kind == "conv_wgrad" or call.compute == "tf32":
        return False
    places = prod(call.window)
    long = max(call.window) > _F32_SIDE and (call.kind == "conv_dgrad" or places > _F32_PLACES)
    return long or places > _PLACES


def is_small_in_16_bits(call: VendorConv) -> bool:
    """Whether own kernels are faster for few multiply-adds of 16 bits. A gradient for a strided image is several
    products."""
    if call.kind == "conv_dgrad" and max(call.stride) > 1:
        return False
    most = _SMALL if prod(call.window) == 1 or call.kind == "conv_wgrad" else _SMALL_WINDOWS
    return call.multiply_adds <= most and 2 * prod(call.out) <= _SMALL_RESULT
