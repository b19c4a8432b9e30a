"""late_casts: a cast to a wider float comes after ops that only move elements."""

from __future__ import annotations

import pytest

from dslc.compiler.ir.graph import Attr, Graph, Input, Kind, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.simplify.late_casts import late_casts


def graph_of(source: DType, to: DType, *, made: bool = False, again: bool = False) -> Graph:
    """softmax(reshape(cast(x))). ``made``: x is what a pointwise op computes; ``again``: the cast is a result, too."""
    x = Input("x", Kind.DATA, TensorType(source, (2, 1, 3)))
    build = Builder(name="here")
    wide = build(OPS["cast"], build(OPS["exp"], x.value) if made else x.value, dtype=to)
    results = {"result.y": build(OPS["softmax"], build(OPS["reshape"], wide, shape=(2, 3)), axis=1)}
    results |= {"result.z": wide} if again else {}
    return Graph((x,), order(list(results.values())), results)


@pytest.mark.parametrize(("source", "to"), [(DType.BF16, DType.F32), (DType.F16, DType.F64), (DType.F32, DType.F64)])
def test_the_reshape_is_of_the_narrow_values(source: DType, to: DType) -> None:
    found = late_casts(graph_of(source, to))
    verify_graph(found)
    assert [(n.op.name, n.types[0].dtype) for n in found.nodes] == [("reshape", source), ("cast", to), ("softmax", to)]
    assert late_casts(found) is found


def test_a_cast_stays_if_it_narrows_or_an_op_writes_it_or_others_read_it() -> None:
    narrows = graph_of(DType.F32, DType.BF16)
    written = graph_of(DType.BF16, DType.F32, made=True)
    shared = graph_of(DType.BF16, DType.F32, again=True)
    assert [late_casts(each) is each for each in (narrows, written, shared)] == [True] * 3


def after_moves(*names: str, value: float = 0.0) -> list[tuple[str, DType]]:
    """Ops and dtypes of softmax(moves(cast(x))), after the pass."""
    x = Input("x", Kind.DATA, TensorType(DType.BF16, (4, 6)))
    at = Input("at", Kind.DATA, TensorType(DType.I32, (4, 6)))
    build = Builder(name="here")
    given: dict[str, dict[str, Attr]] = {
        "pad": {"low": (0, 1), "high": (0, 1), "interior": (0, 0), "value": value},
        "slice": {"starts": (0, 1), "stops": (4, 5), "steps": (1, 1)},
        "gather": {"axis": 1},
        "transpose": {"perm": (1, 0)},
    }
    y = build(OPS["cast"], x.value, dtype=DType.F32)
    for name in names:
        y = build(OPS[name], y, *([at.value] if name == "gather" else []), **given.get(name, {}))
    graph = Graph((x, at), order([y]), {"result.y": y})
    found = late_casts(graph)
    verify_graph(found)
    return [(n.op.name, n.types[0].dtype) for n in found.nodes]


def test_all_moves_in_a_row_are_of_the_narrow_values() -> None:
    narrow = [(name, DType.BF16) for name in ("gather", "slice", "pad")]
    assert after_moves("gather", "slice", "pad", "exp") == [*narrow, ("cast", DType.F32), ("exp", DType.F32)]


def test_a_pad_with_a_number_that_may_round_stays_behind_its_cast() -> None:
    assert after_moves("pad", value=0.1) == [("cast", DType.F32), ("pad", DType.F32)]


def test_a_transpose_is_of_the_narrow_values_if_pointwise_ops_read_it() -> None:
    assert after_moves("transpose", "exp") == [("transpose", DType.BF16), ("cast", DType.F32), ("exp", DType.F32)]


def test_a_transpose_stays_before_an_op_that_may_read_its_operand_turned() -> None:
    x = Input("x", Kind.DATA, TensorType(DType.BF16, (4, 6)))
    build = Builder(name="here")
    wide = build(OPS["cast"], x.value, dtype=DType.F32)
    turned = build(OPS["transpose"], build(OPS["cast"], x.value, dtype=DType.F32), perm=(1, 0))
    y = build(OPS["matmul"], wide, turned, transpose_a=False, transpose_b=False)
    graph = Graph((x,), order([y]), {"result.y": y})
    assert late_casts(graph) is graph
