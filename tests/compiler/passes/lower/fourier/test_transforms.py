"""transforms: the same numbers as numpy's for every way, in one stage or in several, and what is chosen when."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from op_laws.evaluation import run

from dslc.compiler.check.model import check_file
from dslc.compiler.cost import machine_of
from dslc.compiler.ir.build import Build, Precision
from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import body_of, scan
from dslc.compiler.ir.stored import Stored
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.products.fourier import PARTS, fourier
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.fourier.folded import Folded
from dslc.compiler.passes.lower.fourier.matrices import Array, Roots
from dslc.compiler.passes.lower.fourier.stages import Stages
from dslc.compiler.passes.lower.fourier.transforms import transforms
from dslc.compiler.passes.lower.fourier.ways import Shape, Ways
from dslc.compiler.pipeline import compile_entry

RNG = np.random.default_rng(7)


def expected(x: list[np.ndarray], roots: Roots, outputs: int, parts: str) -> list[np.ndarray]:
    z = x[0] + (1j * x[1] if len(x) == 2 else 0)
    y = np.fft.fft(z, roots.count) if roots.sign < 0 else np.fft.ifft(z, roots.count) * roots.count
    y = roots.scale * y[..., :outputs]
    return [(y.real, y.imag)[i] for i in PARTS[parts]]


def found(
    x: list[np.ndarray], roots: Roots, outputs: int, parts: str, orders: tuple[int, ...] | None,
    dtype: DType = DType.F64, phase: Phase = Phase.FORWARD,
) -> list[np.ndarray]:  # fmt: skip
    """The results of the nodes for these orders; of folded matrices for no order, of whole ones for None."""
    feeds: dict[Value, np.ndarray] = {}

    def store(numbers: Array, dtype: DType) -> Value:
        source = Input("", Kind.CONSTANT, TensorType(dtype, numbers.shape), None, Stored(numbers))
        feeds[source.value] = Stored(numbers).numbers(dtype)
        return source.value

    given = [Input("x", Kind.DATA, TensorType(dtype, a.shape)).value for a in x]
    feeds |= {value: a.astype(dtype.value.replace("f", "float")) for value, a in zip(given, x)}
    stages = Stages(Builder(phase=phase), store, roots)
    if orders == ():
        values = Folded(stages, x[0].shape[1], outputs).results(given, PARTS[parts])
    elif orders is None:
        values = stages.whole(given, outputs, PARTS[parts])
    else:
        batch, length = x[0].shape
        values = stages.of_orders(given, Shape(roots.count, batch, len(x), length, 1, PARTS[parts], outputs), orders)
    return run(values, feeds)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("inputs", "parts"), [(1, "re"), (1, "im"), (1, "both"), (2, "re"), (2, "im"), (2, "both")])
@pytest.mark.parametrize(
    ("count", "orders"),
    [(12, None), (70, None), (67, ()), (70, ()), (12, (3,)), (12, (6,)), (35, (7,)), (64, (4, 4)), (60, (2, 3)),
     (105, (5, 3)), (16, (2, 2, 2))],
    ids=str,
)  # fmt: skip
def test_numbers_are_those_of_numpy(
    count: int, orders: tuple[int, ...] | None, inputs: int, parts: str, sign: int
) -> None:
    """Whole transforms, those of the first numbers, and those that give the first results."""
    roots = Roots(count, sign, 0.75)
    for given, outputs in ((count, count), (count // 2 + 1, count), (count, count // 2 + 1), (5, 3)):
        x = [RNG.normal(size=(3, given)) for _ in range(inputs)]
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            y = found(x, roots, outputs, parts, orders, phase=phase)
            for own, theirs in zip(y, expected(x, roots, outputs, parts), strict=True):
                np.testing.assert_allclose(own, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("count", "orders"), [(512, (16,)), (693, (21,)), (4096, (16, 16)), (1021, ())], ids=str)
def test_ways_are_as_exact_as_a_product(count: int, orders: tuple[int, ...]) -> None:
    """In f32, next to numpy's in f64."""
    rng = np.random.default_rng(count)
    x, roots = [rng.uniform(-1, 1, (16, count)) for _ in range(2)], Roots(count, -1)
    right = np.array(expected([a.astype(np.float32).astype(np.float64) for a in x], roots, count, "both"))
    errors = [
        np.abs(np.array(found(x, roots, count, "both", way, DType.F32)) - right).mean() / np.abs(right).max()
        for way in (orders, None)
    ]
    assert errors[0] <= errors[1] < 1e-6


def graph_of(
    rows: int, count: int, dtype: DType = DType.F32, parts: str = "both", outputs: int = 0, inputs: int = 1
) -> Graph:
    x = Input("x", Kind.DATA, TensorType(dtype, (rows, count)))
    attrs = {"count": count, "outputs": outputs or count, "sign": -1, "parts": parts, "scale": 1.0}
    attrs |= {"axis": 1, "twice": ""}
    node = Builder(name="dft").node(fourier, *[x.value] * inputs, **attrs)
    return Graph((x,), (node,), {f"y{i}": value for i, value in enumerate(node.outputs)})


def composed(graph: Graph, target: str, build: Build | None = None) -> Graph:
    program = Program("predict", {}, graph, target=target)
    build = build or Build(target=target, provider="own")
    done = transforms(program, build).graph
    verify_graph(done)
    assert transforms(dataclasses.replace(program, graph=done), build).graph is done
    return done


def products(graph: Graph) -> int:
    return sum(node.op.name == "matmul" for node in graph.nodes)


def test_long_composite_transforms_have_stages() -> None:
    assert products(composed(graph_of(1513, 693), "cpu")) == 3
    assert products(composed(graph_of(64, 1 << 15), "cpu")) >= 3


