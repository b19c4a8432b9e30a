"""Optimizer steps joined into one node: who joins, what becomes of the flags, and the bits."""

from __future__ import annotations

import numpy as np
import pytest
from graphs.random_graphs import graph_of

from dslc.compiler.artifact.labels import plain_attr
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.optimizer.multi_update import MAX_PARAMS
from dslc.compiler.passes.fuse.horizontal.optimizer import MAX_BYTES, MAX_BYTES_OF_ALL, group_updates, read_sums

F32 = DType.F32
PLAIN = {"momentum": 0.9, "nesterov": False, "weight_decay": 0.0}
LR, STEP = Input("lr", Kind.SCALAR, TensorType(F32, ())), Input("step", Kind.SCALAR, TensorType(DType.I64, ()))


class Steps:
    """A training step of some parameters; the gradient of each is a data input."""

    def __init__(self) -> None:
        self.inputs: list[Input] = [LR, STEP]
        self.updates: list[tuple[Input, Value]] = []
        self.flags: list[Value] = []

    def add(self, *shape: int, lr: Value = LR.value, grad: Value | None = None, **attrs: object) -> Node:
        number = len(self.flags)
        kinds = {"p": Kind.PARAM, "p.buf": Kind.OPTIMIZER, "g": Kind.DATA}
        p, buf, g = (Input(f"{number}.{n}", kind, TensorType(F32, shape)) for n, kind in kinds.items())
        self.inputs += [p, buf, g] if grad is None else [p, buf]
        b = Builder(name=f"layer{number}", phase=Phase.UPDATE)
        given = g.value if grad is None else grad
        node = b.node(
            OPS["sgd_momentum_update"], p.value, given, buf.value, lr, STEP.value, **{**PLAIN, **attrs}  # type: ignore[arg-type]
        )  # fmt: skip
        self.updates += zip([p, buf], node.outputs)
        self.flags.append(node.outputs[-1])
        return node

    def graph(self) -> Graph:
        b = Builder(name="nonfinite", phase=Phase.UPDATE)
        rows = [b(OPS["reshape"], flag, shape=(1,)) for flag in self.flags]
        outputs = {"nonfinite": b(OPS["cast"], b(OPS["concat"], *rows, axis=0), dtype=DType.U8)}
        return graph_of(self.inputs, outputs, self.updates)


def names(graph: Graph) -> list[str]:
    return sorted(n.op.name for n in graph.nodes)


def run(graph: Graph) -> dict[str, np.ndarray]:
    """All outputs and new states through the meanings, from inputs that are the same for the same name."""
    known: dict[Value, np.ndarray] = {}
    for i in graph.inputs:
        rng = np.random.default_rng(sum(i.name.encode()))
        shape = i.value.type.ints
        known[i.value] = np.asarray(rng.standard_normal(shape), np.float32) if i is not STEP else np.array(3)
        if i.name.startswith("1.g"):
            known[i.value].reshape(-1)[0] = np.inf
    for node in graph.nodes:
        attrs = {name: plain_attr(value) for name, value in node.attrs.items()}
        known.update(zip(node.outputs, node.op.meaning([known[v] for v in node.inputs], attrs)))
    return {**{n: known[v] for n, v in graph.outputs.items()}, **{i.name: known[v] for i, v in graph.updates}}


def checked(graph: Graph, on_gpu: bool = False) -> Graph:
    """The grouped graph: sound, of the same bits, and not grouped further."""
    grouped = group_updates(graph, on_gpu)
    verify_graph(grouped)
    before, after = run(graph), run(grouped)
    assert before.keys() == after.keys()
    assert all(before[n].tobytes() == after[n].tobytes() for n in before)
    assert group_updates(grouped, on_gpu) is grouped
    return grouped


def test_equal_steps_of_any_shape_become_one_node_and_one_vector_of_flags() -> None:
    steps = Steps()
    for shape in [(3, 4), (5,), (), (2, 1, 2)]:
        steps.add(*shape)
    graph = checked(steps.graph())
    assert names(graph) == ["cast", "multi_update"]
    assert graph.nodes[0].name == "layer0 and 3 more"
    assert run(graph)["nonfinite"].tolist() == [0, 1, 0, 0]


def test_other_attributes_or_another_rate_make_another_group() -> None:
    half = Input("half", Kind.SCALAR, TensorType(F32, ()))
    steps = Steps()
    steps.inputs.append(half)
    for decay in (0.1, 0.1, 0.0, 0.0, 0.1):
        steps.add(4, weight_decay=decay)
    steps.add(4, lr=half.value)
    graph = checked(steps.graph())
    assert names(graph) == sorted(["cast", "concat", "multi_update", "multi_update", "sgd_momentum_update",
                                   "reshape", "slice", "slice"])  # fmt: skip
    (concat,) = (n for n in graph.nodes if n.op.name == "concat")
    assert [t.ints for t in concat.input_types] == [(2,), (2,), (1,), (1,)]


