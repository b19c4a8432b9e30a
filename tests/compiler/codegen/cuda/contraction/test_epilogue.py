"""Epilogues of contractions in C++: the same bits as the steps by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_kernels import ptx_machine, simulator
from gpu_kernels.convolutions import ROUNDING, convolution
from gpu_kernels.on_ptx_machine import on_machine, run_launches
from gpu_kernels.sample_nodes import OPS
from op_laws.evaluation import apply, values_of

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.contraction.depthwise import Depthwise
from dslc.compiler.codegen.cuda.contraction.epilogue import can_emit
from dslc.compiler.codegen.cuda.contraction.few_channels import FromFew, ToFew
from dslc.compiler.codegen.cuda.contraction.groups import GroupedConvolution
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts, Contract, Mma
from dslc.compiler.codegen.cuda.contraction.lower import contraction, tiled_problem
from dslc.compiler.codegen.cuda.contraction.packed_taps import PackedConv
from dslc.compiler.codegen.cuda.contraction.tiles import tilings
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.scalar import EXACT, FUNCTIONS, argument, call
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.spatial import few_channels

ZERO = ("full", (), (("dtype", DType.F32), ("shape", ()), ("value", 0.0)))
INF = ("full", (), (("dtype", DType.F32), ("shape", ()), ("value", "inf")))
#: Shapes of the others; steps.
BODIES: list[tuple[list[tuple[int, ...]], tuple[Any, ...]]] = [
    ([(6,)], (("add", (0, 1), ()), ("relu", (2,), ()))),
    ([(3, 6)], (ZERO, ("le", (1, 2), ()), ("where", (3, 2, 0), ()))),
    ([(3, 1), (1, 6)], (("sub", (0, 1), ()), ("minimum", (3, 2), ()), ("neg", (4,), ()), ("mul", (5, 0), ()))),
    ([(), (3, 6)], (("div", (2, 0), ()), ("abs", (3,), ()), INF, ("lt", (4, 5), ()), ("where", (6, 4, 1), ()))),
    ([(6,)], (
        ("gt", (0, 1), ()), ("logical_not", (2,), ()), ("ne", (0, 1), ()), ("logical_and", (3, 4), ()),
        ("where", (5, 0, 1), ()),
    )),
    ([], (("hardsigmoid", (0,), ()), ("hardtanh", (1,), (("high", 0.9), ("low", 0.1))), ("softsign", (2,), ()))),
    ([(6,)], (("gt", (0, 1), ()), ("cast", (2,), (("dtype", DType.F32),)), ("mul", (3, 0), ()))),
]  # fmt: skip


def node_of(inner: int, shapes: list[tuple[int, ...]], body: Any, dtype: type = np.float32) -> tuple[Node, Any]:
    rng = np.random.default_rng(inner)
    xs = [rng.normal(size=s).astype(dtype) for s in ((3, inner), (inner, 6), *shapes)]
    each = (("transpose_a", False), ("transpose_b", False))
    values = values_of(xs)
    return Builder(name="here").node(OPS["contraction"], *values, product="matmul", each=each, body=body), xs


@pytest.mark.parametrize("number", range(len(BODIES)))
def test_parts_are_added_and_go_through_the_steps(number: int) -> None:
    shapes, body = BODIES[number]
    node, xs = node_of(300, shapes, body)
    first, last = lower(node) or []
    assert isinstance(first.spec, Contract) and first.spec.epilogue is None and isinstance(last.spec, AddParts)
    last = replace(last, spec=replace(last.spec, count=3))
    assert last.spec.down == 1, "so that the interpreter knows all of it"
    parts = np.random.default_rng(number).normal(size=(last.spec.count, 3, 6)).astype(np.float32)
    parts[:, 0, 0], parts[0, 1, 1] = -0.0, np.nan
    total = np.zeros((3, 6), np.float32)
    for part in parts:
        total = total + part
    with np.errstate(all="ignore"):
        [wanted] = apply(OPS["fused"], [total, *xs[2:]], {"body": body})
    got = np.empty((3, 6), np.float32)
    ptx = cuda_compile.compiled(last.code, "k", "sm_90").ptx.decode("ascii")
    arguments = [a.reshape(-1) for a in (parts, *xs[2:], got)]
    with np.errstate(all="ignore"):
        ptx_machine.run(ptx, 1, 18 // last.spec.lanes, arguments, last.scalar_args)
    np.testing.assert_array_equal(got, wanted)
    assert np.array_equal(np.signbit(got), np.signbit(wanted)) or np.isnan(wanted).any()


@pytest.mark.parametrize("number", range(len(BODIES)))
def test_a_sum_that_is_not_divided_goes_through_them_at_once(number: int) -> None:
    node, _ = node_of(8, *BODIES[number])
    [launch] = lower(node) or []
    assert isinstance(launch.spec, Contract) and launch.spec.epilogue is not None
    assert len(launch.reads) == len(node.inputs) and launch.writes == node.outputs
    assert cuda_compile.compiled(launch.code, "k", "sm_90").cubin


@pytest.mark.parametrize("function", sorted(EXACT))
def test_all_that_the_pass_takes_is_known_here(function: str) -> None:
    assert can_emit(call(function, *map(argument, range(FUNCTIONS[function]))))


@pytest.mark.parametrize("body", [(("gelu", (0,), (("approximate", False),)),), (("exp", (0,), ()),)])
def test_what_cpp_may_round_otherwise_is_a_launch_of_its_own(body: Any) -> None:
    node, _ = node_of(8, [], body)
    product, steps = lower(node) or []
    assert isinstance(product.spec, Contract) and product.spec.epilogue is None
    assert not isinstance(steps.spec, Contract | Mma | AddParts) and steps.reads == product.writes


SWISH = (("add", (0, 1), ()), ("sigmoid", (2,), ()), ("mul", (2, 3), ()))
RELU6 = (("add", (0, 1), ()), ("hardtanh", (2,), (("high", 6.0), ("low", 0.0))))
#: Of 16-bit convolutions with channels last: the kernel, sizes, the epilogue, and whether a residual is added, too.
HALVES: dict[str, tuple[type, dict[str, Any], Any, bool]] = {
    "depthwise": (Depthwise, {"into": 16, "out": 16, "groups": 16}, RELU6, False),
    "from few channels": (FromFew, {"into": 3, "out": 20}, SWISH, False),
    "from few channels, packed taps": (PackedConv, {"into": 3, "out": 24}, SWISH, True),
    "to few channels": (ToFew, {"into": 24, "out": 3}, SWISH, True),
    "groups": (GroupedConvolution, {"into": 32, "out": 48, "groups": 2}, SWISH, True),
    "tensor cores": (Mma, {"into": 16, "out": 48}, SWISH, True),
    "tensor cores, few columns": (Mma, {"into": 16, "out": 12}, RELU6, True),
    "no tensor cores": (Contract, {"into": 10, "out": 14, "groups": 2}, RELU6, False),
}


def half_convolution(name: str, dtype: DType) -> tuple[Node, list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
    """A convolution with an epilogue, its inputs, and the exact result of all steps."""
    _, channels, steps, adds = HALVES[name]
    windows = {"batch": 1, "space": (4, 5), "taps": (3, 3), "stride": (1, 1), "pad": (1, 1), "dilation": (1, 1)}
    plain, xs = convolution("conv", True, dtype, windows | channels, 3)
    whole = plain.types[0].ints
    rng = np.random.default_rng(5)
    shapes = [(1, 1, 1, whole[-1]), *([whole] if adds else [])]
    more = [rng.integers(-8, 9, size=shape).astype(np.float32) / 4 for shape in shapes]  # 16 bits hold these
    body = steps
    if adds:  # the residual is input 2, so each step's number is greater by 1
        moved = [(op, tuple(n + 1 if n > 1 else n for n in reads), each) for op, reads, each in steps]
        body = (*moved, ("add", (2 + len(moved), 2), ()))
    values = [*plain.inputs, *(replace(v, type=TensorType(dtype, v.type.shape)) for v in values_of(more))]
    each = tuple(sorted(plain.attrs.items()))
    node = Builder(name="here").node(OPS["contraction"], *values, product="conv_last", each=each, body=body)
    exact = apply(node.op, [x.astype(np.float64) for x in (*xs, *more)], dict(node.attrs))
    return node, [*xs, *more], list(exact)


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_kernels_of_16_bits_compute_all_steps_in_f32(name: str, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_channels, "_MIN_PLACES", 1)
    node, xs, [wanted] = half_convolution(name, dtype)
    [launch] = lower(node) or []
    assert type(launch.spec) is HALVES[name][0] and launch.spec.epilogue is not None
    [got] = on_machine(node, xs)
    rounded = ROUNDING[dtype] * np.maximum(np.abs(wanted), 2.0**-6)  # once, of each number itself
    assert (np.abs(got.astype(np.float64) - wanted) <= 1.01 * rounded + 2e-5).all()


@pytest.mark.parametrize("name", ["tensor cores", "no tensor cores"])
def test_parts_of_16_bits_are_added_before_the_steps(name: str) -> None:
    node, xs, [wanted] = half_convolution(name, DType.BF16)
    found = tiled_problem(node)
    assert found is not None
    launches = contraction(node, replace(tilings(*found)[0], split=2))
    assert [each.spec.epilogue is None for each in launches] == [True, False]
    known = {v: simulator.memory(x.reshape(-1), DType.BF16) for v, x in zip(node.inputs, xs, strict=True)}
    known[node.out] = np.full(wanted.size, 0xFFFF, np.uint16)
    run_launches(launches, known)
    got = simulator.values(known[node.out], DType.BF16).reshape(wanted.shape)
    assert (np.abs(got - wanted) <= 1.01 * ROUNDING[DType.BF16] * np.maximum(np.abs(wanted), 2.0**-6) + 2e-5).all()