@pytest.mark.parametrize(("rows", "count"), [(4096, 1024), (1281, 818), (2, 8), (3, 1 << 16)])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16])
def test_a_gpu_has_kernels_of_whole_transforms(rows: int, count: int, dtype: DType) -> None:
    done = composed(graph_of(rows, count, dtype), "sm_90")
    assert [node.op.name for node in done.nodes] == ["staged_fourier"]


def test_a_kernel_reads_an_axis_in_place_and_products_transpose_it() -> None:
    for target, ops in (("sm_90", {"staged_fourier"}), ("cpu", {"transpose", "matmul"})):
        x = Input("x", Kind.DATA, TensorType(DType.F32, (40, 12, 3)))
        attrs = {"count": 12, "outputs": 7, "sign": -1, "parts": "both", "scale": 1.0, "axis": 1, "twice": "results"}
        graph = Graph((x,), (node := Builder().node(fourier, x.value, **attrs),), {"y": node.outputs[1]})
        assert ops <= {node.op.name for node in composed(graph, target).nodes}


def test_a_split_stage_is_split_again() -> None:
    assert products(composed(graph_of(64, 1 << 15), "cpu")) == 4


def test_gpu_products_have_no_narrow_side() -> None:
    """16382 = 2 * 8191: stages would multiply by [16382, 2] for each row, which takes whole tiles."""
    done = composed(graph_of(1281, 16382, outputs=8192, inputs=2), "sm_90")
    assert products(done) and all(min(n.types[0].ints[-2:]) >= 32 for n in done.nodes if n.op.name == "matmul")


def test_long_primes_take_half_of_the_matrix() -> None:
    done = composed(graph_of(1024, 1021, outputs=511), "cpu")
    assert [node.input_types[1].ints for node in done.nodes if node.op.name == "matmul"] == [(510, 511), (510, 511)]


@pytest.mark.parametrize("count", [8, 64, 67])
def test_short_transforms_are_one_product(count: int) -> None:
    done = composed(graph_of(1024, count), "cpu")
    assert [node.input_types[1].ints for node in done.nodes if node.op.name == "matmul"] == [(count, count)] * 2
    assert any(node.op.name == "gather_rows" for node in done.nodes) is (count > 64)


def test_tensor_cores_keep_one_product() -> None:
    """Of orders that no kernel of whole transforms has."""
    tf32 = Build(target="sm_90", provider="own", precision=Precision(DType.F32, tf32=True))
    assert products(composed(graph_of(8, 32749), "sm_90", tf32)) == 2
    assert products(composed(graph_of(4096, 61, DType.BF16), "sm_90")) == 0
    assert products(composed(graph_of(1 << 18, 61, DType.BF16), "sm_90")) == 2


def test_constants_are_inputs_that_the_artifact_stores() -> None:
    graph = graph_of(1513, 693)
    done = composed(graph, "cpu")
    fresh = done.inputs[1:]
    assert {source.kind for source in fresh} == {Kind.CONSTANT}
    assert {source.value for source in fresh} <= {v for node in done.nodes for v in node.inputs}
    x = RNG.normal(size=(1513, 693)).astype(np.float32)
    feeds = {graph.inputs[0].value: x}
    feeds |= {i.value: i.stored.numbers(i.value.type.dtype) for i in fresh if i.stored is not None}
    y = run(list(done.outputs.values()), feeds)
    right = np.fft.fft(x.astype(np.float64))
    assert np.abs(y[0] + 1j * y[1] - right).max() < 1e-6 * np.abs(right).max()


def test_the_time_of_a_way_is_that_of_its_stages() -> None:
    """Seconds grow with the rows, and a split of the second stage is taken only if it is faster."""
    ways = Ways(machine_of("sm_90", "own"), DType.F32)
    short, long = (ways.several(Shape(1 << 14, rows, 1, 1 << 14, 1, (0, 1), 1 << 14)) for rows in (4, 4096))
    assert short is not None and long is not None and short.seconds < long.seconds
    assert len(short.orders) <= len(long.orders)
    assert ways.several(Shape(509, 4, 1, 509, 1, (0, 1), 509)) is None


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_loops_capture_the_constants(tmp_path: Path, target: str) -> None:
    source = tmp_path / "looped.nn"
    lines = "  h = zeros([8, 16384])\n  scan row in x along 0 carry h into y {\n    re, im = dft(row)\n"
    lines += "    h = h + re\n    yield im\n  }\n  return y\n"
    source.write_text(f"nn 1\nmodel Net(x: [3, 8, 16384]) -> [_, _, _] {{\n{lines}}}\n")
    options = Options(target=target, provider="own")
    graph = compile_entry(check_file(source), "predict", {}, options, after="transforms")[0].graph
    [loop] = [node for node in graph.nodes if node.op is scan]
    ops = {node.op.name for node in body_of(loop.attrs).nodes}
    assert ("staged_fourier" if target == "sm_90" else "matmul") in ops
    feeds = {i.value: i.stored.numbers(i.value.type.dtype) for i in graph.inputs if i.stored is not None}
    [given] = [i for i in graph.inputs if i.stored is None]
    x = RNG.normal(size=(3, 8, 16384)).astype(np.float32)
    [y] = run(list(graph.outputs.values()), feeds | {given.value: x})
    right = np.fft.fft(x.astype(np.float64)).imag
    assert np.abs(y - right).max() < 1e-6 * np.abs(right).max()


def test_example(golden: Callable[[str, str], None]) -> None:
    before = graph_of(1513, 693, outputs=347)
    after = composed(before, "cpu")
    golden("passes/transforms.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(after)}")
