"""Times the CPU's matrix products and convolutions against numpy's BLAS, one thread each, interleaved.

    python benchmarks/cpu_kernel_times.py [--only TEXT] [--repeats N] [--json]

Prints the median and the spread (least to most) of ours and the median of numpy's in microseconds, GFLOP/s of ours and
the ratio of the medians. A convolution's numpy is its meaning: im2col and a product. The clock is the thread's own
processor time, so that what else the machine does disturbs little.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from dslc.compiler.codegen.cpu.contraction.conv import Conv
from dslc.compiler.codegen.cpu.contraction.layouts import Window
from dslc.compiler.codegen.cpu.contraction.matmul import Matmul
from dslc.compiler.codegen.cpu.contraction.steps import Steps
from dslc.compiler.codegen.cpu.object.compile import LEVELS, object_of
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.spatial import conv as ops
from dslc.runtime.cpu.levels import machine_level

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
MATMULS = [
    ("lenet fc1", (64, 400), (120, 400), False, True),
    ("lenet fc1 dx", (64, 120), (120, 400), False, False),
    ("lenet fc1 dw", (64, 120), (64, 400), True, False),
    ("lenet fc1 one row", (1, 400), (120, 400), False, True),
    ("mlp fc1", (64, 784), (512, 784), False, True),
    ("mlp fc1 dx", (64, 512), (512, 784), False, False),
    ("mlp fc1 dw", (64, 512), (64, 784), True, False),
    ("gpt_mini qkv", (2048, 128), (384, 128), False, True),
    ("gpt_mini qkv dx", (2048, 384), (384, 128), False, False),
    ("gpt_mini qkv dw", (2048, 384), (2048, 128), True, False),
    ("gpt_mini scores", (64, 128, 32), (64, 128, 32), False, True),
    ("gpt_mini values", (64, 128, 128), (64, 128, 32), False, False),
    ("512", (512, 512), (512, 512), False, False),
    ("512 x W^T", (512, 512), (512, 512), False, True),
    ("1024", (1024, 1024), (1024, 1024), False, False),
    ("1024 x W^T", (1024, 1024), (1024, 1024), False, True),
]
CONVS = [  # name, batch, channels, out, size, k, stride, pad, groups
    ("lenet conv1", 64, 1, 6, 28, 5, 1, 2, 1),
    ("lenet conv2", 64, 6, 16, 14, 5, 1, 0, 1),
    ("resnet stem", 32, 3, 64, 32, 3, 1, 1, 1),
    ("resnet 64", 32, 64, 64, 32, 3, 1, 1, 1),
    ("resnet 64-128 /2", 32, 64, 128, 32, 3, 2, 1, 1),
    ("resnet 64-128 1x1 /2", 32, 64, 128, 32, 1, 2, 0, 1),
    ("resnet 128", 32, 128, 128, 16, 3, 1, 1, 1),
    ("resnet 256", 32, 256, 256, 8, 3, 1, 1, 1),
    ("resnet 512", 32, 512, 512, 4, 3, 1, 1, 1),
    ("mobilenet 96 /2", 1, 96, 96, 112, 3, 2, 1, 96),
    ("mobilenet 144", 1, 144, 144, 56, 3, 1, 1, 144),
    ("mobilenet 960", 1, 960, 960, 7, 3, 1, 1, 960),
    ("efficientnet 672 /2", 1, 672, 672, 14, 5, 2, 2, 672),
    ("convnext 96", 1, 96, 96, 56, 7, 1, 3, 96),
]


@dataclass(frozen=True)
class Work:
    """What is timed. ``outputs``: the shape of the result."""

    name: str
    steps: Steps
    inputs: list[np.ndarray]
    shape: tuple[int, ...]
    flops: int
    numpy: Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """Microseconds: median, least, most."""

    name: str
    ours: tuple[float, float, float]
    numpy: tuple[float, float, float]
    gflops: float
    ratio: float


class Runner:
    """A node's steps, compiled for this machine."""

    def __init__(self, work: Work) -> None:
        level = machine_level(tuple(LEVELS))
        self.jit = llvm.create_lljit_compiler()
        self.arrays = {f"in{i}": _placed(x) for i, x in enumerate(work.inputs)}
        self.arrays["out0"] = _placed(np.empty(work.shape, work.inputs[0].dtype))
        self.arrays |= {f"tmp{i}": _aligned(n) for i, n in enumerate(work.steps.scratch)}
        self.calls = []
        kernels = {f"k_{number}": step.code for number, step in enumerate(work.steps.steps)}
        builder = llvm.JITLibraryBuilder().add_object_img(object_of(kernels, level))
        for symbol in kernels:
            builder = builder.export_symbol(symbol)
        self.library = builder.add_current_process().link(self.jit, "kernels")
        for number, step in enumerate(work.steps.steps):
            values = [*(self.arrays[n].ctypes.data for n in step.args), *map(int, step.numbers)]
            args = (ctypes.c_void_p * len(values))(*values)
            self.calls.append((_CALL(self.library[f"k_{number}"]), args, step.tasks))

    def run(self) -> None:
        for call, args, tasks in self.calls:
            call(ctypes.addressof(args), 0, tasks)


