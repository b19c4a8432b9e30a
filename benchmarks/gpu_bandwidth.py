"""Bandwidth of dslc's GPU kernels compared with a device copy, in the shapes of peers/pointwise.py.

    python benchmarks/gpu_bandwidth.py make [--arch sm_90] [--mb 256]     where CUDA can be compiled; no GPU is needed
    python benchmarks/gpu_bandwidth.py run                                on the GPU: cuda-bindings and numpy are enough

GB/s count each input and each output of the op once, whatever the kernels read. Each op is timed in turns with the copy
(CUDA graphs of ten times its launches, each begun while the one before ends, as in a session; the median of 15); its
share of the copy's bandwidth is the last column.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import gpu_graph_cases
from real_gpu.kernel_store import STORE, Reader, Writer, arguments
from real_gpu.launcher import Gpu

if TYPE_CHECKING:
    from dslc.compiler.codegen.launch import Launch

FOLDER = STORE / "bandwidth"
COLUMNS = (1024, 4096, 16384)


def cases(size: int) -> Iterator[tuple[str, str, list[Launch], int]]:
    """Name, dtype, launches, and bytes that count; ``size``: bytes of the large tensors."""
    from dslc.compiler.ir.types import DType

    for dtype in (DType.BF16, DType.F32):
        name, count = dtype.value, size // dtype.itemsize
        yield "chain8", name, _chain(count, dtype), 3 * size
        yield "gelu_add cols=4096", name, _gelu_add(count // 4096, 4096, dtype), 3 * size
        for columns in COLUMNS:
            rows = count // columns
            x, row, along = (rows, columns), (rows,), (columns,)
            shown = f"cols={columns}"
            yield f"softmax_fwd {shown}", name, _lowered("softmax", [x], dtype, axis=1), 2 * size
            yield f"softmax_bwd {shown}", name, _softmax_grad(rows, columns, dtype), 3 * size
            forward = _lowered("layernorm", [x, along, along], dtype, axis=1, eps=1e-5)
            yield f"layernorm_fwd {shown}", name, forward, 2 * size
            backward = _lowered("layernorm_grad", [x, along, row, row, x], dtype, axis=1)
            yield f"layernorm_bwd {shown}", name, backward, 3 * size
            yield f"column_sums {shown}", name, _lowered("sum", [x], dtype, over=(0,), keep=False), size
        yield "row_sums cols=4096", name, _lowered("sum", [(count // 4096, 4096)], dtype, over=(1,), keep=False), size
        yield "sum", name, _lowered("sum", [(count,)], dtype, over=(0,), keep=False), size
        yield "transpose", name, _lowered("transpose", [(count // 4096, 4096)], dtype, perm=(1, 0)), 2 * size
        image, channels = (count // (256 * 56 * 56), 256, 56, 56), (256,)
        bytes_ = int(np.prod(image)) * dtype.itemsize
        forward = _lowered("batchnorm", [image, *[channels] * 4], dtype, eps=1e-5, momentum=0.1)
        yield "batchnorm_fwd nchw", name, forward, 2 * bytes_
        yield "batchnorm_bwd nchw", name, _lowered("batchnorm_grad", [image, *[channels] * 3, image], dtype), 3 * bytes_
    yield "adam", "f32", _adam(size // 4), 7 * size
    yield from gpu_graph_cases.cases()


def _lowered(name: str, shapes: list[tuple[int, ...]], dtype: Any, **attrs: Any) -> list[Launch]:
    """The launches of a node; statistics of normalisations, given or made, are f32."""
    from itertools import combinations

    from dslc.compiler.codegen.cuda.lower import lower
    from dslc.compiler.ir.graph import Input, Kind
    from dslc.compiler.ir.op import Builder, Mismatch
    from dslc.compiler.ir.types import DType, TensorType
    from dslc.compiler.ops import registry

    for wide in (c for k in range(len(shapes)) for c in combinations(range(1, len(shapes)), k)):
        types = [TensorType(DType.F32 if i in wide else dtype, s) for i, s in enumerate(shapes)]
        values = [Input(f"x{i}", Kind.DATA, t).value for i, t in enumerate(types)]
        try:
            node = Builder(name="bench").node(registry.ops()[name], *values, **attrs)
        except (AssertionError, Mismatch):
            continue
        launches = lower(node)
        assert launches is not None, name
        return launches
    raise AssertionError(f"{name} of {dtype}")


def _pointwise(shape: tuple[int, ...], dtype: Any, others: list[tuple[int, ...]], formula: Any) -> list[Launch]:
    """A fused chain: ``formula(op, x, y, ...)`` with ``op(name, *values)``, each op rounded to the dtype."""
    from dslc.compiler.codegen.cuda.region.kernel import sized
    from dslc.compiler.codegen.launch import Launch
    from dslc.compiler.codegen.region.builder import RegionBuilder
    from dslc.compiler.codegen.region.ir import Access, broadcast_strides, dense
    from dslc.compiler.ir.graph import Input, Kind
    from dslc.compiler.ir.scalar import as_expr
    from dslc.compiler.ir.types import TensorType
    from dslc.compiler.ops import registry

    shapes = [shape, *others]
    values = [Input(f"x{i}", Kind.DATA, TensorType(dtype, s)).value for i, s in enumerate([*shapes, shape])]
    inputs = [Access(dtype, broadcast_strides(s, shape)) for s in shapes]
    builder = RegionBuilder(shape, (), inputs, [Access(dtype, dense(shape))])
    builder.row()

    def op(name: str, *args: Any, **attrs: Any) -> Any:
        return builder.let(registry.ops()[name].scalar(attrs, *(as_expr(a) for a in args)), dtype)  # type: ignore[attr-defined]

    builder.store(0, formula(op, *(builder.input(i) for i in range(len(shapes)))))
    return [sized(Launch(builder.region(), tuple(values[:-1]), (values[-1],)))]


def _chain(count: int, dtype: Any) -> list[Launch]:
    def formula(op: Any, x: Any, y: Any) -> Any:
        inner = op("sub", op("relu", op("add", op("mul", x, 1.5), y)), 0.25)
        return op("add", op("mul", op("tanh", inner), op("sigmoid", y)), x)

    return _pointwise((count,), dtype, [(count,)], formula)


def _gelu_add(rows: int, columns: int, dtype: Any) -> list[Launch]:
    def formula(op: Any, x: Any, bias: Any, r: Any) -> Any:
        return op("add", op("gelu", op("add", x, bias), approximate=True), r)

    return _pointwise((rows, columns), dtype, [(columns,), (rows, columns)], formula)


def _softmax_grad(rows: int, columns: int, dtype: Any) -> list[Launch]:
    """y * (dy - sum(y * dy)), as one kernel."""
    from dslc.compiler.codegen.launch import Launch
    from dslc.compiler.codegen.region.builder import RegionBuilder
    from dslc.compiler.codegen.region.ir import Access
    from dslc.compiler.ir.graph import Input, Kind
    from dslc.compiler.ir.types import DType, TensorType

    own = Access(dtype, (columns, 1))
    values = [Input(f"x{i}", Kind.DATA, TensorType(dtype, (rows, columns))).value for i in range(3)]
    builder = RegionBuilder((rows,), (columns,), [own, own], [own])
    y, dy = builder.input(0), builder.input(1)
    builder.element()
    total = builder.reduce("sum", builder.let(y * dy, DType.F32))
    builder.element()
    builder.store(0, builder.let(y * (dy - total), dtype))
    return [Launch(builder.region(), tuple(values[:2]), (values[2],))]


def _adam(count: int) -> list[Launch]:
    from dslc.compiler.codegen.cuda.lower import lower
    from dslc.compiler.ir.graph import Input, Kind
    from dslc.compiler.ir.op import Builder
    from dslc.compiler.ir.types import DType, TensorType
    from dslc.compiler.ops import registry

    types = [TensorType(DType.F32, (count,))] * 4 + [TensorType(DType.F32, ()), TensorType(DType.I64, ())]
    values = [Input(f"x{i}", Kind.DATA, t).value for i, t in enumerate(types)]
    attrs = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "decoupled": False}
    return lower(Builder(name="bench").node(registry.ops()["adam_update"], *values, **attrs)) or []


def make(architecture: str, megabytes: int, only: str) -> None:
    """Compiles all cases whose name holds ``only`` into ``.gpu/bandwidth``."""
    from dslc.compiler.codegen.launch import Scratch

    store = Writer(architecture)
    for name, dtype, launches, counted in cases(megabytes << 20):
        if only not in name:
            continue
        places: dict[Any, int] = {}
        sizes: list[tuple[int, str]] = []
        for launch in launches:
            for value in (*launch.reads, *launch.writes):
                if value not in places:
                    places[value] = len(sizes)
                    if isinstance(value, Scratch):
                        sizes.append((value.bytes, "f32"))
                    else:
                        sizes.append((value.type.bytes, value.type.dtype.value))
        described = store.launches(launches, places)
        store.cases.append({"name": name, "dtype": dtype, "bytes": counted, "sizes": sizes, "launches": described})
        print(f"{name} {dtype}: {len(launches)} launches", flush=True)
    store.finish(FOLDER, bytes=megabytes << 20)


def run(only: str) -> None:
    """Times all cases whose name holds ``only`` and prints a table."""
    gpu, store = Gpu(), Reader(FOLDER)
    size = store.index["bytes"]
    source, target = gpu.allocate(size), gpu.allocate(size)
    _fill(gpu, source, size, "f32")

    def copy() -> None:
        gpu.copy(target, source, size)

    print(f"{'op':28} {'dtype':5} {'us':>8} {'least':>8} {'GB/s':>7} {'copy':>7}  share of copy")
    for case in store.index["cases"]:
        if only not in case["name"]:
            continue
        addresses = []
        for bytes_, dtype in case["sizes"]:
            addresses.append(gpu.allocate(bytes_))
            _fill(gpu, addresses[-1], bytes_, dtype)
        ready = [
            (gpu.kernel(x["symbol"], store.cubin(x["symbol"])), x, arguments(x, addresses)) for x in case["launches"]
        ]

        def work(ready: Any = ready) -> None:
            for kernel, x, given in ready:
                gpu.launch(kernel, x["grid"], x["block"], x["shared"], given, x["symbol"] in store.index["waiting"])

        before = gpu.seconds(copy, 10, 5)
        times = gpu.seconds(work, 10, 15)
        after = gpu.seconds(copy, 10, 5)
        both = sorted([*before, *after])
        copied = 2 * size / both[len(both) // 2] / 1e9
        middle = times[len(times) // 2]
        speed = case["bytes"] / middle / 1e9
        numbers = f"{1e6 * middle:8.1f} {1e6 * times[0]:8.1f} {speed:7.0f} {copied:7.0f} {speed / copied:6.3f}"
        print(f"{case['name']:28} {case['dtype']:5} {numbers}", flush=True)
        for address in addresses:
            gpu.free(address)


def _fill(gpu: Gpu, address: int, size: int, dtype: str) -> None:
    """Numbers between 0.5 and 1.5; ids below 50,257 as i32; or the integer 7."""
    data: np.ndarray
    if dtype in ("f32", "bf16"):
        numbers = np.random.default_rng(0).uniform(0.5, 1.5, 1 << 18).astype(np.float32)
        data = numbers if dtype == "f32" else (numbers.view(np.uint32) >> 16).astype(np.uint16)
    elif dtype == "i32":
        data = np.random.default_rng(0).integers(0, 50257, 1 << 18, np.int32)
    else:
        data = np.full(1, 7, np.int64 if dtype == "i64" else np.uint8)
    raw = data.view(np.uint8)[:size]
    gpu.upload(address, raw)
    done = len(raw)
    while done < size:
        step = min(done, size - done)
        gpu.copy(address + done, address, step)
        gpu.wait()
        done += step


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "run"])
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    given = parser.parse_args()
    if given.what == "make":
        make(given.arch, given.mb, given.only)
    else:
        run(given.only)
