"""met_taps: convolutions without the taps that meet only the border of zeros; the same numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from graphs.random_graphs import build_for, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.met_taps import met_taps
from dslc.compiler.pipeline import compile_entry


@dataclass(frozen=True)
class Given:
    """A convolution and both of its gradients."""

    space: tuple[int, ...]
    k: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    stride: tuple[int, ...] = ()
    groups: int = 1
    share: int = 2

    def graph(self) -> Graph:
        x = input_of("x", Kind.DATA, 2, self.groups * self.share, *self.space)
        w = input_of("w", Kind.PARAM, 2 * self.groups, self.share, *self.k)
        b = Builder(name="conv")
        geometry = {
            "stride": self.stride or (1,) * len(self.k), "pad": self.pad, "dilation": self.dilation,
            "groups": self.groups,
        }  # fmt: skip
        y = b(OPS["conv"], x.value, w.value, **geometry)
        dx = b(OPS["conv_dgrad"], y, w.value, **geometry, size=self.space)
        dw = b(OPS["conv_wgrad"], x.value, y, **geometry, size=self.k)
        return graph_of([x, w], {"y": y, "dx": dx, "dw": dw})


#: With the kernel's sizes afterwards.
TAKEN = {
    "a dilation above the image": (Given((9, 9), (3, 3), (12, 12), (12, 12)), (1, 1)),
    "one axis": (Given((9, 20), (3, 3), (12, 12), (12, 12)), (1, 3)),
    "a line, five taps": (Given((9,), (5,), (12,), (6,)), (3,)),
    "an even kernel": (Given((9,), (4,), (18,), (12,)), (2,)),
    "three axes, two strides": (Given((3, 4, 5), (3, 3, 3), (4, 4, 4), (4, 4, 4), stride=(1, 2, 2)), (1, 1, 3)),
    "one element": (Given((1, 1), (3, 3), (1, 1), (1, 1)), (1, 1)),
    "groups": (Given((5, 5), (3, 3), (6, 6), (6, 6), groups=3), (1, 1)),
    "a stride that leaves out more of one end": (Given((2,), (2,), (3,), (3,), stride=(5,)), (1,)),
}
LEFT = {
    "every tap meets an element": Given((9, 9), (3, 3), (8, 8), (8, 8)),
    "a border below 0": Given((9,), (3,), (4,), (8,)),
    "one channel per group": Given((9, 9), (3, 3), (12, 12), (12, 12), groups=3, share=1),
    "no window meets the image": Given((1,), (1,), (1,), (1,), stride=(2,)),
}


def after(graph: Graph) -> Graph:
    found = met_taps(Program("predict", {}, graph), build_for(graph)).graph
    verify_graph(found)
    return found


def kernels(graph: Graph) -> set[tuple[int, ...]]:
    """The kernel's sizes of all convolutions and gradients."""
    found = set()
    for node in graph.nodes:
        if node.op.name in ("conv", "conv_dgrad"):
            found.add(node.input_types[1].ints[2:])
        elif node.op.name == "conv_wgrad":
            found.add(node.types[0].ints[2:])
    return found


def same_sums(before: Graph, changed: Graph) -> None:
    """Whole numbers, whose sums are exact in any order."""
    feeds = {key: np.round(4 * value) for key, value in feeds_of(before, 0).items()}
    found = evaluate(changed, feeds)
    for key, value in evaluate(before, feeds).items():
        np.testing.assert_array_equal(found[key], value)


@pytest.mark.parametrize("name", TAKEN)
def test_outer_taps_go_and_sums_stay(name: str) -> None:
    given, left = TAKEN[name]
    graph = given.graph()
    found = after(graph)
    assert kernels(found) == {left}
    assert all(d == 1 for n in found.nodes if n.op.name == "conv" for d, k in zip(n.attrs["dilation"], left) if k == 1)
    same_sums(graph, found)
    assert after(found) is found


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    graph = LEFT[name].graph()
    assert after(graph) is graph


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_any_geometry(axes: int) -> None:
    """Where the pass changes nothing, too: a tap that meets an element is never left out."""
    rng, changed = random.Random(axes), 0
    for _ in range(150):
        drawn = [[rng.randint(*ends) for _ in range(axes)] for ends in ((1, 7), (1, 4), (0, 9), (1, 8), (1, 4))]
        space, k, pad, dilation, stride = map(tuple, drawn)
        if any(n + 2 * p <= d * (m - 1) for n, m, p, d in zip(space, k, pad, dilation)):
            continue
        graph = Given(space, k, pad, dilation, stride).graph()
        found = after(graph)
        same_sums(graph, found)
        changed += found is not graph
    assert changed > 5


def test_the_gradient_of_a_tap_that_is_left_out_is_zero() -> None:
    graph = TAKEN["a dilation above the image"][0].graph()
    dw = evaluate(after(graph), feeds_of(graph, 0))["dw"]
    assert not np.any(np.delete(dw.reshape(2, 2, 9), 4, axis=2)) and np.all(dw[:, :, 1, 1])


def test_a_model_multiplies_by_one_tap(tmp_path: Path) -> None:
    path = tmp_path / "net.nn"
    path.write_text("""nn 1
dim B in 1..8 = 4
model Net(image: [B, 8, 9, 9]) -> [B, 16, 9, 9] {
  return image |> conv(16, 3, pad=1) as near |> relu |> conv(16, 3, pad=12, dilation=12) as wide
}
train Net(target: [B, 16, 9, 9]) {
  loss = mse(output, target)
  optimizer = sgd(lr=0.1)
}
""")
    for target, precision in (("cpu", "f32"), ("sm_90", "f32"), ("sm_90", "bf16")):
        program, _ = compile_entry(
            check_file(str(path)), "train_step", {"B": 4}, Options(target=target, precision=precision)
        )
        names = {n.name for n in program.graph.nodes if n.attrs.get("pad") == (1, 1)}
        assert names == {"near.conv"} or names == {"near"}
        assert not any(n.attrs.get("pad") == (12, 12) for n in program.graph.nodes)


def test_the_example(golden: Callable[[str, str], None]) -> None:
    before = TAKEN["one axis"][0].graph()
    golden("passes/met_taps.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(after(before))}")
