"""half_reads: a cross entropy reads 16-bit logits, and their gradient is of 16 bits; a norm reads 16-bit gradients."""

from __future__ import annotations

import pytest
from graphs.random_graphs import graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.dtypes.half_reads import half_reads

B, BACK = Builder(name="loss"), Builder(name="loss", phase=Phase.BACKWARD)
ATTRS = {"axis": 1, "smoothing": 0.1}


def cast(b: Builder, x: Value, dtype: DType) -> Value:
    return b(OPS["cast"], x, dtype=dtype)


def built(dtype: DType = DType.BF16, shifted: bool = False, wide_reader: bool = False, rounded: bool = True) -> Graph:
    """A loss of logits, and their gradient. ``shifted``: the first five rows alone have a loss."""
    x, label = input_of("x", Kind.DATA, 8, 4, dtype=dtype), input_of("label", Kind.DATA, 5, dtype=DType.I32)
    if not shifted:
        label = input_of("label", Kind.DATA, 8, dtype=DType.I32)
    wide = cast(B, x.value, DType.F32)
    if shifted:
        wide = B(OPS["slice"], wide, starts=(0, 0), stops=(5, 4), steps=(1, 1))
    loss, top, below = B.node(OPS["softmax_cross_entropy"], wide, label.value, **ATTRS).outputs
    dy = BACK(OPS["full"], dtype=DType.F32, shape=label.value.type.shape, value=0.5)
    dx = BACK(OPS["softmax_cross_entropy_grad"], wide, label.value, top, below, dy, **ATTRS)
    if shifted:
        dx = BACK(OPS["pad"], dx, low=(0, 0), high=(3, 0), interior=(0, 0), value=0.0)
    outputs = {"loss": loss, "dx": cast(BACK, dx, dtype) if rounded else dx}
    if wide_reader:
        outputs["norm"] = BACK(OPS["sum"], dx, over=(0, 1), keep=False)
    return graph_of([x, label], outputs)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_no_logits_are_wide(dtype: DType, shifted: bool) -> None:
    found = half_reads(built(dtype, shifted))
    verify_graph(found)
    names = [node.op.name for node in found.nodes]
    assert (
        "cast" not in names and names.count("softmax_cross_entropy") == names.count("softmax_cross_entropy_grad") == 1
    )
    assert {t.dtype for n in found.nodes for t in n.types if t.rank == 2} == {dtype}
    assert [found.outputs[name].type.dtype for name in ("loss", "dx")] == [DType.F32, dtype]
    assert half_reads(found) is found


@pytest.mark.parametrize(
    "changed", [{"wide_reader": True}, {"rounded": False}, {"dtype": DType.F64}, {"dtype": DType.F32}]
)
def test_logits_stay_whose_gradient_is_read_in_f32(changed: dict[str, object]) -> None:
    graph = built(**changed)  # type: ignore[arg-type]
    assert half_reads(graph) is graph


def test_a_norm_reads_gradients_before_they_are_cast() -> None:
    small, wide = input_of("g", Kind.DATA, 8, 4, dtype=DType.BF16), input_of("h", Kind.DATA, 3, dtype=DType.F32)
    gradient = cast(BACK, small.value, DType.F32)
    norm = BACK(OPS["global_norm"], gradient, wide.value)
    clipped = BACK(OPS["mul"], gradient, BACK(OPS["clip_coefficient"], norm, max_norm=1.0))
    found = half_reads(graph_of([small, wide], {"clipped": clipped}))
    verify_graph(found)
    [read] = [node for node in found.nodes if node.op.name == "global_norm"]
    assert read.inputs == (small.value, wide.value) and read.types == (norm.type,)
    assert half_reads(found) is found