def _aligned(size: int) -> np.ndarray:
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def _placed(array: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 64 bytes, as the runtime has it."""
    placed = _aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


def works() -> list[Work]:
    """All that is timed."""
    rng = np.random.default_rng(0)

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    found = []
    for name, a, b, ta, tb in MATMULS:
        x, y = random(*a), random(*b)
        left, right = (v.swapaxes(-1, -2) if t else v for v, t in ((x, ta), (y, tb)))
        out = np.matmul(left, right)
        flops = 2 * out.size * left.shape[-1]
        blas = lambda left=left, right=right, out=out: np.matmul(left, right, out=out)  # noqa: E731
        found.append(Work(name, Matmul(DType.F32, a, b, ta, tb).steps(), [x, y], out.shape, flops, blas))
    for name, batch, channels, out, size, k, stride, pad, groups in CONVS:
        into, each = channels // groups, out // groups
        spec = Conv(DType.F32, batch, groups, into, each, (Window(size, k, stride, pad, 1),) * 2)
        count = spec.space[0].count
        x, w, dy = random(batch, channels, size, size), random(out, into, k, k), random(batch, out, count, count)
        attrs = {"stride": (stride,) * 2, "pad": (pad,) * 2, "dilation": (1, 1), "groups": groups}
        back = spec.input_gradient()
        assert back is not None
        for kind, steps, inputs, target, op, more in (
            ("", spec.forward(), [x, w], dy, ops.conv, {}),
            (" dx", back, [dy, w], x, ops.conv_dgrad, {"size": (size, size)}),
            (" dw", spec.weight_gradient(), [x, dy], w, ops.conv_wgrad, {"size": (k, k)}),
        ):
            call = lambda op=op, inputs=inputs, all={**attrs, **more}: op.meaning(inputs, all)  # noqa: E731
            found.append(Work(name + kind, steps, inputs, target.shape, 2 * dy.size * w[0].size, call))
    return found


def measure(work: Work, repeats: int) -> Row:
    """Ours and numpy's by turns; short work is repeated within a sample."""
    runner = Runner(work)
    inner = max(1, int(2e5 / (work.flops / 50e3 + 1000)))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats + 1):
        for sink, call, count in ((times[0], runner.run, inner), (times[1], work.numpy, max(1, inner // 4))):
            begin = time.thread_time()
            for _ in range(count):
                call()
            if turn:  # the first warms up
                sink.append((time.thread_time() - begin) / count * 1e6)
    mine, theirs = ((statistics.median(t), min(t), max(t)) for t in times)
    return Row(work.name, mine, theirs, work.flops / mine[0] / 1e3, theirs[0] / mine[0])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only names that contain this text")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in _ONE_THREAD.items()):  # read when numpy is imported
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **_ONE_THREAD})
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if not args.json:
        print(f"{'':24}{'ours us':>10}{'least':>9}{'most':>9}{'numpy us':>10}{'GFLOP/s':>9}{'ratio':>7}")
    rows = []
    for work in works():
        if args.only not in work.name:
            continue
        row = measure(work, args.repeats)
        rows.append(asdict(row))
        if not args.json:
            print(
                f"{row.name:24}{row.ours[0]:10.0f}{row.ours[1]:9.0f}{row.ours[2]:9.0f}"
                f"{row.numpy[0]:10.0f}{row.gflops:9.1f}{row.ratio:7.2f}",
                flush=True,
            )
    if args.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
