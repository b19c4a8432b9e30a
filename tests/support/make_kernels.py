"""Compiles the kernels of all samples for a GPU, with inputs and what shall come out: ``.gpu/kernels``.

    python tests/support/make_kernels.py [ARCHITECTURE] [OP ...]

Needs the packages that compile for CUDA and no GPU; takes some minutes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from gpu_kernels import simulator
from gpu_kernels.sample_nodes import OPS, SAMPLES, TOLERANCE, node_of, tolerance, wanted
from op_laws.evaluation import apply, values_of
from real_gpu.kernel_store import STORE, Writer
from real_gpu.planted import TEXTS, text

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.toolchain.nvrtc import compile_cuda

#: Of the samples, every how many for a dtype; the texts of all are tested without a GPU.
EVERY = {"f32": 1, "bf16": 2, "f64": 6, "f16": 6}
#: Sizes at which rows are split, held, or read in pieces: shapes, attributes.
LARGE: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("sum", [(400_003,)], {"over": (0,), "keep": False}),
    ("sum", [(2503, 256)], {"over": (0,), "keep": False}),
    ("sum", [(3600, 60)], {"over": (0,), "keep": False}),  # parts of several pieces
    ("sum", [(25_088, 64)], {"over": (0,), "keep": False}),
    ("max", [(700, 20)], {"over": (0,), "keep": False}),  # few threads along a line, many down it
    ("pad", [(40, 31, 3)], {"low": (0, 2, 1), "high": (0, 1, 4), "interior": (0, 0, 0), "value": 0.5}),
    ("pad", [(1003, 64)], {"low": (0, 0), "high": (21, 0), "interior": (0, 0), "value": -1.5}),  # rows after the others
    ("max", [(3, 70_001)], {"over": (1,), "keep": False}),
    ("softmax", [(50, 5000)], {"axis": 1}),
    ("softmax", [(5, 40_000)], {"axis": 1}),
    ("log_softmax", [(200, 1024)], {"axis": 1}),
    ("layernorm", [(200, 768), (768,), (768,)], {"axis": 1, "eps": 1e-5}),
    ("layernorm_grad", [(67_601, 24), (24,), (67_601,), (67_601,), (67_601, 24)], {"axis": 1}),  # in one sweep
    ("layernorm_grad", [(1000, 256), (256,), (1000,), (1000,), (1000, 256)], {"axis": 1}),
    ("batchnorm", [(16, 24, 28, 28), (24,), (24,), (24,), (24,)], {"eps": 1e-5, "momentum": 0.1}),
    ("batchnorm_grad", [(16, 24, 28, 28), (24,), (24,), (24,), (16, 24, 28, 28)], {}),
    ("transpose", [(515, 1030)], {"perm": (1, 0)}),
    ("transpose", [(4, 97, 12, 64)], {"perm": (0, 2, 1, 3)}),
    ("add", [(200, 777), (777,)], {}),
]

#: Attention in tiles: queries, keys, features, causal, heads of q for one of k, window (0: none), and the shape of a
#: mask, whose first query sees no key, and of a bias.
ATTENTION: tuple[tuple[int, int, int, bool, int, int, tuple[int, ...], tuple[int, ...]], ...] = (
    (130, 130, 64, True, 1, 0, (), ()), (77, 203, 64, False, 1, 0, (), ()), (200, 200, 32, True, 1, 0, (), ()),
    (1, 65, 32, False, 1, 0, (), ()), (192, 192, 128, True, 1, 0, (), ()), (65, 100, 128, False, 1, 0, (), ()),
    (77, 203, 64, False, 1, 0, (2, 1, 1, 203), ()), (70, 130, 32, False, 2, 0, (2, 1, 70, 130), ()),
    (130, 130, 64, True, 2, 0, (), ()), (200, 200, 128, True, 1, 50, (200, 200), ()),
    (300, 300, 32, False, 2, 70, (), ()),
    (65, 101, 64, False, 1, 0, (2, 2, 65, 101), ()), (300, 300, 64, True, 2, 33, (2, 1, 1, 300), ()),
    (130, 130, 16, True, 1, 0, (), ()), (77, 203, 40, False, 2, 0, (), ()),
    (130, 97, 96, False, 1, 0, (2, 1, 1, 97), ()),
    (49, 49, 32, False, 1, 0, (), (2, 49, 49)), (49, 49, 32, True, 1, 0, (2, 1, 1, 49), (2, 2, 49, 49)),
    (130, 97, 64, False, 1, 0, (), (2, 130, 97)), (130, 130, 128, True, 1, 0, (130, 130), (2, 1, 1, 130)),
)  # fmt: skip


def attention(
    dtype: DType, queries: int, keys: int, features: int, causal: bool, share: int, window: int, mask: tuple[int, ...],
    bias: tuple[int, ...],
) -> Iterator[tuple[Node, Any, Any]]:  # fmt: skip
    """Nodes of ``sdpa`` and its gradient with inputs and results, for 16-bit floats or, of f32, in TF32."""
    rng = np.random.default_rng(queries)
    attrs = {"causal": causal, "scale": features**-0.5, **({"window": window} if window else {})}
    told = {**attrs, **({} if dtype.is_half else {"tf32": True})}
    sizes = ((2, queries), (2 // share, keys), (2 // share, keys), (2, queries))
    bits = dtype if dtype.is_half else DType.F16  # as many of mantissa as TF32
    q, k, v, dy = (simulator.held(rng.normal(size=(2, *size, features)), bits) for size in sizes)
    terms = [rng.random(mask) < 0.5] if mask else []
    if mask and mask[-2] > 1:
        terms[0][..., 0, :] = False
    terms += [simulator.held(rng.normal(size=bias), bits)] if bias else []
    values = [Input("x", Kind.DATA, TensorType(dtype, x.shape)).value for x in (q, k, v, dy)]
    kinds = [DType.B1 if x.dtype == bool else dtype for x in terms]
    read = [Input("term", Kind.DATA, TensorType(kind, x.shape)).value for kind, x in zip(kinds, terms)]
    trained = {"bias": True} if bias else {}
    forward = Builder(name="large").node(OPS["sdpa"], *values[:3], *read, **told)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    results = [np.asarray(y, np.float32) for y in apply(forward.op, [*wide, *terms], attrs)]
    yield forward, [q, k, v, *terms], results
    y, lse = (simulator.held(x, o.type.dtype) for x, o in zip(results, forward.outputs))
    slopes = (*values[:3], *forward.outputs, values[3], *read)
    back = Builder(name="large").node(OPS["sdpa_grad"], *slopes, **told, **trained)
    given = [*wide, y.astype(np.float64), lse.astype(np.float64), dy.astype(np.float64), *terms]
    found = apply(back.op, given, {**attrs, **trained})
    yield back, [q, k, v, y, lse, dy, *terms], [np.asarray(x, np.float32) for x in found]


class _Maker:
    def __init__(self, architecture: str) -> None:
        self.store = Writer(architecture)

    def case(self, name: str, node: Node, xs: list[np.ndarray], after: list[np.ndarray], close: Any) -> bool:
        """Adds a case; False where the GPU has no kernels for the node."""
        launches = lower(node)
        if launches is None:
            return False
        buffers: list[dict[str, Any]] = []
        places: dict[Any, int] = {}

        def place(key: Any, **described: Any) -> None:
            places[key] = len(buffers)
            buffers.append(described)

        for v, x in zip(node.inputs, xs):
            if v not in places:
                held = simulator.memory(np.array(x), v.type.dtype)
                place(v, bytes=held.nbytes, before=self.store.array(held))
        for v, x in zip(node.outputs, after):
            place(v, bytes=v.type.bytes, dtype=v.type.dtype.value, after=self.store.array(x))
        for launch in launches:
            for block in launch.scratch:
                if block not in places:
                    place(block, bytes=block.bytes)
        self.store.cases.append(
            {
                "name": name,
                "close": close,
                "buffers": buffers,
                "launches": self.store.launches(launches, places),
            }
        )
        return True


def main(architecture: str = "sm_90", *only: str) -> None:
    """Prints what was made, and the ops that have no kernels."""
    maker, without, begin = _Maker(architecture), set(), time.perf_counter()
    names = [n for n in sorted(SAMPLES) if n in OPS and not OPS[n].view and (not only or n in only)]
    for name in names:
        for number in range(len(SAMPLES[name])):
            for dtype in TOLERANCE:
                if number % EVERY[dtype]:
                    continue
                node, xs = node_of(name, number, dtype)
                after = wanted(node, xs, dtype)
                if after is not None and not maker.case(
                    f"{name} {number} {dtype}", node, xs, after, tolerance(name, dtype)
                ):
                    without.add(name)
    rng = np.random.default_rng(0)
    for name, shapes, attrs in LARGE:
        if only and name not in only:
            continue
        xs = [(rng.integers(8, 24, shape) / 16).astype(np.float32) for shape in shapes]  # numbers that compress
        node = Builder(name="large").node(OPS[name], *values_of(xs), **attrs)
        wide = apply(node.op, [x.astype(np.float64) for x in xs], node.attrs)
        size = max(1.0, *(float(np.max(np.abs(w))) for w in wide))
        after = [np.asarray(w, np.float32) for w in wide]
        assert maker.case(f"{name} {shapes[0]} f32", node, xs, after, (1e-4, 2e-6 * size)), name
    for dtype in (DType.BF16, DType.F16, DType.F32):
        for sizes in ATTENTION:
            for node, xs, after in attention(dtype, *sizes):
                size = max(float(np.max(np.abs(x[np.isfinite(x)]))) for x in after)
                close = (2**-6, 2**-7 * size) if dtype is DType.BF16 else (2**-9, 2**-10 * size)
                if not only or node.op.name in only:
                    assert maker.case(f"{node.op.name} {sizes} {dtype}", node, xs, after, close)
    planted = {f"planted_{tool}": compile_cuda(text(tool), architecture)[1] for tool in TEXTS}
    maker.store.finish(STORE / "kernels", planted)
    kernels, cases, size = len(maker.store.kernels), len(maker.store.cases), len(maker.store.data) >> 20
    print(f"{cases} cases, {kernels} kernels, {size} MiB in {time.perf_counter() - begin:.0f} s")
    print("without kernels:", " ".join(sorted(without)) or "none")


if __name__ == "__main__":
    main(*sys.argv[1:])
