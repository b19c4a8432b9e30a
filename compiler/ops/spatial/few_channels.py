"""Which convolutions and products are between few channels and many, as the first and last layers of images and sound.

A matrix of many rows times one of few columns, or of few rows, is such a convolution, too: of one line of pixels, with
one tap. Kernels without tiles compute them where a target has such.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Final

from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, flag_attr, int_attr, int_tuple

MOST: Final = 4  # channels that are few
_MIN_PLACES: Final = 2048  # of pixels or rows: fewer leave a device idle
#: Products of an element of the many channels up to which scalar arithmetic is faster than tensor cores.
_MOST_ON_CORES: Final = 64
#: Those of a first layer, and its stride: with more, tiles are full enough. On an H200, those of TasNet and DCGAN, with
#: strides of 8 and 2, and 16 and 48 products, took 1.2 times as long as cuDNN; of waveform critics and grey images 0.6.
_MOST_FIRST: Final = 32
_MOST_FIRST_STRIDE: Final = 2
#: Of a window: what code can unroll and threads can hold.
_MOST_SPAN: Final = 48
_MOST_STRIDE: Final = 8
_MOST_WEIGHTS: Final = 768  # of one of the many channels
_MOST_SUMS: Final = 64  # of a line of taps of the gradient for weights
RUN_BYTES: Final = 16  # that tensor cores read at once
RUN: Final = 8  # elements of 16 bits of them, and rows or columns of the least matrix of tensor cores
_MOST_RUNS: Final = 96  # of a window: shared memory has room for the weights of 16 channels and more
TILE_BYTES: Final = 31 << 10  # of a tile of the image in shared memory


@dataclass(frozen=True, slots=True)
class FewChannels:
    """Numbers of channels, and of taps along each axis. ``of_image``: the image has the few, else the result, which has
    so many ``places``, of all images."""

    few: int
    many: int
    taps: tuple[int, ...]
    of_image: bool
    places: int


def few_channels(node: Node, most: int = MOST) -> FewChannels | None:
    """The sides of a convolution, a gradient of it, or a product of many rows; None if neither has up to ``most``
    channels, if a convolution has groups, if dtypes differ, or if nothing is computed. Sizes are ints."""
    types = (*node.input_types, *node.types)
    if (
        node.op.name.removesuffix("_last") not in ("matmul", "conv", "conv_dgrad", "conv_wgrad")
        or len({t.dtype for t in types}) > 1
        or not all(prod(t.ints) for t in types)
    ):
        return None
    found = _of_product(node) if node.op.name == "matmul" else _of_convolution(node)
    if found is None:
        return None
    into, out, taps, places = found
    few, many = sorted((into, out))
    return FewChannels(few, many, taps, into <= out, places) if few <= most else None


def _of_convolution(node: Node) -> tuple[int, int, tuple[int, ...], int] | None:
    if int_attr(node.attrs, "groups") != 1:
        return None
    kind = node.op.name.removesuffix("_last")
    out, *rest = (node.types[0] if kind == "conv_wgrad" else node.inputs[1].type).ints
    result = {"conv": node.types[0], "conv_dgrad": node.inputs[0].type, "conv_wgrad": node.inputs[-1].type}[kind]
    places = prod(result.ints) // out
    if node.op.name.endswith("_last"):
        return rest[-1], out, tuple(rest[:-1]), places
    return rest[0], out, tuple(rest[1:]), places


def _of_product(node: Node) -> tuple[int, int, tuple[int, ...], int] | None:
    """Of a matrix whose rows are pixels and a matrix of weights, or of two such matrices, over their rows."""
    [a, b], [c] = node.input_types, node.types
    ta, tb = bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")
    if b.rank != 2 or (ta and (tb or a.rank != 2)):
        return None
    *rows, columns = c.ints
    into, places = (rows[0], a.ints[0]) if ta else (a.ints[-1], prod(rows))
    return into, columns, (), places


def is_of_few_channels(node: Node, on_cores: bool = False) -> bool:
    """Whether kernels without tiles compute a node: not such that tensor cores (``on_cores``: by the build, else by the
    node) or tiles compute faster, although these multiply the few channels filled up to a run, and no windows that are
    too large to be unrolled."""
    found = few_channels(node)
    if found is None or found.places < _MIN_PLACES:
        return False
    if not found.taps:
        return True
    weights, kind = found.few * prod(found.taps), node.op.name.removesuffix("_last")
    stride, dilation = int_tuple(node.attrs, "stride")[-1], int_tuple(node.attrs, "dilation")[-1]
    if (found.taps[-1] - 1) * dilation >= _MOST_SPAN or stride > _MOST_STRIDE or weights > _MOST_WEIGHTS:
        return False
    if kind == "conv" and found.of_image and (weights > _MOST_FIRST or stride > _MOST_FIRST_STRIDE):
        return False
    if kind == "conv_wgrad" and found.few * found.taps[-1] > _MOST_SUMS:
        return False
    on_cores = on_cores or node.types[0].dtype.is_half or flag_attr(node.attrs, "tf32")
    return not on_cores or weights <= _MOST_ON_CORES


def packs_taps(node: Node, on_cores: bool = False, filled: bool = False) -> bool:
    """Whether a convolution with channels last, or its gradient for weights, in 16 bits or in TF32 (``on_cores``: by
    the build, else by the node), has sums over runs of taps with their few channels of the image. Windows side by side
    are rows of a product, and are none of these. ``filled``: the many channels are filled up to whole runs first."""
    kind, found = node.op.name.removesuffix("_last"), few_channels(node)
    if kind not in ("conv", "conv_wgrad") or found is None or not found.of_image:
        return False
    dtype = node.types[0].dtype
    if not dtype.is_half and not (dtype is DType.F32 and (on_cores or flag_attr(node.attrs, "tf32"))):
        return False
    stride, dilation = int_tuple(node.attrs, "stride"), int_tuple(node.attrs, "dilation")
    run, side_by_side = run_elements(dtype), stride == found.taps and not any(int_tuple(node.attrs, "pad"))
    return (
        prod(found.taps) > 1
        and not side_by_side
        and (filled or not found.many % RUN)
        and found.places >= _MIN_PLACES
        and dilation == (1,) * len(dilation)
        and prod(found.taps[:-1]) * -(-found.taps[-1] // taps_of_run(found.few, run)) <= _MOST_RUNS
        and _tile_bytes(found, stride, run) <= TILE_BYTES
    )


def run_elements(dtype: DType) -> int:
    """Elements that tensor cores read at once."""
    return RUN_BYTES // dtype.itemsize


def taps_of_run(few: int, run: int) -> int:
    """Taps whose few channels, filled up to a power of two, are a run."""
    return run >> (few - 1).bit_length()


def _tile_bytes(found: FewChannels, stride: tuple[int, ...], run: int) -> int:
    """Of the image, at most: what a tile of 8 lines of 16 places reads, as often as runs begin at different places."""
    deep, tall, wide = (1, 1, *found.taps)[-3:]
    down, across = (1, *stride)[-2:]
    taps = taps_of_run(found.few, run)
    line = 15 * across // taps + -(-wide // taps) + RUN  # runs; the last ones keep lines in different banks
    return deep * (7 * down + tall) * (taps // gcd(across, taps)) * line * RUN_BYTES
