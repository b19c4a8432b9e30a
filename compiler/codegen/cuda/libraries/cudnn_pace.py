"""Modelled time of the gradients for weights that cuDNN computes with repeatable bits, in f32 and TF32.

All figures were fitted to 47 gradients on one H200 with cuDNN 9.19 on 2026-11-28, those in TF32 also to 15 of
SqueezeNet's ("Weight gradients" in ``benchmarks/results/ops.md``).

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


def weights_seconds(call: VendorConv) -> float:
    """Of a ``conv_wgrad`` without groups."""
    window, places = call.weight[1:-1] if call.last else call.weight[2:], call.places
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
