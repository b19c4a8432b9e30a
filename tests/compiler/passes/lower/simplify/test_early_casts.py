"""early_casts: a cast to a narrower float comes before ops that only move elements."""

from __future__ import annotations

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate

from dslc.compiler.ir.graph import Attr, Graph, Input, Kind, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.simplify.early_casts import early_casts

PAD: dict[str, Attr] = {"low": (0, 1), "high": (0, 1), "interior": (0, 0), "value": 0.0}
MOST: dict[str, Attr] = {"starts": (0, 2), "stops": (4, 6), "steps": (1, 1)}
LEAST: dict[str, Attr] = {"starts": (0, 5), "stops": (4, 6), "steps": (1, 1)}


def graph_of(*moves: tuple[str, dict[str, Attr]], to: DType = DType.BF16, again: bool = False) -> Graph:
    """cast(moves(exp(x))). ``again``: the wide values are a result, too."""
    x = Input("x", Kind.DATA, TensorType(DType.F32, (4, 6)))
    build = Builder(name="here")
    y = build(OPS["exp"], x.value)
    for name, attrs in moves:
        y = build(OPS[name], y, **attrs)
    results = {"result.y": build(OPS["cast"], y, dtype=to)}
    results |= {"result.z": y} if again else {}
    return Graph((x,), order(list(results.values())), results)


def test_all_moves_in_a_row_are_of_the_narrow_values() -> None:
    graph = graph_of(("pad", PAD), ("transpose", {"perm": (1, 0)}), ("reshape", {"shape": (32,)}))
    found = early_casts(graph)
    verify_graph(found)
    feeds = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}
    assert_same_bits(evaluate(found, feeds), evaluate(graph, feeds))
    wanted = [("exp", DType.F32), ("cast", DType.BF16)]
    wanted += [(name, DType.BF16) for name in ("pad", "transpose", "reshape")]
    assert [(n.op.name, n.types[0].dtype) for n in found.nodes] == wanted
    assert early_casts(found) is found


def test_a_slice_of_most_elements_is_of_the_narrow_values() -> None:
    found = early_casts(graph_of(("slice", MOST)))
    assert [n.op.name for n in found.nodes] == ["exp", "cast", "slice"]


@pytest.mark.parametrize(
    "graph",
    [
        graph_of(("slice", LEAST)),
        graph_of(("pad", {**PAD, "value": 0.1})),
        graph_of(("pad", PAD), again=True),
        graph_of(("pad", PAD), to=DType.F64),
        graph_of(("cumsum", {"axis": 0, "reverse": False})),
    ],
)
def test_a_cast_stays_behind_other_moves(graph: Graph) -> None:
    """Of few elements, with a number that may round, whose wide values others read, to a wider float, and sums."""
    assert early_casts(graph) is graph
