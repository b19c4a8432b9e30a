"""partial_windows: max pools read images without a longer copy of them; the same numbers, on the GPU's kernels, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import on_machine
from graphs.random_graphs import evaluate, feeds_of, graph_of, input_of

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Input, Kind, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.partial_windows import partial_windows
from dslc.compiler.pipeline import compile_entry


@dataclass(frozen=True)
class Given:
    """A max pool of an image with a border, and its gradient without the border."""

    space: tuple[int, ...]
    k: tuple[int, ...]
    stride: tuple[int, ...]
    high: tuple[int, ...]
    low: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()
    channels: tuple[int, int] = (0, 0)
    value: float = -inf

    def graph(self) -> Graph:
        none = (0,) * len(self.space)
        low, pad = self.low or none, self.pad or none
        x, b = input_of("x", Kind.DATA, 2, 3, *self.space), Builder(name="pool")
        given = {"low": (0, self.channels[0], *low), "high": (0, self.channels[1], *self.high)}
        longer = b(OPS["pad"], x.value, **given, interior=(0,) * x.value.type.rank, value=self.value)
        attrs = {"k": self.k, "stride": self.stride, "pad": pad}
        y, place = b.node(OPS["maxpool"], longer, **attrs).outputs
        dy = b(OPS["mul"], y, y)
        dx = b(OPS["maxpool_grad"], dy, place, **attrs, size=longer.type.shape[2:])
        starts = given["low"]
        stops = tuple(a + n for a, n in zip(starts, x.value.type.ints))
        taken = b(OPS["slice"], dx, starts=starts, stops=stops, steps=(1,) * x.value.type.rank)
        return graph_of([x], {"y": y, "dx": taken})


TAKEN = {
    "a longer end": Given((8, 6), (3, 3), (2, 2), (1, 1)),
    "one axis": Given((8, 7), (3, 2), (2, 2), (1, 0)),
    "three axes": Given((4, 5, 6), (3, 2, 3), (2, 1, 2), (1, 0, 1)),
    "a line": Given((11,), (4,), (3,), (2,)),
    "with pad": Given((8, 8), (3, 3), (2, 2), (1, 1), pad=(1, 1)),
    "on both sides": Given((8, 8), (3, 3), (2, 2), (1, 1), low=(1, 1)),
    "longer at the end than at the begin": Given((9, 8), (4, 4), (3, 3), (2, 3), low=(1, 2)),
}
LEFT = {
    "zeros": Given((8, 6), (3, 3), (2, 2), (1, 1), value=0.0),
    "a window without an element": Given((8, 6), (2, 2), (2, 2), (2, 0)),
    "longer at the begin": Given((8, 8), (3, 3), (2, 2), (0, 0), low=(1, 1)),
    "over half of a window before": Given((8, 8), (3, 3), (1, 1), (2, 2), low=(2, 2)),
    "channels": Given((8, 6), (3, 3), (2, 2), (1, 1), channels=(0, 1)),
}


def ops_of(graph: Graph) -> Counter[str]:
    return Counter(node.op.name for node in graph.nodes)


@pytest.mark.parametrize("name", TAKEN)
def test_the_border_goes_and_values_stay(name: str) -> None:
    graph = TAKEN[name].graph()
    after = partial_windows(graph)
    verify_graph(after)
    assert ops_of(after) == Counter({"maxpool": 1, "maxpool_grad": 1, "mul": 1})
    feeds = feeds_of(graph, 0)
    for key, value in evaluate(graph, feeds).items():
        np.testing.assert_array_equal(evaluate(after, feeds)[key], value)
    assert partial_windows(after) is after


@pytest.mark.parametrize("name", [n for n in LEFT if n != "zeros"])
def test_what_is_left(name: str) -> None:
    found = ops_of(partial_windows(LEFT[name].graph()))
    assert found["pad"] == 1


def test_a_border_of_zeros_stays_and_its_gradient_has_none() -> None:
    """Where the largest element of a window is a zero of the border, the gradient is left out with or without it."""
    graph = LEFT["zeros"].graph()
    after = partial_windows(graph)
    assert ops_of(after) == Counter({"pad": 1, "maxpool": 1, "maxpool_grad": 1, "mul": 1})
    feeds = feeds_of(graph, 0)
    for key, value in evaluate(graph, feeds).items():
        np.testing.assert_array_equal(evaluate(after, feeds)[key], value)


def test_a_window_of_minus_infinity_selects_an_element_of_the_image() -> None:
    x = np.full((1, 1, 5), -np.inf)
    image = Input("x", Kind.DATA, TensorType(DType.F64, x.shape))
    attrs = {"k": (3,), "stride": (2,), "pad": (1,), "more": (1,)}
    node = Builder(name="pool").node(OPS["maxpool"], image.value, **attrs)
    _, place = node.op.meaning([x], node.attrs)
    assert place.ravel().tolist() == [1, 0, 0]


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("name", ["a longer end", "one axis", "three axes", "with pad"])
def test_kernels_of_a_gpu(name: str, last: bool) -> None:
    graph = partial_windows(TAKEN[name].graph())
    rng = np.random.default_rng(len(name))
    for node in graph.nodes:
        if node.op.name == "mul":
            continue
        made = _on_channels(node, last)
        xs = [
            simulator.held(rng.normal(size=t.ints), t.dtype)
            if t.dtype.is_float
            else rng.integers(0, np.prod(TAKEN[name].k), t.ints).astype(np.uint8)
            for t in made.input_types
        ]
        for got, wanted in zip(on_machine(made, xs), made.op.meaning(xs, made.attrs), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def _on_channels(node: Node, last: bool) -> Node:
    """A pool of f32, of images with channels last if asked for."""
    types = [TensorType(DType.F32 if t.dtype.is_float else t.dtype, t.shape) for t in node.input_types]
    if last:
        types = [TensorType(t.dtype, (t.shape[0], *t.shape[2:], t.shape[1])) for t in types]
    values = [Input(f"x{n}", Kind.DATA, t).value for n, t in enumerate(types)]
    return Builder(name="pool").node(OPS[node.op.name + ("_last" if last else "")], *values, **node.attrs)


def test_a_model_has_no_longer_images(tmp_path: Path) -> None:
    path = tmp_path / "net.nn"
    path.write_text("""nn 1
dim B in 1..8 = 4
model Net(image: [B, 3, 22, 22]) -> [B, 5] {
  x = image |> conv(16, 3, bias=false) as c1 |> relu |> maxpool(3, stride=2, ceil_mode=true)
  return x |> conv(16, 2) as c2 |> relu |> maxpool(2, ceil_mode=true) |> flatten |> linear(5) as head
}
train Net(label: i32[B]) {
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}
""")
    for precision in ("f32", "bf16"):
        program, _ = compile_entry(
            check_file(str(path)), "train_step", {"B": 4}, Options(target="sm_90", precision=precision)
        )
        pools = [node for node in program.graph.nodes if node.op.name.startswith("maxpool")]
        assert len(pools) == 4 and all(node.attrs["more"] == (1, 1) for node in pools)
        assert not any(node.attrs["value"] == -inf for node in program.graph.nodes if node.op.name == "pad")
    program, _ = compile_entry(check_file(str(path)), "train_step", {"B": 4}, Options(target="cpu"))
    assert not any("more" in node.attrs for node in program.graph.nodes)


def test_the_example(golden: Callable[[str, str], None]) -> None:
    before = TAKEN["a longer end"].graph()
    after = partial_windows(before)
    golden("passes/partial_windows.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(after)}")
