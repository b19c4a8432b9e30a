"""free_transposes: what moves only axes of size 1 is a reshape; the same bits, and no copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from graphs.random_graphs import assert_same_bits, build_for, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.layout.free_transposes import free_transposes
from dslc.compiler.passes.queries import moves_nothing
from dslc.compiler.pipeline import compile_entry

B = Builder(name="net")
CONVOLUTIONS = """nn 1
dim B in 1..8 = 4
model M(x: [B, 16, 16, 3]) -> [B, 5] {
  y = x |> rearrange("B h w c -> B c h w") |> conv(16, 3, pad=1) as c |> relu |> conv(32, 1) as wide |> relu
  return y |> conv(32, 3, pad=1, groups=32) as each |> relu |> conv(16, 1) as narrow |> mean(over=[2, 3]) |> linear(5)
}
train M(label: i32[B]) { loss = cross_entropy(output, label); optimizer = sgd(lr=0.1) }
"""


def freed(graph: Graph) -> Graph:
    program = Program("predict", {}, graph)
    after = free_transposes(program, build_for(graph)).graph
    verify_graph(after)
    feeds = feeds_of(graph, 0)
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    assert free_transposes(Program("predict", {}, after), build_for(graph)).graph is after
    return after


@pytest.mark.parametrize(
    "shape, perm, is_free",
    [
        ((4, 1), (1, 0), True),
        ((4, 3), (1, 0), False),
        ((96, 16, 1, 1), (0, 2, 3, 1), True),  # the weight of a convolution of single pixels
        ((96, 1, 3, 3), (0, 2, 3, 1), True),  # of one that is applied to each channel
        ((96, 2, 3, 3), (0, 2, 3, 1), False),
        ((2, 1, 5, 1), (3, 2, 1, 0), False),
        ((2, 1, 5, 1), (3, 0, 2, 1), True),
        ((0, 3, 1), (2, 0, 1), True),
    ],
)
def test_a_transpose_of_axes_of_size_1_is_a_reshape(
    shape: tuple[int, ...], perm: tuple[int, ...], is_free: bool
) -> None:
    x = input_of("x", Kind.DATA, *shape)
    turned = B(OPS["transpose"], B(OPS["exp"], x.value), perm=perm)
    graph = graph_of([x], {"result.y": turned})
    after = freed(graph)
    assert [node.op.name for node in after.nodes] == ["exp", "reshape" if is_free else "transpose"]
    assert moves_nothing(x.value, perm) == is_free
    if not is_free:
        assert after is graph


def test_it_is_one_with_an_equal_reshape_and_with_those_next_to_it(golden: Callable[[str, str], None]) -> None:
    x = input_of("x", Kind.DATA, 6, 1)
    row = B(OPS["transpose"], x.value, perm=(1, 0))
    same = B(OPS["reshape"], x.value, shape=(1, 6))
    graph = graph_of([x], {"a": row, "b": same, "c": B(OPS["reshape"], row, shape=(2, 3))})
    after = freed(graph)
    golden("passes/free_transposes.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")
    assert [node.op.name for node in after.nodes] == ["reshape", "reshape"]
    assert after.outputs["a"] is after.outputs["b"] and after.outputs["c"].producer.inputs == (x.value,)


def test_the_weights_of_convolutions_are_not_copied(tmp_path: Path) -> None:
    """A CPU computes with channels last; the weights of single pixels and single channels lie so in memory."""
    path = tmp_path / "m.nn"
    path.write_text(CONVOLUTIONS)
    program, _ = compile_entry(check_file(str(path)), "train_step", {"B": 4}, Options())
    turned = [node for node in program.graph.nodes if node.op.name == "transpose"]
    assert turned, "the convolutions of 3 x 3 pixels turn their weights"
    assert not any(moves_nothing(node.inputs[0], node.attrs["perm"]) for node in turned)  # type: ignore[arg-type]
