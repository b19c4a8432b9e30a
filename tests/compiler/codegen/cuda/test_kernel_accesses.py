"""Every kind of kernel as compiled, thread by thread: no access outside of a tensor, no two threads that meet in memory
without a barrier between them, no barrier that some threads do not come to; and the values of the op's meaning.

A run takes the smallest sample of each op that has CUDA C++, a list of kernels that use shared memory, and a share of
the other samples of op_samples, chosen by DSLC_PART; with DSLC_SOAK=1 all of them up to 20,000 threads.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_kernels import ptx_machine, simulator
from gpu_kernels.accesses import Race
from gpu_kernels.kernel_sources import ops_of
from gpu_kernels.on_ptx_machine import on_machine, threads_of
from gpu_kernels.sample_nodes import NUMPY, OPS, SAMPLES, node_of, tolerance, wanted
from op_laws.evaluation import apply
from thinning import SOAK, turn
from tuning import planted

from dslc.base.errors import DslcError
from dslc.compiler.codegen.cuda import compare, cuda_cpp
from dslc.compiler.codegen.cuda.attention import lower as attention
from dslc.compiler.codegen.cuda.attention.tiled import TiledAttention
from dslc.compiler.codegen.cuda.attention.tiles import TILES, Tile, width_of
from dslc.compiler.codegen.cuda.compile import compiled
from dslc.compiler.codegen.cuda.contraction import lower as contraction
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops import algebra, paths, pooling, recurrence, running, running_logs, suppress
from dslc.compiler.codegen.cuda.ops import random as cuda_random
from dslc.compiler.codegen.cuda.ops.copies import concat, indexing
from dslc.compiler.codegen.cuda.ops.fourier import lower as fourier
from dslc.compiler.codegen.cuda.ops.scatter import row_order, scatter, scatter_rows
from dslc.compiler.codegen.cuda.ops.sort import sort, topk
from dslc.compiler.codegen.cuda.region.reduction import row_column_sweep
from dslc.compiler.codegen.cuda.region.reduction.sweep import Sweep
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region import random
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.random.orthogonal import orthonormal
from dslc.runtime.artifact.dtypes import numpy_dtype

pytestmark = pytest.mark.slow

MOST_THREADS = 20_000 if SOAK else 2000  # of a sample; 1,000 take some seconds
CPP = ops_of(
    algebra,
    contraction,
    pooling,
    cuda_random,
    random,
    attention,
    concat,
    indexing,
    fourier,
    paths,
    recurrence,
    row_order,
    running,
    running_logs,
    scatter,
    scatter_rows,
    sort,
    suppress,
    topk,
)
HEAVY = ("init_trunc_normal",) if not SOAK else ()  # draws until a number fits: a quarter of a minute


def checked(node: Node, xs: list[np.ndarray], name: str, dtype: str) -> None:
    after = wanted(node, xs, dtype)
    if after is None:
        return  # data that the entrance refuses
    rtol, atol = tolerance(name, dtype)
    for got, want in zip(on_machine(node, xs), after, strict=True):
        finite = np.abs(want[np.isfinite(want)]) if want.dtype.kind == "f" else np.zeros(0)
        most = max(1.0, float(finite.max(initial=0.0)))
        np.testing.assert_allclose(got, want, rtol=2 * rtol, atol=2 * atol * most)


def sized(name: str) -> list[tuple[int, int, str]]:
    """The samples of an op that the GPU has kernels for, smallest first: threads, number, dtype."""
    found = []
    for number in range(len(SAMPLES[name])):
        dtype = ("f32", "bf16", "f64")[number % 3]
        try:
            node, _ = node_of(name, number, dtype)
        except (AssertionError, DslcError):
            continue  # an op that takes no such floats
        threads = threads_of(node) if node.types[0].bytes else 0
        if threads:
            found.append((threads, number, dtype))
    return sorted(found)


def chosen(name: str) -> list[tuple[int, str]]:
    """Of a normal run: the two smallest samples, and the smallest one of each set of kernels' files."""
    cases, seen = sized(name), set[frozenset[str]]()
    found = []
    for place, (threads, number, dtype) in enumerate(cases):
        kernels = files_of(node_of(name, number, dtype)[0])
        if (SOAK and threads <= MOST_THREADS) or place < 2 or kernels not in seen:
            found.append((number, dtype))
        seen.add(kernels)
    return found


def files_of(node: Node) -> frozenset[str]:
    """The files of kernels that the node's launches come from."""
    return frozenset(getattr(x.code, "file", "") for x in lower(node) or []) - {""}