def test_large_parameters_and_single_ones_stay_alone() -> None:
    steps = Steps()
    steps.add(4)
    steps.add(MAX_BYTES // 4 + 1)
    steps.add(MAX_BYTES // 4)
    graph = checked(steps.graph())
    assert names(graph).count("multi_update") == 1 and names(graph).count("sgd_momentum_update") == 1
    alone = Steps()
    alone.add(4)
    alone.add(4, weight_decay=0.5)
    graph = alone.graph()
    assert group_updates(graph) is graph


@pytest.mark.parametrize("most", [MAX_BYTES_OF_ALL, MAX_BYTES])
def test_on_a_gpu_large_ones_join_where_all_are_few_bytes(most: int) -> None:
    steps = Steps()
    sizes = [4, MAX_BYTES // 4 + 1, most // 4 - 2 * (MAX_BYTES // 4 + 1) - 8, MAX_BYTES // 4 + 1, 4]
    sizes = sizes if most == MAX_BYTES_OF_ALL else [*sizes[:2], MAX_BYTES_OF_ALL // 4, *sizes[3:]]
    for size in sizes:
        steps.add(size)
    found = names(checked(steps.graph(), on_gpu=True))
    rest = 0 if most == MAX_BYTES_OF_ALL else 3
    assert found.count("multi_update") == 1 and found.count("sgd_momentum_update") == rest
    assert "concat" not in found if most == MAX_BYTES_OF_ALL else "concat" in found


def mean_of(total: Value, count: float) -> Value:
    b = Builder(phase=Phase.UPDATE)
    return b(OPS["div"], total, b(OPS["full"], value=count, dtype=F32, shape=()))


def test_an_update_divides_the_sum_whose_mean_it_alone_reads() -> None:
    """3: a division that no product with the inverse gives."""
    steps = Steps()
    for name in ("0.total", "1.g", "2.total"):
        steps.inputs.append(Input(name, Kind.DATA, TensorType(F32, (5, 7))))
        steps.add(5, 7, grad=mean_of(steps.inputs[-1].value, 3.0), weight_decay=0.1 * len(steps.flags))
    graph = read_sums(steps.graph())
    verify_graph(graph)
    before, after = run(steps.graph()), run(graph)
    assert all(before[n].tobytes() == after[n].tobytes() for n in before) and before["nonfinite"].tolist() == [0, 1, 0]
    assert names(graph) == sorted(["cast", "concat", *["reshape", "sgd_momentum_update"] * 3])
    assert read_sums(graph) is graph
    assert [n.attrs["parts"] for n in graph.nodes if "parts" in n.attrs] == [3.0] * 3
    joined = [n for n in checked(graph).nodes if n.op.name == "multi_update"]
    assert not joined, "other attributes"


def test_a_mean_that_something_else_reads_is_computed_once() -> None:
    steps = Steps()
    total, count = (Input(n, Kind.DATA, TensorType(F32, s)) for n, s in (("total", (4,)), ("count", (4,))))
    steps.inputs += [total, count]
    mean = mean_of(total.value, 2.0)
    steps.add(4, grad=mean)
    steps.add(4, grad=mean)
    steps.add(4, grad=Builder(phase=Phase.UPDATE)(OPS["div"], total.value, count.value))
    graph = steps.graph()
    assert read_sums(graph) is graph


def test_a_step_that_needs_another_ones_result_does_not_join_it() -> None:
    steps = Steps()
    first = steps.add(4)
    steps.add(4, grad=Builder()(OPS["neg"], first.outputs[0]))
    steps.add(4)
    graph = checked(steps.graph())
    assert names(graph).count("multi_update") == 1 and names(graph).count("sgd_momentum_update") == 1


def test_many_are_cut_into_nodes_of_a_bounded_number() -> None:
    steps = Steps()
    for _ in range(2 * MAX_PARAMS + 3):
        steps.add(2)
    graph = checked(steps.graph())
    counts = [n.types[-1].ints[0] for n in graph.nodes if n.op.name == "multi_update"]
    assert counts == [MAX_PARAMS, MAX_PARAMS, 3]
    assert names(graph).count("slice") == 0


def test_a_gradient_of_16_bits_is_read_as_it_is() -> None:
    """Large parameters too: the cast is a part of their step."""
    steps, halves = Steps(), []
    for shape in [(3, 4), (5,), (MAX_BYTES_OF_ALL // 4 + 1,)]:
        halves.append(Input(f"half{len(halves)}", Kind.DATA, TensorType(DType.F16, shape[::-1])))
        b = Builder(phase=Phase.UPDATE)
        wide = b(OPS["cast"], halves[-1].value, dtype=F32)
        turned = b(OPS["transpose"], wide, perm=(1, 0)) if len(shape) == 2 else b(OPS["reshape"], wide, shape=shape)
        steps.add(*shape, grad=turned)
    steps.add(7)
    steps.add(7)
    steps.inputs += halves
    graph = checked(steps.graph(), on_gpu=True)
    joined = [n for n in graph.nodes if n.op.name == "multi_update"]
    assert [(len(n.inputs) - 2) // 3 for n in joined] == [2, 1, 2]
    assert [n.inputs[-3].type.dtype for n in joined] == [DType.F16, DType.F16, F32]
    assert names(graph).count("cast") == 1, "that of the flags"
