"""simplify keeps every bit, removes what it says, and is done after one run."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, build_for, evaluate, feeds_of, graph_of, input_of, random_graph

from dslc.compiler.ir.graph import Attr, Graph, Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.simplify.simplify import attr_key, simplify, simplify_graph
from dslc.compiler.passes.plan.memory import memory
from dslc.compiler.passes.plan.schedule import schedule
from dslc.compiler.passes.runner import run_passes

B = Builder(name="a")
X = input_of("x", Kind.DATA, 3, 4)
Y = input_of("y", Kind.DATA, 4, 5)
I = input_of("i", Kind.DATA, 3, 4, dtype=DType.I32)


def _full(value: float, *shape: int, dtype: DType = DType.F32) -> Value:
    return B(OPS["full"], value=value, dtype=dtype, shape=shape)


def _transposed(value: Value) -> Value:
    return B(OPS["transpose"], value, perm=(1, 0))


def _resized(op: str, size: tuple[int, int], **attrs: Attr) -> Value:
    """x as an image of 3 x 4 pixels, resized."""
    return B(OPS[op], B(OPS["reshape"], x, shape=(1, 1, 3, 4)), size=size, **attrs)


def _expanded(value: Value, *shape: int) -> Value:
    return B(OPS["expand"], value, shape=shape)


def _computing(graph: Graph) -> int:
    """How many nodes do more than repeat a number or give another shape."""
    return sum(n.op.name not in ("full", "expand", "reshape") for n in graph.nodes)


def test_every_result_keeps_its_bits(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    smaller = 0
    for case in range(fuzz_count(1000)):
        graph = random_graph(rng, rng.randint(1, 40))
        simple = simplify_graph(graph)
        verify_graph(simple)
        assert simplify_graph(simple) is simple, "a second run changes something"
        assert simple.inputs == graph.inputs and _computing(simple) <= _computing(graph)
        smaller += len(simple.nodes) < len(graph.nodes)
        feeds = feeds_of(graph, case)
        assert_same_bits(evaluate(graph, feeds), evaluate(simple, feeds))
    assert smaller


x, y, i = X.value, Y.value, I.value
ROWS, COLUMNS = (B(OPS["sum"], x, over=(axis,), keep=True) for axis in (1, 0))
TOTAL = B(OPS["sum"], x, over=(0, 1), keep=False)
HALF = B(OPS["cast"], x, dtype=DType.BF16)
WIDE = B(OPS["cast"], HALF, dtype=DType.F32)
POSITIVE = B(OPS["gt"], x, _full(0.0))
#: An axis whose size stays is not changed, in every mode.
RESIZING: list[tuple[str, dict[str, Attr]]] = [
    *((op, {"mode": mode}) for op in ("interpolate", "interpolate_grad")
      for mode in ("nearest", "nearest-exact", "linear", "cubic")),
    ("interpolate", {"mode": "linear", "corners": True}),
    ("interpolate_grad", {"mode": "linear", "ratio": (3, 4, 1, 1)}),
    ("interpolate", {"mode": "cubic", "widened": True}),
    ("adaptive_avgpool", {}),
    ("adaptive_avgpool_grad", {}),
]  # fmt: skip
CASES: dict[str, tuple[Value, int]] = {
    # name: (value, nodes that are left)
    "x * 1": (B(OPS["mul"], x, _full(1.0)), 0),
    "1 * x": (B(OPS["mul"], _full(1.0), x), 0),
    "x * 1 that broadcasts": (B(OPS["mul"], x, _full(1.0, 2, 3, 4)), 1),
    "x * -1": (B(OPS["mul"], x, _full(-1.0)), 2),
    "x / 1": (B(OPS["div"], x, _full(1.0)), 0),
    "x + 0": (B(OPS["add"], x, _full(0.0)), 2),
    "x + -0": (B(OPS["add"], x, _full(-0.0)), 0),
    "-0 + x": (B(OPS["add"], _full(-0.0), x), 0),
    "x - 0": (B(OPS["sub"], x, _full(0.0)), 0),
    "x - -0": (B(OPS["sub"], x, _full(-0.0)), 2),
    "0 - x": (B(OPS["sub"], _full(0.0), x), 2),
    "i + 0": (B(OPS["add"], i, _full(0, dtype=DType.I32)), 0),
    "--x": (B(OPS["neg"], B(OPS["neg"], x)), 0),
    "x.T.T": (_transposed(_transposed(x)), 0),
    "reshape of reshape": (B(OPS["reshape"], B(OPS["reshape"], x, shape=(12,)), shape=(2, 6)), 1),
    "reshape back": (B(OPS["reshape"], B(OPS["reshape"], x, shape=(12,)), shape=(3, 4)), 0),
    "all of x": (B(OPS["slice"], x, starts=(0, 0), stops=(3, 4), steps=(1, 1)), 0),
    "x backwards": (B(OPS["slice"], x, starts=(2, 0), stops=(-1, 4), steps=(-1, 1)), 1),
    "padded by nothing": (B(OPS["pad"], x, low=(0, 0), high=(0, 0), interior=(0, 0), value=1.0), 0),
    "padded": (B(OPS["pad"], x, low=(0, 1), high=(0, 0), interior=(0, 0), value=1.0), 1),
    **{f"{op} {attrs} to its size": (_resized(op, (3, 4), **attrs), 1) for op, attrs in RESIZING},
    "resized along one axis": (_resized("interpolate", (3, 8), mode="nearest"), 2),
    "the gradient of a size along one axis": (_resized("interpolate_grad", (5, 4), mode="linear"), 2),
    "means along one axis": (_resized("adaptive_avgpool", (3, 2)), 2),
    "cast to itself": (B(OPS["cast"], x, dtype=DType.F32), 0),
    "there and back": (B(OPS["cast"], B(OPS["cast"], x, dtype=DType.F64), dtype=DType.F32), 0),
    "half to f32 and back": (B(OPS["cast"], B(OPS["cast"], WIDE, dtype=DType.BF16), dtype=DType.F32), 2),
    "half to f32, in another shape, and back": (
        B(OPS["cast"], B(OPS["reshape"], WIDE, shape=(12,)), dtype=DType.BF16),
        2,
    ),
    "f32 to half and back": (WIDE, 2),
    "rounded in another shape": (B(OPS["cast"], B(OPS["reshape"], B(OPS["exp"], x), shape=(12,)), dtype=DType.BF16), 3),
    "widened in another shape": (B(OPS["cast"], B(OPS["reshape"], HALF, shape=(12,)), dtype=DType.F32), 3),
    "a negated choice": (B(OPS["where"], B(OPS["logical_not"], POSITIVE), x, _full(2.0)), 4),
    "transposed rows of one number each": (_transposed(_expanded(ROWS, 3, 4)), 3),
    "transposed after an expansion": (B(OPS["transpose"], _expanded(x, 2, 3, 4), perm=(1, 0, 2)), 2),
    "transposed in itself after an expansion": (B(OPS["transpose"], _expanded(x, 2, 3, 4), perm=(0, 2, 1)), 2),
    "through i32 and back": (B(OPS["cast"], B(OPS["cast"], x, dtype=DType.I32), dtype=DType.F32), 2),
    "stop_gradient": (B(OPS["stop_gradient"], x), 0),
    "dropout of none": (B(OPS["dropout"], x, *[_full(1, dtype=DType.I64)] * 3, p=0.0, key=7, row_elements=4), 0),
    "sum_to its shape": (B(OPS["sum_to"], x, shape=(3, 4)), 1),  # a sum of one element makes 0.0 of -0.0
    "x.T @ y.T": (B(OPS["matmul"], _transposed(y), _transposed(x), transpose_a=False, transpose_b=False), 1),
    "twice the same": (B(OPS["add"], B(OPS["exp"], x), B(OPS["exp"], x)), 2),
    "folded": (B(OPS["exp"], B(OPS["add"], _full(1.0), _full(2.0, 3))), 1),
    "folded to inf": (B(OPS["div"], _full(1.0), _full(0.0)), 1),
    "not folded to nan": (B(OPS["div"], _full(0.0), _full(0.0)), 2),
    "too large to fold": (B(OPS["matmul"], *[_full(1.0, 100, 100)] * 2, transpose_a=False, transpose_b=False), 2),
    "of a large constant": (B(OPS["exp"], _full(1.0, 100, 100)), 1),
    "x * 2 of its size": (B(OPS["mul"], x, _full(2.0, 3, 4)), 2),
    "expanded rows * x": (B(OPS["mul"], _expanded(ROWS, 3, 4), x), 2),
    "expanded rows as large as the result": (B(OPS["neg"], B(OPS["mul"], _expanded(ROWS, 3, 4), _full(2.0, 4))), 5),
    "rows and columns": (
        B(OPS["mul"], _expanded(ROWS, 3, 4), _expanded(B(OPS["sum"], x, over=(0,), keep=True), 3, 4)),
        3,
    ),
    "expanded twice": (_expanded(_expanded(ROWS, 3, 4), 2, 3, 4), 2),
    "an expanded constant": (_expanded(_full(2.0, 1, 4), 100, 4), 1),
    "expanded rows in another shape": (B(OPS["reshape"], _expanded(ROWS, 3, 6), shape=(2, 3, 3)), 3),
    "an expanded number in another shape": (B(OPS["reshape"], _expanded(TOTAL, 12), shape=(3, 4)), 2),
    "the gradient of a mean of rows": (
        B(
            OPS["mul"],
            _expanded(B(OPS["reshape"], B(OPS["neg"], B(OPS["mul"], _full(0.25, 3), TOTAL)), shape=(3, 1)), 3, 4),
            x,
        ),
        5,
    ),
}


def test_parts_of_a_small_tensor_are_cast_after_they_are_taken_out() -> None:
    part = B(OPS["slice"], WIDE, starts=(0, 1), stops=(3, 3), steps=(1, 1))
    simple = simplify_graph(graph_of([X], {"result.whole": B(OPS["exp"], WIDE), "result.part": part}))
    assert simple.outputs["result.part"].producer.op.name == "cast"  # type: ignore[union-attr]
    assert sum(node.op.name == "cast" and node.types[0].ints == (3, 4) for node in simple.nodes) == 2


def test_a_rounded_result_comes_before_its_shape() -> None:
    simple = simplify_graph(graph_of([X], {"result.r": CASES["rounded in another shape"][0]}))
    assert [node.op.name for node in simple.nodes] == ["exp", "cast", "reshape"]
    simple = simplify_graph(graph_of([X], {"result.r": CASES["widened in another shape"][0]}))
    assert [node.op.name for node in simple.nodes] == ["cast", "reshape", "cast"]


@pytest.mark.parametrize("name", CASES)
def test_one_rule(name: str) -> None:
    value, left = CASES[name]
    graph = graph_of([X, Y, I], {"result.r": value})
    simple = simplify_graph(graph)
    verify_graph(simple)
    assert len(simple.nodes) == left, format_graph(simple)
    feeds = feeds_of(graph, 5)
    feeds["x"][0, :2] = [-0.0, np.inf]
    assert_same_bits(evaluate(graph, feeds), evaluate(simple, feeds))


@pytest.mark.parametrize(
    ("dtype", "op", "given", "value"),
    [
        (DType.BF16, "add", (0.5, 0.25), 0.75),
        (DType.BF16, "add", (0.1, 0.1), 0.2001953125),  # 0.1 is 0.10009765625
        (DType.F16, "add", (0.1, 0.1), 0.199951171875),
        (DType.BF16, "mul", (1.0078125, 1.0078125), 1.015625),  # 1.01568604 lies below the middle
        (DType.BF16, "add", (256.0, 1.0), 256.0),  # a tie, to even
        (DType.BF16, "add", (256.0, 3.0), 260.0),
        (DType.BF16, "tanh", (0.5,), 0.462890625),
        (DType.BF16, "exp", (1.0,), 2.71875),
        (DType.F16, "exp", (1.0,), 2.71875),
        (DType.F16, "mul", (60000.0, 2.0), "inf"),
        (DType.BF16, "neg", (0.3,), -0.30078125),
    ],
)
def test_constants_of_16_bits_are_folded_in_f32_and_rounded_once(
    dtype: DType, op: str, given: tuple[float, ...], value: float | str
) -> None:
    folded = B(OPS[op], *(_full(x, 3, dtype=dtype) for x in given))
    [node] = [n for n in simplify_graph(graph_of([X], {"result.r": folded})).nodes if n.op.name == "full"]
    assert node.attrs["value"] == value and node.types[0].dtype is dtype


def test_attributes_that_python_calls_equal_are_not() -> None:
    keys = [attr_key(a) for a in (0, 0.0, -0.0, False, 1, 1.0, True, (1,), (1.0,), "1", DType.F32, "f32")]
    assert len(set(keys)) == len(keys)
    graph = graph_of([X], {"result.a": _full(0.0), "result.b": _full(-0.0)})
    assert len(simplify_graph(graph).nodes) == 2


def test_random_ops_are_one_only_with_one_key() -> None:
    seed, step, row = (Input(n, Kind.SCALAR, TensorType(DType.I64, ())) for n in ("seed", "step", "row"))
    draws = [
        B(OPS["rand"], seed.value, step.value, row.value, key=key, row_elements=0, shape=(4,), dtype=DType.F32)
        for key in (1, 1, 2)
    ]
    graph = graph_of([seed, step, row], {f"result.r{n}": v for n, v in enumerate(draws)})
    simple = simplify_graph(graph)
    a, b, c = simple.outputs.values()
    assert a is b and a is not c and len(simple.nodes) == 2


def test_constants_that_fill_states_stay_apart() -> None:
    a, b = input_of("a", Kind.PARAM, 3), input_of("b", Kind.PARAM, 3)
    graph = graph_of([a, b], {}, [(a, _full(0.0, 3)), (b, _full(0.0, 3))])
    build = build_for(graph)
    program, _ = run_passes(Program("init", {}, graph), build, (simplify, schedule, memory))
    assert program.memory is not None and not program.memory.moves and program.memory.work_bytes == 0


def test_dead_code_goes_and_untouched_graphs_stay() -> None:
    alive, dead = B.node(OPS["exp"], x), B.node(OPS["tanh"], x)
    graph = Graph((X,), (dead, alive), {"result.r": alive.out})
    assert simplify_graph(graph).nodes == (alive,)
    again = graph_of([X], {"result.r": alive.out})
    assert simplify_graph(again) is again


def test_golden(golden: Callable[[str, str], None]) -> None:
    names = [n for n in CASES if n not in ("too large to fold", "of a large constant")]
    texts = []
    for name in names:
        graph = graph_of([X, Y, I], {"result.r": CASES[name][0]})
        before, after = (_body(format_graph(g)) for g in (graph, simplify_graph(graph)))
        texts.append(f"{name}\n{before}  becomes\n{after}")
    golden("passes/simplify.txt", "\n".join(texts))


def _body(text: str) -> str:
    """Without the inputs, which stay."""
    return "".join(f"    {line}\n" for line in text.splitlines() if " = data " not in line)


def test_long_chains() -> None:
    value = x
    for _ in range(5_000):
        value = B(OPS["neg"], B(OPS["tanh"], B(OPS["neg"], B(OPS["neg"], value))))
    simple = simplify_graph(graph_of([X], {"result.r": value}))
    assert len(simple.nodes) == 10_000 and all(isinstance(n, Node) for n in simple.nodes)


TABLE_ROWS = 5


def repeated(given: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Value, list]:
    ids = input_of("ids", Kind.DATA, *given, dtype=DType.I32)
    return B(OPS["expand"], ids.value, shape=shape), [ids]


def same_rows(graph: Graph) -> list[str]:
    """The ops after simplify, which leaves the results as they are."""
    found = simplify_graph(graph)
    verify_graph(found)
    assert simplify_graph(found) is found
    for low in (0, -1):
        rng = np.random.default_rng(3)
        feeds = {
            i.name: rng.integers(low, TABLE_ROWS, i.value.type.ints).astype(np.int32)
            if i.value.type.dtype.is_int
            else rng.normal(size=i.value.type.ints).astype(np.float32)
            for i in graph.inputs
        }
        one, other = evaluate(graph, feeds), evaluate(found, feeds)
        np.testing.assert_allclose(other["y"], one["y"], rtol=1e-6, atol=1e-6)
    return [node.op.name for node in found.nodes]


#: shape of the index before it was repeated, its shape, the axis; the ops of a gather and of a scatter_add then
FORMS = [
    ((9, 1), (9, 4), 0, ["gather_rows"], ["scatter_rows_add"]),
    ((9,), (4, 9), 1, ["take"], ["transpose", "scatter_rows_add", "transpose"]),
    ((9, 1), (3, 9, 4), 1, ["take"], ["transpose", "scatter_rows_add", "transpose"]),
    ((3, 9, 1), (3, 9, 4), 1, ["gather"], ["scatter_add"]),
    ((1, 9, 1, 1), (1, 9, 2, 2), 1, ["take"], ["transpose", "scatter_rows_add", "transpose"]),
    ((2, 1, 9, 1), (2, 3, 9, 4), 2, ["expand", "gather"], ["expand", "scatter_add"]),
    ((1, 4), (9, 4), 0, ["expand", "gather"], ["expand", "scatter_add"]),  # each element has its own
]


@pytest.mark.parametrize(("given", "shape", "axis", "gathers", "scatters"), FORMS)
def test_gathers_and_sums_of_rows(
    given: tuple[int, ...], shape: tuple[int, ...], axis: int, gathers: list[str], scatters: list[str]
) -> None:
    table, index = (*shape[:axis], TABLE_ROWS, *shape[axis + 1 :]), repeated(given, shape)
    x, src = input_of("x", Kind.DATA, *table), input_of("src", Kind.DATA, *shape)
    found = same_rows(graph_of([x, *index[1]], {"y": B(OPS["gather"], x.value, index[0], axis=axis)}))
    assert [name for name in found if name != "reshape"] == gathers
    y = B(OPS["scatter_add"], src.value, index[0], axis=axis, count=TABLE_ROWS)
    assert [name for name in same_rows(graph_of([src, *index[1]], {"y": y})) if name != "reshape"] == scatters


@pytest.mark.parametrize("how", ["prod", "max", "min"])
@pytest.mark.parametrize(("given", "shape", "axis"), [((9, 1), (9, 4), 0), ((3, 9, 1), (3, 9, 4), 1)])
def test_reductions_of_rows(given: tuple[int, ...], shape: tuple[int, ...], axis: int, how: str) -> None:
    index = repeated(given, shape)
    x, src = input_of("x", Kind.DATA, *shape[:axis], TABLE_ROWS, *shape[axis + 1 :]), input_of("src", Kind.DATA, *shape)
    y = B(OPS["scatter_reduce"], x.value, src.value, index[0], axis=axis, how=how)
    found = same_rows(graph_of([x, src, *index[1]], {"y": y}))
    assert [name for name in found if name != "reshape"] == ["scatter_reduce"]


def test_a_vector_of_one_axis_is_one_of_rows() -> None:
    src, ids = input_of("src", Kind.DATA, 9), input_of("ids", Kind.DATA, 9, dtype=DType.I32)
    y = B(OPS["scatter_add"], src.value, ids.value, axis=0, count=TABLE_ROWS)
    assert same_rows(graph_of([src, ids], {"y": y})) == ["scatter_rows_add"]
