"""The gradient of a convolution's input as one kernel, for any stride.

It computes the weights times panels of pixels of the output's gradient, which are packed by kernel position; pixels
between the strides are zeros. A task is one panel of an image; k runs over kernel positions, then channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.contraction.conv_windows import Fetcher, Pair, Window
from dslc.compiler.codegen.cpu.contraction.microkernel import Matrix, Multiply, columns_of
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES, Code, lane_type, lanes_of
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr, int_tuple

MAX_PANEL_BYTES: Final = 2 << 20  # bytes on a thread's stack


@described("Correlate", "dtype batch groups channels rows window weight")
@dataclass(frozen=True, slots=True)
class InputGradient(KernelSpec):
    """out[b, g*rows + r, pixel] = sum over kernel positions (taps) and channels of weight * image[b, g*channels + c,
    p]; p is the input pixel that ``window`` assigns to the pixel and tap (``conv_windows.py``).

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

    @property
    def tasks(self) -> int:
        return self.batch * self.groups * self.panels if self.rows else 0

    def emit(self, code: Code) -> None:
        image, weight, out = (code.argument(i) for i in range(3))
        width, pixels = columns_of(self.dtype), self.window.pixels
        depth = self.window.taps * self.channels
        panel = code.local(lane_type(self.dtype), depth * width, align=VECTOR_BYTES)
        with code.loop(code.last, code.first) as task:
            rest, number = code.divmod(task, self.panels)
            b, g = code.divmod(rest, self.groups)
            start = code.mul(number, width)
            base = code.mul(code.add(code.mul(b, self.groups), g), self.channels * self.window.plane)
            self._pack_panel(code, image, base, panel, start)
            left = Matrix(weight, code.mul(g, self.weight[0]), self.weight[1])
            out_base = code.mul(code.add(code.mul(b, self.groups), g), self.rows * pixels)
            result = Matrix(out, code.add(out_base, start), pixels)
            loops = ((self.window.taps, self.weight[2]), (self.channels, self.weight[3]))

            def multiply(columns: int) -> None:
                Multiply(code, self.dtype, left, panel, loops, result, self.rows, columns).run(0, self.rows)

            whole = pixels // width
            if whole == self.panels:
                multiply(width)
            elif whole == 0:
                multiply(pixels)
            else:
                with code.b.if_else(code.b.icmp_signed("<", number, code.int(whole))) as (then, otherwise):
                    with then:
                        multiply(width)
                    with otherwise:
                        multiply(pixels % width)

    def _pack_panel(self, code: Code, image: Any, base: Any, panel: Any, start: Any) -> None:
        lanes, width = lanes_of(self.dtype), columns_of(self.dtype)
        vectors = min(width, -(-self.window.pixels // lanes) * lanes) // lanes
        values = Values(code, lanes)
        for v in range(vectors):
            with code.loop(self.window.taps) as tap:
                fetcher = Fetcher(code, self.dtype, self.window, code.add(start, v * lanes), tap)
                with code.loop(self.channels) as channel:
                    found = fetcher.fetch(image, code.add(base, code.mul(channel, self.window.plane)))
                    k = code.add(code.mul(tap, self.channels), channel)
                    values.store_value(found, self.dtype, panel, code.add(code.mul(k, width), v * lanes), 1)


def paired(values: tuple[int, ...], fill: int) -> Pair:
    """Two numbers, one per axis of an image; an image with one axis has one row."""
    return (fill, values[0]) if len(values) == 1 else (values[0], values[1])


def conv_dgrad(node: Node) -> list[Launch] | None:
    """None for more than two spatial axes, for empty or huge images, and for panels above MAX_PANEL_BYTES."""
    types = (*node.input_types, *node.types)
    if not all(t.rank in (3, 4) and 0 < t.bytes < 1 << 31 for t in types):  # i32 must index all elements
        return None
    (dy, w), dx = node.input_types, node.types[0]
    groups = int_attr(node.attrs, "groups")
    stride, pad, dilation = (int_tuple(node.attrs, n) for n in ("stride", "pad", "dilation"))
    image, out, kernel = (paired(size, 1) for size in (dy.ints[2:], dx.ints[2:], w.ints[2:]))
    step = paired(dilation, 1)
    window = Window(image, out, kernel, (1, 1), (-step[0], -step[1]), paired(pad, 0), paired(stride, 1))
    rows, channels = w.ints[1], w.ints[0] // groups
    if window.taps * channels * columns_of(dy.dtype) * dy.dtype.itemsize > MAX_PANEL_BYTES:
        return None
    size = rows * window.taps
    strides = (channels * size, window.taps, 1, size)
    spec = InputGradient(dy.dtype, dy.ints[0], groups, channels, rows, window, strides)
    return [Launch(spec, node.inputs, node.outputs)]
