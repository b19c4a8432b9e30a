"""late_casts: a cast to a wider float comes after a reshape."""

from __future__ import annotations

import pytest

from dslc.compiler.ir.graph import Graph, Input, Kind, order
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
