"""Epilogues of contractions in C++: the same bits as the steps by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_kernels import ptx_machine
from gpu_kernels.sample_nodes import OPS
from op_laws.evaluation import apply, values_of

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.contraction.epilogue import can_emit
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts, Contract, Mma
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.scalar import EXACT, FUNCTIONS, argument, call
from dslc.compiler.ir.types import DType

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
