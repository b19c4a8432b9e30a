"""narrowed: transforms are given no zeros at the end and have no results that nothing reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph
from dslc.compiler.ops.products.fourier import fourier
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.fourier.narrowed import narrowed
from dslc.compiler.pipeline import compile_entry

#: A convolution with a kernel as long as the sequence.
LONG = """nn 1
dim B in 1..8 = 2
const T = 6
model Long(u: [B, 2, T]) -> [B, 2, T] {
  param k: [2, T] = normal(0.3)
  ur, ui = dft(pad(u, [0, 0, 0], [0, 0, T]), onesided=true)
  kr, ki = dft(pad(k, [0, 0], [0, T]), onesided=true)
  return dft(ur * kr - ui * ki, ur * ki + ui * kr, inverse=true, onesided=true, size=2*T)[:, :, :T]
}
train Long(wanted: [B, 2, T]) {
  loss      = mse(output, wanted)
  optimizer = sgd(lr=1.0)
}
"""


def graph_before(folder: Path, source: str, entry: str = "train_step") -> Graph:
    """What the pass `transforms` is given."""
    (folder / "net.nn").write_text(source)
    kept: dict[str, Graph] = {}
    checked, options = check_file(folder / "net.nn"), Options(target="cpu")
    sizes = {dim.name: dim.default for dim in checked.dims}
    compile_entry(checked, entry, sizes, options, target="cpu", keep=lambda n, p: kept.update({n: p.graph}))
    return kept["widen_halves"]


def sizes(graph: Graph) -> list[tuple[int, int]]:
    """How many elements each transform is given, and how many results it has."""
    found = [n for n in graph.nodes if n.op is fourier]
    return [(n.input_types[0].ints[-1], n.types[0].ints[-1]) for n in found]


def compared(graph: Graph) -> Graph:
    """The narrowed graph, whose values are those of the graph."""
    after, feeds = narrowed(graph), feeds_of(graph, 2)
    wanted = evaluate(graph, feeds)
    for name, value in evaluate(after, feeds).items():
        np.testing.assert_allclose(value, wanted[name], rtol=0, atol=1e-13 * max(1, np.abs(value).max()))
    assert narrowed(after) is after
    return after


def test_a_long_convolution_and_its_gradient(tmp_path: Path) -> None:
    """Of 12 elements 6 are given, and 6 are wanted back; so in the gradient, where slices are pads."""
    before = graph_before(tmp_path, LONG)
    assert set(sizes(before)) == {(12, 7), (7, 12)}
    after = compared(before)
    assert set(sizes(after)) == {(6, 7), (7, 6)} and len(sizes(after)) == len(sizes(before))
    assert not any(node.op.name == "pad" for node in after.nodes)


def test_the_result_is_numpys(tmp_path: Path) -> None:
    graph = compared(graph_before(tmp_path, LONG, "predict"))
    feeds = feeds_of(graph, 2)
    u, k = np.fft.rfft(feeds["u"], 12), np.fft.rfft(feeds["k"], 12)
    np.testing.assert_allclose(evaluate(graph, feeds)["result.output"], np.fft.irfft(u * k, 12)[..., :6], atol=1e-13)


def model(body: str, result: str) -> str:
    return f"nn 1\nmodel M(x: [3, 8], y: [3, 8]) -> {result} {{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("body", "result", "wanted"),
    [
        ("a, b = dft(x, y)\nreturn a[:, :3] + b[:, 1:4]", "[3, 3]", (8, 4)),  # the greatest of all that are read
        ("a, b = dft(x, y)\nreturn a[:, 1:7:2] + b[:, :3]", "[3, 3]", (8, 7)),
        ("a, b = dft(x, y)\nreturn a[1:, :2] + b[:2, :2]", "[2, 2]", (8, 2)),  # rows are of no concern
        ("a, b = dft(x, y)\nreturn a[:, :2] + sum(b, over=1, keep=true)", "[3, 2]", (8, 8)),  # another reader
        ("a, b = dft(x, y)\nreturn a[:, 4:1:-1] + b[:, :3]", "[3, 3]", (8, 8)),  # backwards
        ("a, b = dft(pad(x, [0, 0], [0, 4]), pad(y, [0, 0], [0, 4]))\nreturn a + b", "[3, 12]", (8, 12)),
        ("a, b = dft(pad(x, [0, 0], [0, 4]), -pad(y, [0, 0], [0, 4]))\nreturn a + b", "[3, 12]", (8, 12)),
        ("a, b = dft(pad(x, [0, 0], [0, 4]), concat([y, y[:, :4]], axis=1))\nreturn a + b", "[3, 12]", (12, 12)),
        ("a, b = dft(pad(x[:, 2:], [0, 0], [0, 4]), pad(y, [0, 0], [0, 2]))\nreturn a + b", "[3, 10]", (10, 10)),
        ("a, b = dft(pad(x * y, [0, 4], [0, 0]))\nreturn a + b", "[3, 12]", (12, 12)),  # before the elements
        ("a, b = dft(pad(x * y, [1, 0], [0, 4]))\nreturn a + b", "[4, 12]", (12, 12)),  # rows, too
        ("a, b = dft(pad(x * y, [0, 0], [0, 4], value=1.0))\nreturn a + b", "[3, 12]", (12, 12)),
        # frequencies that are left out of an inverse; those in the middle count twice
        ("return dft(pad(x, [0, 0], [0, 1]), pad(y, [0, 0], [0, 1]), inverse=true, onesided=true)", "[3, 16]", (8, 16)),
        ("return sum(dft(pad(x * y, [0, 0], [0, 1]) * 2.0, onesided=true)[0], over=1)", "[3]", (9, 5)),
    ],
)
def test_what_is_given_and_wanted(body: str, result: str, wanted: tuple[int, int], tmp_path: Path) -> None:
    graph = graph_before(tmp_path, model(body, result), "predict")
    assert sizes(compared(graph)) == [wanted]


def test_weights_that_are_not_finite_make_no_zeros(tmp_path: Path) -> None:
    found = []
    for last in ("1.0", "inf"):
        weights = f"tensor([1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, {last}])"
        body = f"a, b = dft(pad(x * y, [0, 0], [0, 1]) * {weights})\nreturn a"
        found.append(sizes(narrowed(graph_before(tmp_path, model(body, "[3, 9]"), "predict"))))
    assert found == [[(8, 9)], [(9, 9)]]