@pytest.mark.parametrize("name", [n for n in CPP if n not in HEAVY])
def test_an_op_with_a_kernel_in_cuda_cpp(name: str) -> None:
    for number, dtype in chosen(name):
        checked(*node_of(name, number, dtype), name, dtype)


#: The files of kernels that no sample of an op is large enough for, and where they run thread by thread.
ELSEWHERE = {
    "attention.cu": "test_kernel_accesses.py",
    "boxes.cu": "ops/copies/test_boxes.py",
    "chain.cu": "chain/test_chain_kernel.py",
    "compare.cu": "test_kernel_accesses.py",
    "each_element.cu": "recurrent/test_each_element.py",
    "few_channels_sums.cu": "contraction/test_few_channels.py",
    "pair_gradient.cu": "attention/test_bias.py",
    "few_queries.cu": "attention/test_few_queries.py",
    "few_queries_join.cu": "attention/test_few_queries.py",
    "few_rows.cu": "contraction/test_few_rows.py",
    "from_few_channels.cu": "contraction/test_few_channels.py",
    "gather_tables.cu": "ops/scatter/test_together.py",
    "groups.cu": "contraction/test_groups.py",
    "groups_sums.cu": "contraction/test_groups.py",
    "mma.cu": "contraction/test_contract_ptx.py",
    "outside.cu": "test_outside.py",
    "packed_taps.cu": "contraction/test_packed_taps.py",
    "packed_taps_sums.cu": "contraction/test_packed_taps.py",
    "put_rows.cu": "ops/copies/test_put_rows.py",
    "resident.cu": "recurrent/test_resident.py",
    "running.cu": "ops/test_running.py",
    "scatter_atomic.cu": "ops/scatter/test_scatter_atomic.py",
    "scatter_bins.cu": "ops/scatter/test_scatter_elements.py",
    "scatter_block.cu": "ops/scatter/test_scatter_block.py",
    "scatter_few.cu": "ops/scatter/test_scatter_few.py",
    "scatter_sorted.cu": "ops/scatter/test_scatter_sorted.py",
    "sort_block.cu": "ops/sort/test_sort.py",
    "sort_digits.cu": "ops/sort/test_sort.py",
    "to_few_channels.cu": "contraction/test_few_channels.py",
}


def test_every_file_of_kernels_is_run_thread_by_thread() -> None:
    nodes = [node_of(name, *case)[0] for name in CPP for case in chosen(name)]
    found = frozenset[str]().union(*map(files_of, nodes))
    assert found | ELSEWHERE.keys() == {name for name in cuda_cpp.kernel_files() if name.endswith(".cu")}
    for name in set(ELSEWHERE.values()):
        text = (Path(__file__).parent / name).read_text()
        assert re.search(r"\b(?:on_machine|ptx_machine|compared)\b", text), name


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
def test_the_kernel_that_compares_two_tensors(dtype: str) -> None:
    count, blocks = 700, 2
    rng = np.random.default_rng(3)
    x, r = (rng.normal(0, 100, count).astype(np.int32 if dtype == "i32" else np.float32) for _ in range(2))
    if dtype != "i32":
        x[[5, 6, 7]], r[[5, 6]], r[9] = [np.inf, np.nan, np.nan], [-np.inf, np.nan], 0
    held = [simulator.memory(each, DType(dtype)) for each in (x, r)]
    parts = np.full(blocks * compare.PARTS, np.nan)
    launch = Launch(compare.Compare(DType(dtype)), (), ())
    ptx = compiled(launch.code, launch.symbol, "sm_90").ptx.decode("ascii")
    threads = launch.spec.geometry.block[0]
    given = (("i64", count), ("f64", 0.25), ("f64", 0.5))
    ptx_machine.run(ptx, (blocks, 1, 1), threads, [*held, parts], given, launch.spec.geometry.shared_bytes)
    a, b = (simulator.values(each, DType(dtype)).astype(np.float64) for each in held)
    found = parts.reshape(blocks, compare.PARTS)
    got = [found[:, 0].max(), *found[:, 1:].sum(axis=0)]
    assert got == pytest.approx(planted.parts_of(a, b, 0.25, 0.5), rel=1e-12)
    assert 0 < got[4] < got[5] and got[3] == (0 if dtype == "i32" else 2)


def others() -> list[Any]:
    names = [n for n in sorted(SAMPLES) if n in OPS and not OPS[n].view and n not in CPP]
    share = 1 if SOAK else 12
    return names[turn(share) :: share]


