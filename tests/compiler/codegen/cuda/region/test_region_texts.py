"""The printed kernels against the numpy meanings of the ops, run by a simulator of the few functions that they call.

A run takes a sixth of the samples of op_samples, chosen by DSLC_PART; all with DSLC_SOAK=1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.kernel_sources import source_of
from gpu_kernels.sample_nodes import OPS, SAMPLES, TOLERANCE, node_of, tolerance, wanted
from gpu_kernels.simulation import drawn, simulated
from op_laws.evaluation import apply, values_of
from thinning import taken, thinned

from dslc.compiler.codegen.cuda.compile import compiled, geometry
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region import schedule
from dslc.compiler.codegen.cuda.region.kernel import sized
from dslc.compiler.codegen.cuda.region.reduction import sweep
from dslc.compiler.codegen.cuda.region.reduction.sweep import Sweep
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder, Pointwise
from dslc.compiler.ir.scalar import as_expr
from dslc.compiler.ir.types import DType, TensorType


def part_of(name: str) -> list[tuple[int, str]]:
    """(number, dtype) of an op's samples: a part that the seed decides, all of them with DSLC_SOAK=1."""
    return taken([(n, dtype) for n in range(len(SAMPLES[name])) for dtype in TOLERANCE], 6)


LONG: list[tuple[str, list[tuple[int, ...]], dict[str, Any], int]] = [
    # name, shapes, attributes, launches
    ("sum", [(150_000,)], {"over": (0,), "keep": False}, 2),
    ("sum", [(150_001,)], {"over": (0,), "keep": False}, 3),  # in parts, and a smaller part
    ("max", [(150_000,)], {"over": (0,), "keep": False}, 2),
    ("sum", [(1500, 100)], {"over": (0,), "keep": False}, 2),
    ("sum", [(1511, 100)], {"over": (0,), "keep": False}, 3),
    ("sum", [(3600, 60)], {"over": (0,), "keep": False}, 2),  # in parts of several pieces
    ("mean", [(3, 300, 200)], {"over": (1,), "keep": False}, 2),
    ("batchnorm", [(16, 6, 40, 40), (6,), (6,), (6,), (6,)], {"eps": 1e-5, "momentum": 0.1}, 5),
    ("batchnorm_grad", [(16, 6, 40, 40), (6,), (6,), (6,), (16, 6, 40, 40)], {}, 3),
    ("layernorm_grad", [(1500, 96), (96,), (1500,), (1500,), (1500, 96)], {"axis": 1}, 3),
    ("layernorm_grad", [(67_601, 24), (24,), (67_601,), (67_601,), (67_601, 24)], {"axis": 1}, 3),  # in one sweep
    ("rmsnorm_grad", [(69_632, 24), (24,), (69_632,), (69_632, 24)], {"axis": 1}, 3),
    ("transpose", [(130, 200)], {"perm": (1, 0)}, 1),  # in tiles
    ("transpose", [(3, 67, 5, 61)], {"perm": (2, 3, 0, 1)}, 1),
    ("transpose", [(2, 96, 64)], {"perm": (0, 2, 1)}, 1),
    (
        "pad",  # of the last axis and another one
        [(40, 31, 3)],
        {"low": (0, 2, 1), "high": (0, 1, 4), "interior": (0, 0, 0), "value": 0.5},
        1,
    ),
    ("layernorm", [(2, 150_000), (150_000,), (150_000,)], {"axis": 1, "eps": 1e-5}, 5),
    ("softmax", [(3, 60_000)], {"axis": 1}, 5),
]


@pytest.mark.parametrize(("name", "shapes", "attrs", "count"), LONG, ids=[f"{n}-{s[0]}" for n, s, _, _ in LONG])
def test_few_long_rows_are_shared_out(
    name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], count: int
) -> None:
    xs = drawn(np.random.default_rng(len(shapes)), *shapes)
    node = Builder(name="here").node(OPS[name], *values_of(xs), **attrs)
    launches = lower(node)
    assert launches is not None and len(launches) == count
    assert any(isinstance(x.spec, Sweep) for x in launches) == (shapes[0][0] > 60_000 and len(shapes) > 1)
    got = simulated(node, xs)
    assert got is not None
    wide = apply(node.op, [x.astype(np.float64) for x in xs], node.attrs)
    for g, w in zip(got, wide, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4 * max(1.0, float(np.max(np.abs(w)))))


