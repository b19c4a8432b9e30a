"""pad_classes: classes are padded so that rows are aligned; the same losses and gradients."""

from __future__ import annotations

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of
from graphs.random_graphs import graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.layout.pad_classes import pad_classes

FORWARD, BACK = Builder(name="head"), Builder(name="head", phase=Phase.BACKWARD)
ROWS, WIDTH = (2, 3), 8
PLAIN = {"transpose_a": False, "transpose_b": False}


def built(
    classes: int = 1025, dtype: DType = DType.BF16, bias: bool = False, turned: bool = True, smoothing: float = 0.0,
    also: str = "",
) -> Graph:  # fmt: skip
    """A head with its loss and all gradients. ``turned``: the weight is [classes, width]."""
    x = input_of("x", Kind.DATA, *ROWS, WIDTH, dtype=dtype)
    w = input_of("w", Kind.DATA, *((classes, WIDTH) if turned else (WIDTH, classes)), dtype=dtype)
    row, label = input_of("row", Kind.DATA, classes, dtype=dtype), input_of("label", Kind.DATA, *ROWS, dtype=DType.I32)
    logits = FORWARD(OPS["matmul"], x.value, w.value, transpose_a=False, transpose_b=turned)
    if bias:
        logits = FORWARD(OPS["add"], logits, row.value)
    attrs = {"axis": 2, "smoothing": smoothing}
    loss, *statistics = FORWARD.node(OPS["softmax_cross_entropy"], logits, label.value, **attrs).outputs
    dy = BACK(OPS["full"], dtype=loss.type.dtype, shape=ROWS, value=0.25)
    slope = BACK(OPS["softmax_cross_entropy_grad"], logits, label.value, *statistics, dy, **attrs)
    flat, inputs = (BACK(OPS["reshape"], v, shape=(6, v.type.ints[-1])) for v in (slope, x.value))
    across = BACK(OPS["matmul"], inputs, flat, transpose_a=True, transpose_b=False)
    outputs = {
        "loss": loss,
        "dx": BACK(OPS["matmul"], slope, w.value, transpose_a=False, transpose_b=not turned),
        "dw": BACK(OPS["transpose"], across, perm=(1, 0)) if turned else across,
        "dw turned": BACK(OPS["matmul"], flat, inputs, transpose_a=True, transpose_b=False),
    }
    if bias:
        outputs["drow"] = BACK(OPS["sum_to"], slope, shape=(classes,))
    more: dict[str, Value] = {"": loss, "result": logits, "exp": FORWARD(OPS["exp"], logits)}
    return graph_of([x, w, row, label], {**outputs, "more": more[also]})


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("dtype", "classes"), [(DType.BF16, 1025), (DType.F32, 1026)])
def test_rows_are_whole_and_results_the_same(dtype: DType, classes: int, turned: bool, bias: bool) -> None:
    graph = built(classes, dtype, bias, turned)
    found = pad_classes(graph)
    verify_graph(found)
    assert pad_classes(found) is found
    feeds = feeds_of(graph, 3)
    feeds["label"] = np.array([[0, 5, classes - 1], [7, 1024, 3]], np.int32)
    one, other = evaluate(graph, feeds), evaluate(found, feeds)
    for name, x in one.items():
        np.testing.assert_allclose(other[name], x, rtol=1e-12, atol=1e-14, err_msg=name)
    products = [node for node in found.nodes if node.op.name == "matmul"]
    assert len(products) == 4
    for node in products:
        assert all(t.ints[-1] * dtype.itemsize % 16 == 0 for t in (*node.input_types, *node.types)), node


@pytest.mark.parametrize(
    "changed",
    [
        {"classes": 1032},  # aligned
        {"classes": 10},  # not worth it
        {"smoothing": 0.1},
        {"also": "result"},
        {"also": "exp"},
    ],
)
def test_others_stay(changed: dict[str, object]) -> None:
    graph = built(**changed)  # type: ignore[arg-type]
    assert pad_classes(graph) is graph