@pytest.mark.parametrize("name", others())
def test_an_op_whose_kernels_are_printed(name: str) -> None:
    for threads, number, dtype in sized(name) if SOAK else sized(name)[:3]:
        if threads <= MOST_THREADS:
            checked(*node_of(name, number, dtype), name, dtype)


#: Kernels that use shared memory: op, shapes, attributes, dtypes.
SHARED: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any], tuple[str, ...]]] = {
    "row over warps": ("softmax", [(3, 333)], {"axis": 1}, ("f32", "bf16")),
    "row with two sums": ("layernorm", [(2, 517), (517,), (517,)], {"axis": 1, "eps": 1e-5}, ("f32",)),
    "columns over parts": ("sum", [(130, 5)], {"over": (0,), "keep": False}, ("f32", "bf16", "f64")),
    "columns of 8 warps": ("max", [(700, 20)], {"over": (0,), "keep": False}, ("f32",)),
    "one row": ("sum", [(1501,)], {"over": (0,), "keep": False}, ("f32", "f64")),
    "tiles turned": ("transpose", [(67, 45)], {"perm": (1, 0)}, ("f32", "bf16", "f64")),
    "tiles turned by vectors": ("transpose", [(68, 40)], {"perm": (1, 0)}, ("f32", "bf16")),
    "tiles turned in a stack": ("transpose", [(2, 33, 3, 35)], {"perm": (2, 3, 0, 1)}, ("f32",)),
    "running sums": ("cumsum", [(2, 333)], {"axis": 1, "reverse": False}, ("f32", "bf16")),
    "first of a line": ("topk", [(1, 333)], {"axis": 1, "k": 4, "largest": True}, ("f32", "bf16")),  # of 8 warps
    "norm of columns": ("batchnorm_grad", [(3, 5, 7, 7), (5,), (5,), (5,), (3, 5, 7, 7)], {}, ("f32",)),
}  # fmt: skip


def case(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], dtype: str) -> tuple[Node, list[np.ndarray]]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    kind = DType(dtype)
    xs = [simulator.held(rng.uniform(0.5, 1.5, s).astype(NUMPY[dtype]), kind) for s in shapes]
    values = [Input("x", Kind.DATA, TensorType(kind, s)).value for s in shapes]
    return Builder(name="here").node(OPS[op], *values, **attrs), xs


@pytest.mark.parametrize("what", SHARED)
def test_kernels_that_use_shared_memory(what: str) -> None:
    op, shapes, attrs, dtypes = SHARED[what]
    for dtype in dtypes:
        checked(*case(op, shapes, attrs, dtype), op, dtype)


SCATTERED = [(name, number) for name in ("scatter_add", "scatter_reduce") for number in range(len(SAMPLES[name]))]


