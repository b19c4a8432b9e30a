"""Many small launches as one: casts of parameters, and flags picked element by element."""

from __future__ import annotations

import numpy as np
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of

from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.horizontal import small_tensors as gather
from dslc.compiler.passes.fuse.horizontal.small_tensors import small_tensors

F32, F16 = DType.F32, DType.F16


def parameters(*shapes: tuple[int, ...], kind: Kind = Kind.PARAM) -> list[Input]:
    return [Input(f"w{i}", kind, TensorType(F32, s)) for i, s in enumerate(shapes)]


def cast_all(inputs: list[Input], phase: Phase = Phase.BACKWARD) -> Graph:
    """Each input in f16, twice that, and something of the phase."""
    b, outputs = Builder(name="layer"), dict[str, Value]()
    for i in inputs:
        half = b(OPS["cast"], i.value, dtype=F16)
        outputs[f"y{i.name}"] = b(OPS["add"], half, half)
    last = next(iter(outputs.values()))
    outputs["other"] = Builder(name="layer", phase=phase)(OPS["neg"], last)
    return graph_of(inputs, outputs)


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def checked(graph: Graph) -> Graph:
    found = small_tensors(graph)
    verify_graph(found)
    feeds = feeds_of(graph, 3)
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
    assert small_tensors(found) is found
    return found


def test_casts_of_parameters_are_one_node() -> None:
    graph = checked(cast_all(parameters((3, 4), (5,), (2, 1, 2))))
    [joined] = [n for n in graph.nodes if n.op.name == "casts"]
    assert "cast" not in names(graph) and len(joined.inputs) == 3 and joined.name == "layer and 2 more"


def test_where_nothing_goes_backward_each_is_cast_when_it_is_wanted() -> None:
    graph = cast_all(parameters((3, 4), (5,)), Phase.FORWARD)
    assert small_tensors(graph) is graph


def test_what_is_no_parameter_or_large_stays_alone() -> None:
    data = cast_all(parameters((3, 4), (5,), kind=Kind.DATA))
    assert small_tensors(data) is data
    graph = checked(cast_all(parameters((gather.MAX_CAST_BYTES // 2 + 1,), (5,), (6,))))
    assert sorted(names(graph)).count("cast") == 1 and names(graph).count("casts") == 1


def flags(*sizes: int) -> list[Input]:
    return [Input(f"x{i}", Kind.DATA, TensorType(F32, (size,))) for i, size in enumerate(sizes)]


def test_a_concat_of_pieces_is_one_pick() -> None:
    inputs, b = flags(6, 1, 4), Builder(name="nonfinite")
    first, second, third = (i.value for i in inputs)
    pieces = [
        b(OPS["slice"], first, starts=(2,), stops=(5,), steps=(1,)),
        second,
        b(OPS["slice"], first, starts=(0,), stops=(2,), steps=(1,)),
        b(OPS["slice"], third, starts=(0,), stops=(4,), steps=(2,)),
    ]
    graph = checked(graph_of(inputs, {"y": b(OPS["concat"], *pieces, axis=0)}))
    assert names(graph) == ["slice", "pick"]
    assert graph.nodes[-1].attrs == {"source": (0, 0, 0, 1, 0, 0, 2, 2), "place": (2, 3, 4, 0, 0, 1, 0, 1)}


def test_few_or_long_pieces_are_copied() -> None:
    for sizes in ((3, 4), (600, 500, 1)):
        inputs = flags(*sizes)
        graph = graph_of(inputs, {"y": Builder()(OPS["concat"], *(i.value for i in inputs), axis=0)})
        assert small_tensors(graph) is graph


def test_matrices_are_no_vectors() -> None:
    inputs = [Input(f"x{i}", Kind.DATA, TensorType(F32, (2, 2))) for i in range(4)]
    graph = graph_of(inputs, {"y": Builder()(OPS["concat"], *(i.value for i in inputs), axis=0)})
    assert small_tensors(graph) is graph
    assert np.array_equal(evaluate(graph, feeds_of(graph, 1))["y"].shape, (8, 2))
