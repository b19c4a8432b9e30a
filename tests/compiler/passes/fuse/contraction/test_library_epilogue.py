"""library_epilogue: a library adds a bias and a residual to its product; the same numbers."""

from __future__ import annotations

import dataclasses

import pytest
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.codegen.cuda.libraries.registry import library_call
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Graph, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.compound.contraction import summands
from dslc.compiler.passes.fuse.contraction.library_epilogue import library_epilogue, library_rule
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph

B = Builder(name="layer")
X, W, BIAS, REST = (
    input_of(name, Kind.DATA, *shape)
    for name, shape in (("x", (2, 16, 128)), ("w", (256, 128)), ("bias", (256,)), ("rest", (2, 16, 256)))
)
BUILD = Build(target="sm_90", provider="vendor")


def product() -> Value:
    return B(OPS["matmul"], X.value, W.value, transpose_a=False, transpose_b=True)


def plus(a: Value, b: Value) -> Value:
    return B(OPS["add"], a, b)


def graph(y: Value) -> Graph:
    return fuse_graph(graph_of([X, W, BIAS, REST], {"y": y}))


SUMS = {
    "bias": (plus(product(), BIAS.value), ("bias",)),
    "bias first": (plus(BIAS.value, product()), ("bias",)),
    "residual": (plus(REST.value, product()), ("c",)),
    "both": (plus(REST.value, plus(product(), BIAS.value)), ("bias", "c")),
    "both, the other way": (plus(plus(product(), REST.value), BIAS.value), ("c", "bias")),
    "of two products": (
        plus(product(), B(OPS["matmul"], X.value, W.value, transpose_a=False, transpose_b=True)),
        ("c",),
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_is_the_librarys(name: str) -> None:
    given = graph(SUMS[name][0])
    found = library_epilogue(given, library_rule(BUILD))
    verify_graph(found)
    feeds = feeds_of(given, 5)
    assert_same_bits(evaluate(given, feeds), evaluate(found, feeds))
    last = found.nodes[-1]
    assert last.op.name == "contraction" and summands(last) == SUMS[name][1]
    assert library_epilogue(found, library_rule(BUILD)) is found, "a second run changes something"
    launch = library_call(last, "sm_90")
    assert isinstance(launch, Launch)
    instruction = launch.spec.instruction(range(len(launch.spec.shapes)), 99, 0)
    operands = {"bias": instruction.bias, "c": instruction.c}
    for number, kind in enumerate(SUMS[name][1], 2):
        assert operands.pop(kind) == number
    assert set(operands.values()) <= {None} and instruction.out == len(launch.reads)
    assert instruction.beta == (1.0 if "c" in SUMS[name][1] else 0.0)
    shapes = launch.spec.shapes
    assert shapes[0] == (32, 128) and shapes[-1] == (32, 256) and {*shapes[2:-1]} <= {(256,), (32, 256)}


OTHERS = {
    "a product of them": B(OPS["mul"], product(), BIAS.value),
    "two biases": plus(plus(product(), BIAS.value), B(OPS["neg"], BIAS.value)),
    "more after it": B(OPS["relu"], plus(product(), BIAS.value)),
    "broadcast rows": plus(
        product(), B(OPS["slice"], REST.value, starts=(0, 0, 0), stops=(2, 1, 256), steps=(1, 1, 1))
    ),
    "twice the product": (lambda y: plus(y, y))(product()),
    "of another phase": Builder(phase=Phase.BACKWARD)(OPS["add"], product(), BIAS.value),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_library_does_not_add(name: str) -> None:
    given = graph(OTHERS[name])
    assert library_epilogue(given, library_rule(BUILD)) is given


def test_a_small_product_is_no_librarys() -> None:
    x, w, bias = (input_of(n, Kind.DATA, *s) for n, s in (("x", (4, 8)), ("w", (8, 6)), ("b", (6,))))
    y = plus(B(OPS["matmul"], x.value, w.value, transpose_a=False, transpose_b=False), bias.value)
    given = graph_of([x, w, bias], {"y": y})
    assert library_epilogue(given, library_rule(BUILD)) is given


def test_f64_is_added_by_kernels() -> None:
    x, w, bias = (
        input_of(n, Kind.DATA, *s, dtype=DType.F64) for n, s in (("x", (64, 128)), ("w", (128, 256)), ("b", (256,)))
    )
    y = plus(B(OPS["matmul"], x.value, w.value, transpose_a=False, transpose_b=False), bias.value)
    given = graph_of([x, w, bias], {"y": y})
    assert library_epilogue(given, library_rule(BUILD)) is given


@pytest.mark.parametrize(("together", "joins"), [(2e-5, True), (9e-5, False), (None, True)])
def test_measured_times_decide(together: float | None, joins: bool) -> None:
    given = graph(SUMS["bias"][0])
    one, [first, last] = library_epilogue(given).nodes[-1], given.nodes
    times = {first: 3e-5, last: 4e-5, **({} if together is None else {one: together})}
    ways = {key_of(node): (Measured(Choice("own", ""), seconds),) for node, seconds in times.items()}
    build = dataclasses.replace(BUILD, choices=Choices(ways))
    assert (library_epilogue(given, library_rule(build)) is not given) == joins