@pytest.mark.parametrize(("name", "number"), SCATTERED)
def test_many_scattered_elements_are_sorted(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    monkeypatch.setattr(scatter, "_MAX_SCANNED", 0)
    monkeypatch.setattr(scatter, "part_of", lambda length: 2)
    for dtype in ("f32", "bf16"):
        checked(*node_of(name, number, dtype), name, dtype)


def test_rows_take_turns_with_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each team of two blocks has several rows: warps that are done with one begin the next."""
    monkeypatch.setattr(row_column_sweep, "MULTIPROCESSORS", 2)
    monkeypatch.setattr(row_column_sweep, "RESIDENT", 96)
    node, xs = case("layernorm_grad", [(40, 520), (520,), (40,), (40,), (40, 520)], {"axis": 1}, "f32")
    specs = [launch.spec for launch in lower(node) or []]
    assert any(isinstance(s, Sweep) and s.steps > 2 and s.geometry.block[0] > 32 for s in specs), specs
    checked(node, xs, "layernorm_grad", "f32")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_pooling_of_nan_and_ties(dtype: str) -> None:
    """nan counts as largest, the first of equal ones is taken, and zeros stand around the image for none."""
    image = np.array([[1, 1, -np.inf, 2, 3], [1, 1, np.nan, np.nan, 3], [0, np.nan, 5, 5, -1]], np.float32)
    xs = [np.stack([image, image[::-1]])[None]]
    value = Input("x", Kind.DATA, TensorType(DType(dtype), xs[0].shape)).value
    for attrs in ({"k": (2, 2), "stride": (1, 2), "pad": (1, 0)}, {"k": (3, 2), "stride": (2, 1), "pad": (1, 1)}):
        node = Builder(name="here").node(OPS["maxpool"], value, **attrs)
        for got, want in zip(on_machine(node, xs), apply(node.op, xs, attrs), strict=True):
            np.testing.assert_array_equal(got, want)


def test_an_id_beyond_the_table() -> None:
    """One that is as large as the table, and one below 0: nothing is touched outside, and the table is nan."""
    for wrong in (2, -1):
        rows, ids = np.ones((3, 3), np.float32), np.array([0, wrong, 1], np.int32)
        values = [Input(n, Kind.DATA, TensorType(d, x.shape)).value
                  for n, d, x in (("rows", DType.F32, rows), ("ids", DType.I32, ids))]  # fmt: skip
        node = Builder(name="here").node(OPS["scatter_rows_add"], *values, count=2)
        [got] = on_machine(node, [rows, ids])
        assert np.isnan(got).all()


@pytest.mark.parametrize("shape", [(2, 61), (5, 3)] if SOAK else [(3, 2)])
def test_rows_that_depend_on_each_other_are_replaced(shape: tuple[int, int]) -> None:
    """A matrix of rank 1, wider than a block and taller than wide, is completed to an orthonormal one."""
    x, y = np.ones(shape, np.float32), np.full(shape, np.nan, np.float32)
    vectors = np.full(shape, np.nan)
    spec = cuda_random.Orthogonal(DType.F32, *shape, 2.0)
    ptx = compiled(spec, "k", "sm_90").ptx.decode("ascii")
    ptx_machine.run(ptx, 1, spec.geometry.block[0], [x.reshape(-1), y.reshape(-1), vectors.reshape(-1)])
    wide = (y if shape[0] < shape[1] else y.T).astype(np.float64)
    np.testing.assert_allclose(wide @ wide.T, 4 * np.eye(min(shape)), atol=1e-5)
    want = 2 * orthonormal(np.ones(sorted(shape)))
    np.testing.assert_allclose(wide, want, atol=1e-6)


def test_rows_wider_than_a_warp_are_made_orthonormal() -> None:
    """Warps own rows while these are read and made smaller, and columns while one of them is measured."""
    shape = (3, 70)
    x = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    y, vectors = np.full(shape, np.nan, np.float32), np.full(shape, np.nan)
    spec = cuda_random.Orthogonal(DType.F32, *shape, 2.0)
    ptx = compiled(spec, "k", "sm_90").ptx.decode("ascii")
    ptx_machine.run(ptx, 1, spec.geometry.block[0], [x.reshape(-1), y.reshape(-1), vectors.reshape(-1)])
    np.testing.assert_allclose(y, 2 * orthonormal(x.astype(np.float64)), atol=1e-6)


#: What each query may see: all, the keys up to it, near keys, by a mask of keys, or by one of queries and keys, whose
#: lines are copied to shared memory where they are multiples of 4 bytes: "wide".
SEEN = (
    "all",
    "causal",
    "keys",
    "pairs",
    "causal pairs",
    "near",
    "near causal",
    "near pairs",
    "wide keys",
    "wide pairs",
)
ATTENTION = [(mode, features - less, seen) for mode, features in TILES for seen in SEEN for less in (0, 8)]
_BRIEF = [("forward", "causal"), ("forward", "all"), ("dq", "causal"), ("dkdv", "causal")]
_BRIEF += [(mode, seen) for mode in ("forward", "dq", "dkdv") for seen in ("keys", "pairs", "near causal")]
_BRIEF += [("dkdv", "near pairs")]
#: As above; of more features than one kernel by keys has registers for; with masks that are copied.
_SLOW = [("forward", 136, "all"), ("dq", 136, "near causal"), ("dk", 136, "causal"), ("dk", 136, "near pairs")]
_SLOW += [("dv", 136, "pairs"), ("dv", 136, "keys"), ("forward", 32, "wide keys"), ("dkdv", 32, "wide keys")]
_SLOW += [(mode, 32, "wide pairs") for mode in ("forward", "dq", "dkdv")]


@pytest.mark.parametrize(
    ("mode", "features", "seen"),
    ATTENTION
    if SOAK
    else [(mode, 24 if seen == "keys" else 32, seen) for mode, seen in _BRIEF]
    + [pytest.param(*each, marks=pytest.mark.slow) for each in _SLOW],
)
def test_attention_in_tiles(mode: Any, features: int, seen: str) -> None:
    _attended(mode, DType.F16, features, seen, TILES[mode, width_of(features)])


#: In TF32, with small tiles: by mode, features, what is seen, warps, tall, others and whether rows are held.
_TF32 = [
    ("forward", 32, "causal", 2, 1, 16, True), ("forward", 64, "wide keys", 1, 1, 32, True),
    ("forward", 40, "pairs", 1, 2, 32, False), ("dq", 32, "near causal", 1, 1, 32, False),
    ("dq", 72, "keys", 1, 1, 16, True), ("dkdv", 32, "wide pairs", 1, 1, 16, False),
    ("dkdv", 24, "near pairs", 1, 1, 16, False), ("dk", 136, "causal", 1, 1, 16, False),
    ("dv", 136, "keys", 1, 1, 16, True), ("forward", 256, "all", 1, 1, 16, False),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "features", "seen", "warps", "tall", "others", "held"), _TF32)
def test_attention_in_tf32(mode: Any, features: int, seen: str, warps: int, tall: int, others: int, held: bool) -> None:
    _attended(mode, DType.F32, features, seen, Tile(warps, tall, others, 2, held))


def _attended(mode: Any, dtype: DType, features: int, seen: str, tile: Tile) -> None:
    """Queries and keys that fill no tile, and more keys than are in flight; a mask hides all keys of some queries. With
    near keys, two heads of q read one of k. Operands in f32 are nearest to the 10 bits that are known."""
    rng = np.random.default_rng(features)
    causal = "causal" in seen
    own, other = tile.rows - 3, tile.others * tile.stages + (6 if seen == "keys" else 5)  # even: pairs of keys
    if causal or "near" in seen:
        own = other = max(own, other)
    queries, keys = (own, other) if mode in ("forward", "dq") else (other, own)
    if "wide" in seen:
        keys = keys // 4 * 4 - (4 if "pairs" in seen and keys // 4 % 2 else 0)
        own, other = (queries, keys) if mode in ("forward", "dq") else (keys, queries)
    share, window = (2, tile.others // 2 + 3) if "near" in seen else (1, 0)
    attrs = {"causal": causal, "scale": features**-0.5, **({"window": window} if window else {})}
    sizes = ((share, queries), (1, keys), (1, keys), (share, queries))
    q, k, v, dy = (simulator.held(rng.normal(size=(1, *size, features)), DType.F16) for size in sizes)
    q[..., 0], k[..., 0] = 6, -6  # all scores lie far below 0, that of a key that is not there
    wide = [x.astype(np.float64) for x in (q, k, v)]
    mask: list[np.ndarray] = []
    strides: tuple[int, ...] = ()
    if "keys" in seen:
        mask, strides = [rng.random((1, 1, 1, keys)) < 0.5], (0, 0, 0, 0, 1)
    elif "pairs" in seen:
        mask, strides = [rng.random((1, share, queries, keys)) < 0.5], (0, 0, queries * keys, keys, 1)
        mask[0][0, :, ::7] = False
    y, lse = (np.asarray(x, np.float32) for x in apply(OPS["sdpa"], [*wide, *mask], attrs))
    given = [*wide, y.astype(np.float64), lse.astype(np.float64), dy.astype(np.float64), *mask]
    dq, dk, dv = apply(OPS["sdpa_grad"], given, attrs)
    delta = np.float32((dy.astype(np.float64) * y).sum(-1))
    reads, after = {
        "forward": ([q, k, v, *mask], [y, lse]),
        "dq": ([q, k, v, lse, delta, dy, *mask], [dq]),
        "dkdv": ([q, k, v, lse, delta, dy, *mask], [dk, dv]),
        "dk": ([q, k, v, lse, delta, dy, *mask], [dk]),
        "dv": ([q, k, v, lse, delta, dy, *mask], [dv]),
    }[mode]
    by_query, by_key = ((0, 0, n * features, features) for n in (queries, keys))
    rows = {
        "forward": (by_query, by_key, by_key, by_query),
        "dq": (by_query, by_key, by_key, by_query, by_query),
        "dkdv": (by_query, by_key, by_key, by_query, by_key, by_key),
        "dk": (by_query, by_key, by_key, by_query, by_key),
        "dv": (by_query, by_key, by_key, by_query, by_key),
    }[mode]
    stack, parts = share if mode in ("forward", "dq") else 1, 1
    if mode not in ("forward", "dq") and seen == "near pairs":  # a result for each head of q
        stack, parts, heads = share, share, [np.repeat(x, share, 1) for x in (k, v)]
        slopes = apply(OPS["sdpa_grad"], [given[0], *heads, *given[3:]], attrs)[1:]
        after = {"dkdv": list(slopes), "dk": [slopes[0]], "dv": [slopes[1]]}[mode]
    spec = TiledAttention(
        mode,
        dtype,
        stack,
        share,
        share,
        parts,
        rows,
        strides,
        (),
        own,
        other,
        features,
        causal,
        window,
        attrs["scale"],
        tile,
    )
    kept = (lse, delta, *mask)
    held = numpy_dtype(dtype.value)
    half = [x if any(x is each for each in kept) else x.astype(held) for x in (*reads, *after)]
    arguments = [np.ascontiguousarray(x).reshape(-1) for x in half]
    if dtype is DType.F32:
        arguments = [x * np.float32(1 - 2**-13) if any(y is z for z in (q, k, v, dy)) else x
                     for x, y in zip(arguments, (*reads, *after))]  # fmt: skip
    for x in arguments[len(reads) :]:
        x.view(np.uint8)[:] = 0xFF
    geometry = spec.geometry
    assert (spec.mask_chunk > 0) == ("wide" in seen) or features > 64  # there may be no room
    ptx = compiled(spec, "k", "sm_90").ptx.decode("ascii")
    ptx_machine.run(ptx, geometry.grid, geometry.block[0], arguments, (), geometry.shared_bytes)
    for got, want in zip(arguments[len(reads) :], after, strict=True):
        close = 2**-9 * max(1.0, float(np.max(np.abs(want[np.isfinite(want)]))))
        near, close = (0, 2**-15) if want is lse and dtype is DType.F32 else (2**-8, close)
        np.testing.assert_allclose(got.astype(np.float64), np.reshape(want, -1), rtol=near, atol=close)


#: A kernel with one mistake of each kind, for 64 threads, and what is said of it.
MISTAKES = {
    "missing barrier": ("__shared__ int s[64]; s[t] = t; x[t] = s[63 - t];", "no barrier between"),
    "missing second barrier": (
        "__shared__ int s[64]; for (int i = 0; i < 2; ++i) { s[t] = i; __syncthreads(); x[t] = s[63 - t]; }",
        "no barrier between",
    ),
    "exchange is no barrier": (
        "__shared__ int s[64]; s[t] = t; __shfl_xor_sync(-1, t, 1); x[t] = s[t ^ 1];", "no barrier between",
    ),
    "barrier of a warp": ("__shared__ int s[64]; s[t] = t; __syncwarp(); x[t] = s[63 - t];", "no barrier between"),
    "two blocks write": ("x[t] = blockIdx.x;", "both write"),
    "not all come": ("if (t < 32) __syncthreads(); x[t] = t;", "some threads of a block"),
    "half a warp comes": ("if (t % 32 < 16) __syncthreads(); x[t] = t;", "some threads of a warp|different places"),
    "one beyond": ("x[t + 1] = t;", "outside of its array"),
    "shared one beyond": ("__shared__ int s[64]; s[t + 1 + (x[t] & 1)] = t; __syncthreads(); x[t] = s[t];", "outside"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    body, said = MISTAKES[mistake]
    with pytest.raises(AssertionError, match=said):
        _run(body, blocks=2 if mistake == "two blocks write" else 1)


def test_what_is_right_is_not_refused() -> None:
    _run("__shared__ int s[64]; s[t] = t; __syncthreads(); x[t] = s[63 - t];")
    _run("__shared__ int s[64]; s[t] = t; __syncwarp(); x[t] = s[t ^ 1];")
    _run("x[63] = 1;")  # a flag that all set to the same


def _run(body: str, blocks: int = 1) -> np.ndarray:
    from dslc.compiler.toolchain.nvrtc import compile_cuda

    text = f'extern "C" __global__ void k(int *x) {{ const int t = threadIdx.x; {body} }}\n'
    x = np.zeros(64, np.int32)
    ptx_machine.run(compile_cuda(text, "sm_90")[0].decode("ascii"), blocks, 64, [x])
    return x


def test_a_kernel_without_its_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = cuda_cpp.kernel_text
    changed = real("topk.cu").replace("__syncthreads();", "", 1)
    assert changed != real("topk.cu")
    monkeypatch.setattr(cuda_cpp, "kernel_text", lambda name: changed if name == "topk.cu" else real(name))
    node, xs = case("topk", [(1, 333)], {"axis": 1, "k": 3, "largest": True}, "f32")
    with pytest.raises(Race):
        on_machine(node, xs)
