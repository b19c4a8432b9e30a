"""Convolutions on images, and their gradients of the input and the weight.

The convolution and the gradient of the input are one kernel with different strides: weights times panels of pixels,
which are packed from the image by kernel position. A task is one panel of an image; k runs over kernel positions, then
channels.

The gradient of the weight keeps a vector of partial sums for each weight of a task, over all images. Neighbouring
pixels are in its lanes, which are finally added. All orders depend only on shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.contraction.conv_windows import Fetcher, Pair, Window
from dslc.compiler.codegen.cpu.contraction.microkernel import Matrix, Multiply, columns_of, lanes_of, resized
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES, Code, lane_type, suffix, wide
from dslc.compiler.codegen.cpu.object.compile import emit, tasks
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr, int_tuple

MAX_PANEL: Final = 2 << 20  # bytes on a thread's stack
_CHUNK: Final = 1024  # pixels that a weight gradient packs at a time
_WEIGHTS: Final = 24  # most weights of one output channel per task
_CHANNELS: Final = 64  # output channels per task
#: Tiles of the weight gradient: output channels by weights.
_TILES: Final = {"x86_64_v4": (6, 4), "x86_64_v3": (3, 2), "armv8_2": (3, 2)}


@described("Correlate", "dtype batch groups channels rows window weight")
@dataclass(frozen=True, slots=True)
class Correlate:
    """out[b, g*rows + r, pixel] = sum over kernel positions (taps) and channels of weight * image[b, g*channels + c,
    p]; p is the input pixel that ``window`` assigns to the pixel and tap (``windows.py``).

    ``weight``: strides of the weight over (group, row, tap, channel).
    """

    dtype: DType
    batch: int
    groups: int
    channels: int
    rows: int
    window: Window
    weight: tuple[int, int, int, int]

    @property
    def panels(self) -> int:
        return -(-self.window.pixels // columns_of(self.dtype))


@described("WeightGradient", "dtype batch groups channels rows window")
@dataclass(frozen=True, slots=True)
class WeightGradient:
    """dw[g*rows + r, c, tap] = sum over images and pixels of dy[b, g*rows + r, pixel] * image[b, g*channels + c, p],
    with p as in ``Correlate``."""

    dtype: DType
    batch: int
    groups: int
    channels: int
    rows: int
    window: Window

    @property
    def weights(self) -> int:
        """Weights per output channel."""
        return self.channels * self.window.taps

    @property
    def block(self) -> int:
        """Weights per task."""
        return min(_WEIGHTS, max(4, -(-self.weights // 16)), self.weights)

    @property
    def parts(self) -> tuple[int, int, int]:
        """Groups, blocks of output channels, blocks of weights."""
        return self.groups, -(-self.rows // _CHANNELS), -(-self.weights // self.block)


@tasks.register
def _(spec: Correlate) -> int:
    return spec.batch * spec.groups * spec.panels if spec.rows else 0


@tasks.register
def _(spec: WeightGradient) -> int:
    groups, channels, weights = spec.parts
    return groups * channels * weights


@emit.register
def _(spec: Correlate, code: Code) -> None:
    image, weight, out = (code.argument(i) for i in range(3))
    width, pixels = columns_of(spec.dtype), spec.window.pixels
    depth = spec.window.taps * spec.channels
    panel = code.local(lane_type(spec.dtype), depth * width, align=VECTOR_BYTES)
    with code.loop(code.last, code.first) as task:
        rest, number = code.divmod(task, spec.panels)
        b, g = code.divmod(rest, spec.groups)
        start = code.mul(number, width)
        base = code.mul(code.add(code.mul(b, spec.groups), g), spec.channels * spec.window.plane)
        _pack_panel(code, spec, image, base, panel, start)
        left = Matrix(weight, code.mul(g, spec.weight[0]), spec.weight[1])
        out_base = code.mul(code.add(code.mul(b, spec.groups), g), spec.rows * pixels)
        result = Matrix(out, code.add(out_base, start), pixels)
        loops = ((spec.window.taps, spec.weight[2]), (spec.channels, spec.weight[3]))

        def multiply(columns: int) -> None:
            Multiply(code, spec.dtype, left, panel, loops, result, spec.rows, columns).run(0, spec.rows)

        whole = pixels // width
        if whole == spec.panels:
            multiply(width)
        elif whole == 0:
            multiply(pixels)
        else:
            with code.b.if_else(code.b.icmp_signed("<", number, code.int(whole))) as (then, otherwise):
                with then:
                    multiply(width)
                with otherwise:
                    multiply(pixels % width)


def _pack_panel(code: Code, spec: Correlate, image: Any, base: Any, panel: Any, start: Any) -> None:
    lanes, width = lanes_of(spec.dtype), columns_of(spec.dtype)
    vectors = min(width, -(-spec.window.pixels // lanes) * lanes) // lanes
    values = Values(code, lanes)
    for v in range(vectors):
        with code.loop(spec.window.taps) as tap:
            fetcher = Fetcher(code, spec.dtype, spec.window, code.add(start, v * lanes), tap)
            with code.loop(spec.channels) as channel:
                found = fetcher.fetch(image, code.add(base, code.mul(channel, spec.window.plane)))
                k = code.add(code.mul(tap, spec.channels), channel)
                values.store_value(found, spec.dtype, panel, code.add(code.mul(k, width), v * lanes), 1)


@emit.register
def _(spec: WeightGradient, code: Code) -> None:
    _WeightPrinter(spec, code).run()


class _WeightPrinter:
    def __init__(self, spec: WeightGradient, code: Code) -> None:
        self.spec, self.code, self.b = spec, code, code.b
        self.image, self.dy, self.dw = (code.argument(i) for i in range(3))
        self.lanes, self.element = lanes_of(spec.dtype), lane_type(spec.dtype)
        self.type = wide(self.element, self.lanes)
        self.chunk = min(_CHUNK, -(-spec.window.pixels // self.lanes) * self.lanes)
        self.rows = min(spec.rows, _CHANNELS)
        self.packed = code.local(self.element, spec.block * self.chunk, align=VECTOR_BYTES)
        self.sums = code.local(self.element, self.rows * spec.block * self.lanes, align=VECTOR_BYTES)

    def run(self) -> None:
        code, spec = self.code, self.spec
        _, channel_blocks, weight_blocks = spec.parts
        with code.loop(code.last, code.first) as task:
            rest, block = code.divmod(task, weight_blocks)
            group, part = code.divmod(rest, channel_blocks)
            first = code.mul(block, spec.block)
            weights = code.least(code.b.sub(code.int(spec.weights), code.int(first)), spec.block)
            row = code.mul(part, _CHANNELS)
            rows = code.least(code.b.sub(code.int(spec.rows), code.int(row)), self.rows)
            zero = ir.Constant(self.type, [0.0] * self.lanes)
            with code.loop(self.rows * spec.block) as i:
                self._store(zero, self.sums, code.mul(i, self.lanes))
            with code.loop(spec.batch) as b:
                image = code.mul(code.add(code.mul(b, spec.groups), group), spec.channels * spec.window.plane)
                line = code.add(code.mul(code.add(code.mul(b, spec.groups), group), spec.rows), row)
                dy = code.mul(line, spec.window.pixels)
                with code.loop(spec.window.pixels, 0, self.chunk) as start:
                    self._pack(image, first, weights, start)
                    self._products(dy, start, rows)
            self._write(code.add(code.mul(group, spec.rows), row), rows, first, weights)

    def _store(self, value: Any, pointer: Any, offset: Any) -> None:
        self.b.store(value, self.code.at(pointer, offset, self.element), align=VECTOR_BYTES)

    def _load(self, pointer: Any, offset: Any, align: int = VECTOR_BYTES) -> Any:
        return self.b.load(self.code.at(pointer, offset, self.element), typ=self.type, align=align)

    def _pack(self, image: Any, first: Any, weights: Any, start: Any) -> None:
        """Packs the pixels that each weight of the task multiplies; missing weights keep old values, which are not
        used."""
        code, spec = self.code, self.spec
        with code.loop(weights) as n:
            channel, tap = code.divmod(code.add(first, n), spec.window.taps)
            base = code.add(image, code.mul(channel, spec.window.plane))
            with code.loop(self.chunk, 0, self.lanes) as p:
                found = Fetcher(code, spec.dtype, spec.window, code.add(start, p), tap).fetch(self.image, base)
                self._store(found, self.packed, code.add(code.mul(n, self.chunk), p))

    def _products(self, dy: Any, start: Any, rows: Any) -> None:
        code, spec = self.code, self.spec
        high, width = _TILES[code.level]
        last = spec.rows % self.rows if spec.rows > self.rows else 0
        sizes = [self.rows] if not last else [self.rows, last]
        for size in sizes:  # both are known when the kernel is emitted, so tiles have fixed sizes
            if len(sizes) == 1:
                self._block(dy, start, size, high, width)
                continue
            with code.b.if_then(code.b.icmp_signed("==", rows, code.int(size))):
                self._block(dy, start, size, high, width)

    def _block(self, dy: Any, start: Any, rows: int, high: int, width: int) -> None:
        code, spec = self.code, self.spec
        for begin, count in _cuts(rows, high):
            for first, many in _cuts(spec.block, width):
                repeat = begin[1] // count if count else 0
                with code.loop(begin[0] + repeat * count, begin[0], count) as r:
                    stop = first[0] + first[1] // many * many
                    with code.loop(stop, first[0], many) as n:
                        self._tile(dy, start, r, count, n, many)

    def _tile(self, dy: Any, start: Any, r: Any, high: int, n: Any, width: int) -> None:
        code, spec, b, lanes = self.code, self.spec, self.b, self.lanes
        pixels = spec.window.pixels
        sums = [[code.local(self.type) for _ in range(width)] for _ in range(high)]
        places = [
            [code.mul(code.add(code.mul(code.add(r, i), spec.block), code.add(n, j)), lanes) for j in range(width)]
            for i in range(high)
        ]
        for line, where in zip(sums, places):
            for place, offset in zip(line, where):
                b.store(self._load(self.sums, offset), place)

        def step(p: Any, count: int) -> None:
            right = [self._load(self.packed, code.add(code.mul(code.add(n, j), self.chunk), p)) for j in range(width)]
            for i, line in enumerate(sums):
                offset = code.add(dy, code.add(code.mul(code.add(r, i), pixels), code.add(start, p)))
                left = resized(code, Values(code, count).load(self.dy, offset, 1, spec.dtype).value, lanes)
                for place, vector in zip(line, right):
                    old = b.load(place, typ=self.type)
                    b.store(code.intrinsic(f"llvm.fma.{suffix(self.type)}", self.type, left, vector, old), place)

        tail = pixels % lanes
        stop = code.least(b.sub(code.int(pixels - tail), code.int(start)), self.chunk)
        if pixels - tail:
            with code.loop(stop, 0, lanes) as p:
                step(p, lanes)
        if tail:
            with b.if_then(b.icmp_signed("<", stop, code.int(self.chunk))):
                step(stop, tail)
        for line, where in zip(sums, places):
            for place, offset in zip(line, where):
                self._store(b.load(place, typ=self.type), self.sums, offset)

    def _write(self, row: Any, rows: Any, first: Any, weights: Any) -> None:
        code, spec = self.code, self.spec
        with code.loop(rows) as r, code.loop(weights) as n:
            vector = self._load(self.sums, code.mul(code.add(code.mul(r, spec.block), n), self.lanes))
            width = self.lanes
            while width > 1:
                width //= 2
                vector = self.b.fadd(resized(code, vector, width), self._upper(vector, width))
            offset = code.add(code.mul(code.add(row, r), spec.weights), code.add(first, n))
            Values(code, 1).store_value(vector, spec.dtype, self.dw, offset, 1)

    def _upper(self, vector: Any, width: int) -> Any:
        if width == 1:
            return self.b.extract_element(vector, self.code.int(1))
        picks = ir.Constant(wide(ir.IntType(32), width), list(range(width, 2 * width)))
        return self.b.shuffle_vector(vector, vector, picks)


def _cuts(total: int, size: int) -> list[tuple[tuple[int, int], int]]:
    """Splits ``total`` into pieces of ``size`` and a smaller rest: ((start, total length), size of a piece)."""
    whole = total - total % size
    found = [((0, whole), size)] if whole else []
    return found + ([((whole, total - whole), total - whole)] if total - whole else [])


def paired(values: tuple[int, ...], fill: int) -> Pair:
    """Two numbers, one per axis of an image; an image with one axis has one row."""
    return (fill, values[0]) if len(values) == 1 else (values[0], values[1])


def _window(node: Node, image: tuple[int, ...], out: tuple[int, ...], kernel: tuple[int, ...], back: bool) -> Window:
    stride, pad, dilation = (int_tuple(node.attrs, n) for n in ("stride", "pad", "dilation"))
    s, p, d = paired(stride, 1), paired(pad, 0), paired(dilation, 1)
    sizes = paired(image, 1), paired(out, 1), paired(kernel, 1)
    if back:
        return Window(*sizes, scale=(1, 1), step=(-d[0], -d[1]), shift=p, share=s)
    return Window(*sizes, scale=s, step=d, shift=(-p[0], -p[1]), share=(1, 1))


def _fits(node: Node) -> bool:
    """Whether the images have one or two axes, none is empty, and i32 can index their elements."""
    types = (*node.input_types, *node.types)
    return all(t.rank in (3, 4) and 0 < t.bytes < 1 << 31 for t in types)


def _correlate(node: Node, spec: Correlate) -> list[Launch] | None:
    depth = spec.window.taps * spec.channels * columns_of(spec.dtype) * spec.dtype.itemsize
    return None if depth > MAX_PANEL else [Launch(spec, node.inputs, node.outputs)]


def conv(node: Node) -> list[Launch] | None:
    """None for more than two spatial axes, for empty or huge images, and for panels above MAX_PANEL."""
    if not _fits(node):
        return None
    (x, w), y = node.input_types, node.types[0]
    groups = int_attr(node.attrs, "groups")
    window = _window(node, x.ints[2:], y.ints[2:], w.ints[2:], False)
    channels, rows = w.ints[1], w.ints[0] // groups
    size = channels * window.taps
    strides = (rows * size, size, 1, window.taps)
    return _correlate(node, Correlate(x.dtype, x.ints[0], groups, channels, rows, window, strides))


def conv_dgrad(node: Node) -> list[Launch] | None:
    """None for more than two spatial axes, for empty or huge images, and for panels above MAX_PANEL."""
    if not _fits(node):
        return None
    (dy, w), dx = node.input_types, node.types[0]
    groups = int_attr(node.attrs, "groups")
    window = _window(node, dy.ints[2:], dx.ints[2:], w.ints[2:], True)
    rows, channels = w.ints[1], w.ints[0] // groups
    size = rows * window.taps
    strides = (channels * size, window.taps, 1, size)
    return _correlate(node, Correlate(dy.dtype, dy.ints[0], groups, channels, rows, window, strides))


def conv_wgrad(node: Node) -> list[Launch] | None:
    """None for more than two spatial axes, and for empty or huge images."""
    if not _fits(node):
        return None
    (x, dy), dw = node.input_types, node.types[0]
    groups = int_attr(node.attrs, "groups")
    window = _window(node, x.ints[2:], dy.ints[2:], dw.ints[2:], False)
    spec = WeightGradient(x.dtype, x.ints[0], groups, dw.ints[1], dw.ints[0] // groups, window)
    return [Launch(spec, node.inputs, node.outputs)]


LOWERED: Final = {"conv": conv, "conv_dgrad": conv_dgrad, "conv_wgrad": conv_wgrad}
