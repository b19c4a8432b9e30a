"""slices: parts of tensors are read where they lie; the same bits, and the tensor lives no longer than is worth it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.cost import moved, operations
from dslc.compiler.ir.graph import Graph, Kind, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.pointwise.slice_reads import slice_reads

PLAIN = {"transpose_a": False, "transpose_b": False}
FORE, BACK = Builder(name="cell"), Builder(name="cell", phase=Phase.BACKWARD)
X, W = input_of("x", Kind.DATA, 6, 8), input_of("w", Kind.PARAM, 8, 64)
LARGE = input_of("large", Kind.PARAM, 512, 512)


def part(x: Value, axis: int, start: int, stop: int, b: Builder = FORE) -> Value:
    ends = [(start, stop) if i == axis else (0, size) for i, size in enumerate(x.type.ints)]
    starts, stops = zip(*ends)
    return b(OPS["slice"], x, starts=starts, stops=stops, steps=(1,) * len(starts))


def gates(count: int = 4) -> tuple[Value, list[Value]]:
    whole = FORE(OPS["matmul"], X.value, W.value, **PLAIN)
    size = 64 // count
    return whole, [part(whole, 1, i * size, (i + 1) * size) for i in range(count)]


def checked(graph: Graph) -> Graph:
    after = slice_reads(graph)
    verify_graph(after)
    assert slice_reads(after) is after, "a second run changes something"
    feeds = feeds_of(graph, 0)
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    return after


def named(graph: Graph, name: str) -> list[Node]:
    return [n for n in graph.nodes if n.op.name == name]


def test_gates_of_a_cell(golden: Callable[[str, str], None]) -> None:
    """One is read through a reshape that drops an axis, one twice."""
    _, (i, f, g, o) = gates()
    b = Builder(name="state")
    line = b(OPS["reshape"], b(OPS["reshape"], o, shape=(6, 1, 16)), shape=(6, 16))
    new = b(OPS["add"], b(OPS["mul"], b(OPS["sigmoid"], f), f), b(OPS["mul"], b(OPS["sigmoid"], i), b(OPS["tanh"], g)))
    graph = graph_of([X, W], {"result.c": new, "result.h": b(OPS["mul"], line, b(OPS["tanh"], new))})
    after = checked(graph)
    assert not named(after, "slice") and not named(after, "reshape")
    golden("passes/slice_reads.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


def test_a_node_with_several_results() -> None:
    _, (i, f, *_) = gates(2)
    body: Any = (("add", (0, 1), ()), ("mul", (2, 1), ()))
    both = FORE.node(OPS["fused"], i, f, body=body, results=(2, 3))
    after = checked(graph_of([X, W], {f"result.{n}": v for n, v in zip("ab", both.outputs)}))
    [node] = named(after, "fused")
    assert len(node.outputs) == 2 and len(node.inputs) == 1 and not named(after, "slice")


def _product() -> Value:
    _, (i, f, *_) = gates()
    return FORE(OPS["matmul"], i, f, transpose_a=False, transpose_b=True)


KEPT: dict[str, Callable[[], Value]] = {
    "a product reads it": _product,
    "it is a result": lambda: gates()[1][0],
    "it is stretched": lambda: FORE(OPS["mul"], X.value, part(X.value, 0, 0, 1)),
    "its start has no alignment, next to another large one": lambda: FORE(
        OPS["mul"], part(LARGE.value, 1, 2, 260), part(LARGE.value, 1, 3, 261)
    ),
}


@pytest.mark.parametrize("why", KEPT)
def test_what_stays_a_copy(why: str) -> None:
    graph = graph_of([X, W, LARGE], {"result.y": KEPT[why]()})
    assert slice_reads(graph) is graph


def test_a_small_part_needs_no_alignment() -> None:
    graph = graph_of([X, W], {"result.y": FORE(OPS["tanh"], part(W.value, 1, 2, 6))})
    assert not named(checked(graph), "slice")


def test_a_large_part_that_one_node_reads_alone_needs_no_alignment() -> None:
    graph = graph_of([X, W, LARGE], {"result.y": FORE(OPS["tanh"], part(LARGE.value, 1, 2, 260))})
    assert not named(checked(graph), "slice")


def test_a_result_is_computed_once_whoever_reads_it() -> None:
    """A slice that is a result is there anyway: its readers read it, not the tensor of which it is a part."""
    _, (gate, *_) = gates()
    graph = graph_of([X, W], {"result.gate": gate, "result.y": FORE(OPS["tanh"], gate)})
    assert slice_reads(graph) is graph


@pytest.mark.parametrize(("wanted", "goes"), [(4, True), (3, False)])
def test_a_tensor_is_not_kept_for_a_part_of_it(wanted: int, goes: bool) -> None:
    """So many of four parts are wanted in the backward pass."""
    _, each = gates()
    now = [FORE(OPS["tanh"], v) for v in each]
    later = [BACK(OPS["exp"], v) for v in each[:wanted]]
    graph = graph_of([X, W], {f"result.{i}": v for i, v in enumerate([*now, *later])})
    assert bool(named(checked(graph), "slice")) is not goes


def test_a_part_costs_its_own_bytes() -> None:
    _, (i, f) = gates(2)
    alone = FORE.node(OPS["add"], i, f)
    [node] = named(checked(graph_of([X, W], {"result.y": alone.out})), "fused")
    assert moved(node) == moved(alone) == node.op.cost(node).bytes and operations(node) == operations(alone)


def test_kernels_read_parts_where_they_lie() -> None:
    _, (i, f) = gates(2)
    [node] = named(slice_reads(graph_of([X, W], {"result.y": FORE(OPS["sub"], i, f)})), "fused")
    [launch] = lowered(node, "sm_90", False) or []
    assert launch.reads == (node.inputs[0],) * 2
    assert [(a.offset, a.strides) for a in launch.spec.region.inputs] == [(0, (64, 1)), (32, (64, 1))]


def test_random_parts(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    gone = 0
    for _ in range(fuzz_count(3000)):
        values = [X.value, W.value, FORE(OPS["matmul"], X.value, W.value, **PLAIN)]
        for _ in range(12):
            x = rng.choice(values)
            b = FORE if rng.random() < 0.7 else BACK
            match rng.randrange(4):
                case 0 | 1:
                    axis = rng.randrange(x.type.rank)
                    start, stop = sorted(rng.sample(range(0, x.type.ints[axis] + 1), 2))
                    values.append(part(x, axis, start, stop, b))
                case 2:
                    ones = [size for size in x.type.ints if size != 1]
                    values.append(b(OPS["reshape"], x, shape=(*ones, 1) if rng.random() < 0.5 else (1, *ones)))
                case 3:
                    others = [v for v in values if v.type.shape == x.type.shape]
                    values.append(b(OPS[rng.choice(["add", "mul", "sub"])], x, rng.choice(others)))
        graph = graph_of([X, W], {f"result.{i}": rng.choice(values[3:]) for i in range(3)})
        gone += len(named(graph, "slice")) - len(named(checked(graph), "slice"))
    assert gone > 0


def test_values_of_a_body_with_parts() -> None:
    body: Any = (
        ("slice", (0,), (("starts", (0, 4)), ("steps", (1, 1)), ("stops", (2, 8)))),
        ("reshape", (1,), (("shape", (2, 1, 4)),)),
        ("neg", (2,), ()),
    )
    x = input_of("x", Kind.DATA, 2, 8)
    node = FORE.node(OPS["fused"], x.value, body=body)
    [y] = node.op.meaning([np.arange(16, dtype=np.float32).reshape(2, 8)], {"body": body})
    assert node.types[0].ints == (2, 1, 4) and node.types[0].dtype is DType.F32
    assert y.tolist() == [[[-4, -5, -6, -7]], [[-12, -13, -14, -15]]]