@pytest.mark.parametrize(
    ("shape", "over", "count"),
    [((1500, 100), (0,), 2), ((3600, 60), (0,), 2), ((1511, 100), (0,), 3), ((6, 60_000), (1,), 2)],
)
def test_sums_of_parts_write_what_they_add_up(shape: tuple[int, ...], over: tuple[int, ...], count: int) -> None:
    xs = drawn(np.random.default_rng(0), shape, shape)
    attrs: dict[str, Any] = {"body": (("mul", (0, 1), ()),), "summed": (2,), "over": over, "kept": (2,)}
    node = Builder(name="here").node(OPS["fused_sums"], *values_of(xs), **attrs)
    assert len(lower(node) or []) == count
    total, whole = simulated(node, xs) or []
    assert np.array_equal(whole, xs[0] * xs[1])
    np.testing.assert_allclose(total, np.sum(whole, axis=over, dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize("shape", [(50, 24), (3000, 64), (700, 320), (5, 16)])
def test_the_order_of_a_sum_is_of_sizes_and_dtypes_alone(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many vectors a thread has room for, and whether it reads bits: so it is with what stands around a sum."""
    rng = np.random.default_rng(0)
    xs = [simulator.held(x, DType.BF16) for x in drawn(rng, shape, shape, *[(shape[1],)] * 4)]
    types = [TensorType(DType.BF16 if x.ndim == 2 else DType.F32, x.shape) for x in xs]
    found = []
    for few, bits in ((100, False), (0, False), (100, True), (0, True)):
        monkeypatch.setattr(schedule, "_MAX_HALF_VECTORS", few)
        schedule.schedule.cache_clear()
        values = [Input(f"x{i}", Kind.DATA, t).value for i, t in enumerate(types)]
        given, count = list(xs), 6 + bits
        if bits:
            values.append(Input("bits", Kind.DATA, TensorType(DType.U8, (xs[0].size // 8,))).value)
            given.append(np.full(xs[0].size // 8, 255, np.uint8))
        body: list[Any] = [
            ("cast", (0,), (("dtype", DType.F32),)),
            ("mul", (count, 3), ()),
            ("add", (count + 1, 4), ()),
        ]
        if bits:
            body += [("unpack_bits", (6,), (("shape", shape),)), ("where", (count + 3, count + 2, 5), ())]
        last = count + len(body) - 1
        body += [("mul", (last, 5), ())]
        attrs: dict[str, Any] = {"body": tuple(body), "summed": (last, last + 1), "over": (0,)}
        node = Builder(name="here").node(OPS["fused_sums"], *values, **attrs)
        found.append(simulated(node, given) or [])
    schedule.schedule.cache_clear()
    assert found[0] and all(a.tobytes() == b.tobytes() for other in found for a, b in zip(found[0], other, strict=True))


SPREAD: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]] = [
    # the sum's shape, its axes, the shape of the additional input, launches
    ((32, 7, 7, 96), (0, 1, 2), (32, 1, 1, 96), 2),  # columns: a gradient of a mean over an image
    ((32, 7, 7, 96), (0, 1, 2), (1, 7, 7, 1), 2),
    ((32, 7, 7, 96), (0, 1, 2), (32, 1, 7, 1), 2),
    ((211, 7, 128), (0, 1), (211, 1, 128), 3),  # in parts, and a smaller part
    ((5, 3, 3, 16), (0, 1, 2), (5, 1, 1, 16), 1),
    ((40, 3, 16, 96), (0, 2, 3), (40, 1, 1, 1), 2),  # rows of channels: vectors of neighbours
    ((40, 3, 16, 96), (0, 2, 3), (1, 3, 16, 1), 2),
    ((40, 3, 16, 97), (0, 2, 3), (1, 1, 1, 97), 2),  # vectors on both sides of an edge
    ((40, 3, 8, 49), (0, 2, 3), (40, 1, 8, 1), 1),
    ((3, 1300, 49), (1, 2), (1, 1300, 1), 3),
    ((3, 1300, 49), (1, 2), (1, 1, 49), 3),
    ((300, 8, 49), (1, 2), (300, 8, 1), 1),
]


@pytest.mark.parametrize(("shape", "over", "narrow", "count"), SPREAD, ids=str)
@pytest.mark.parametrize("kind", [DType.F32, DType.BF16], ids=str)
def test_the_order_of_a_sum_is_the_same_however_its_inputs_lie(
    shape: tuple[int, ...], over: tuple[int, ...], narrow: tuple[int, ...], count: int, kind: DType
) -> None:
    """What is read in one program and made in place in another, as an expanded gradient."""
    rng = np.random.default_rng(0)
    wide, small = (simulator.held(x, kind) for x in drawn(rng, shape, narrow))
    cast = (("dtype", DType.F32),)
    body = (("cast", (0,), cast), ("cast", (1,), cast), ("mul", (2, 3), ()))
    attrs: dict[str, Any] = {"body": body, "summed": (3, 4), "over": over}
    found = []
    for other in (np.ascontiguousarray(np.broadcast_to(small, shape)), small):
        values = [Input(f"x{i}", Kind.DATA, TensorType(kind, x.shape)).value for i, x in enumerate((wide, other))]
        node = Builder(name="here").node(OPS["fused_sums"], *values, **attrs)
        assert len(lower(node) or []) == count
        found.append(simulated(node, [wide, other]) or [])
    products = simulator.held(wide, kind).astype(np.float64) * np.broadcast_to(small, shape)
    np.testing.assert_allclose(found[1][1], np.sum(products, axis=over), rtol=1e-4)
    assert found[0] and all(a.tobytes() == b.tobytes() for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("rows", thinned([69_632, 67_601], 2))
def test_sums_of_a_sweep_that_registers_do_not_hold(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie in shared memory; the bits are the same. So it is from about 10,000 columns on."""
    shapes = [(rows, 24), (24,), (rows,), (rows,), (rows, 24)]
    xs = drawn(np.random.default_rng(0), *shapes)
    node = Builder(name="here").node(OPS["layernorm_grad"], *values_of(xs), axis=1)
    in_registers = simulated(node, xs)
    monkeypatch.setattr(sweep, "_REGISTERS", 1 << 12)
    spec = (lower(node) or [])[0].spec
    assert isinstance(spec, Sweep) and geometry(spec).shared_bytes == 2 * 4 * spec.cut.held * spec.cut.vector * 128
    in_memory = simulated(node, xs)
    assert in_registers is not None and in_memory is not None
    assert all(a.tobytes() == b.tobytes() for a, b in zip(in_registers, in_memory, strict=True))


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_many_long_rows_are_gone_through_several_times(dtype: DType) -> None:
    """The classes of a language model: values of a loop over a row are not used after it."""
    logits, target = TensorType(dtype, (16_384, 50_257)), TensorType(DType.I32, (16_384,))
    values = [Input(name, Kind.DATA, t).value for name, t in (("x", logits), ("t", target))]
    attrs = {"axis": 1, "smoothing": 0.1, "dy": 0.5}
    node = Builder(name="here").node(OPS["softmax_cross_entropy_both"], *values, **attrs)
    [launch] = lower(node) or []
    source = source_of(launch.symbol, launch.code)
    assert source.text.count("for ") == 3
    simulator.check_names(source)
    compiled(launch.code, launch.symbol, "sm_90")


@pytest.mark.parametrize("name", sorted(n for n in SAMPLES.keys() & OPS if not OPS[n].view))
def test_a_text_gives_what_the_meaning_gives(name: str) -> None:
    """bf16 and f16 against the meaning in f32 of the same inputs, rounded: a unit apart at most."""
    for number, dtype in part_of(name):
        node, xs = node_of(name, number, dtype)
        got = simulated(node, xs)
        if got is None:
            continue  # another kind of kernel, or none
        rtol, atol = tolerance(name, dtype)
        for g, w in zip(got, wanted(node, xs, dtype) or got, strict=True):
            assert g.dtype == w.dtype and g.shape == w.shape
            np.testing.assert_allclose(
                g, w, rtol=rtol, atol=atol, equal_nan=True, err_msg=f"sample {number} of {name} in {dtype}"
            )


CHAIN: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("mul", (0, 1.3), {}),
    ("relu", (2,), {}),
    ("minimum", (3, 0.3001), {}),  # a number that 16 bits do not hold
    ("maximum", (4, -0.25), {}),
    ("abs", (5,), {}),
    ("add", (6, 1), {}),
    ("neg", (7,), {}),
    ("tanh", (8,), {}),
    ("sub", (9, 0), {}),
    ("sigmoid", (10,), {}),
    ("div", (11, 1), {}),
]


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F16, DType.F64])
def test_a_chain_has_the_bits_of_its_ops_one_by_one(dtype: DType) -> None:
    """Every value is rounded, in a register as in memory; what needs no rounding is known."""
    rng = np.random.default_rng(7)
    first = [simulator.memory(rng.normal(size=96), dtype) for _ in range(2)]

    def run(steps: list[tuple[str, tuple[Any, ...], dict[str, Any]]], given: list[np.ndarray]) -> np.ndarray:
        access, out = Access(dtype, (1,)), np.zeros(96, simulator.numpy_type(dtype))
        builder = RegionBuilder((96,), (), [access] * len(given), [access])
        builder.row()
        known = [builder.input(i) for i in range(len(given))]
        for name, args, attrs in steps:
            op = OPS[name]
            assert isinstance(op, Pointwise)
            taken = [known[a] if isinstance(a, int) else as_expr(a) for a in args]
            known.append(builder.let(op.scalar(attrs, *taken), dtype))
        builder.store(0, known[-1])
        launch = sized(Launch(builder.region(), (), ()))
        simulator.run(source_of("k", launch.code), geometry(launch.spec).grid[0], [*given, out], launch.scalar_args)
        return out

    known = list(first)
    for step in CHAIN:
        known.append(run([step], known))
    assert np.array_equal(run(CHAIN, first), known[-1])
