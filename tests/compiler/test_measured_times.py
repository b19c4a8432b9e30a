"""Measured times stand for the model's, in sums and on streams; without them nothing changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs.random_graphs import graph_of, input_of
from places import MODELS

from dslc.compiler import cost
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.cost import fills, halves, machine_for, machine_of, seconds, total_seconds
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Kind, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.options import Options
from dslc.compiler.passes.plan.schedule import schedule
from dslc.compiler.passes.plan.stream_timeline import finish, timeline
from dslc.compiler.passes.plan.streams import streams
from dslc.compiler.pipeline import compile_entry

X, W = (input_of(name, Kind.DATA, 256, 256) for name in "xw")
PRODUCT = Builder(name="here").node(OPS["matmul"], X.value, W.value, transpose_a=False, transpose_b=False)
RELU = Builder(name="here").node(OPS["relu"], X.value)


def build(provider: str, *ways: Measured, limit: int | None = None) -> Build:
    return Build("sm_90", provider, choices=Choices({key_of(PRODUCT): ways}, limit))


def test_the_measured_time_of_the_way_that_a_build_takes_counts() -> None:
    fast, own = Measured(Choice("cublaslt", "id=1", 4096), 1e-3), Measured(Choice("own"), 3e-3)
    for provider, limit, wanted in [("vendor", None, 1e-3), ("vendor", 4095, 3e-3), ("own", None, 3e-3)]:
        machine = machine_for(build(provider, fast, own, limit=limit))
        assert seconds(PRODUCT, machine) == pytest.approx(wanted, rel=1e-12)
        assert total_seconds([PRODUCT, RELU], machine) == pytest.approx(wanted + seconds(RELU, machine), rel=1e-12)
        assert seconds(RELU, machine) == seconds(RELU, machine_of("sm_90", provider))


def test_a_time_below_the_models_latency_is_no_negative_work() -> None:
    machine = machine_for(build("own", Measured(Choice("own"), 1e-9)))
    latency, working = halves(PRODUCT, machine)
    assert latency >= machine.device.launch and working == 0
    assert timeline([PRODUCT], {}, {}, machine)[PRODUCT] == (0.0, latency)


def test_without_measurements_no_key_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslc.compiler.ir.choice.key_of", None)
    plain = Build("sm_90", "vendor")
    assert machine_for(plain) is machine_of("sm_90", "vendor")
    assert seconds(PRODUCT, machine_for(plain)) > 0


def test_a_key_is_made_once_for_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Node]()
    monkeypatch.setattr("dslc.compiler.ir.choice.key_of", lambda node: asked.append(node) or key_of(node))
    machine = machine_for(build("own", Measured(Choice("own"), 1e-3)))
    for _ in range(3):
        total_seconds([PRODUCT, RELU], machine)
    assert asked == [PRODUCT, RELU]


@pytest.mark.parametrize(("rows", "seconds", "several"), [(256, 1e-7, True), (2048, 1e-3, False), (256, 1e-3, True)])
def test_streams_go_by_measured_times(rows: int, seconds: float, several: bool) -> None:
    """Two chains of equal products: if each works for long on all multiprocessors, no stream hides anything; if each
    mostly waits, or leaves multiprocessors free, two do."""
    b = Builder(name="here")
    sources = [input_of(name, Kind.DATA, rows, rows) for name in "xy"]
    ends = []
    for source in sources:
        value = source.value
        for _ in range(20):
            value = b(OPS["matmul"], value, value, transpose_a=False, transpose_b=False)
        ends.append(value)
    graph = graph_of(sources, {f"result.{i}": value for i, value in enumerate(ends)})
    choices = Choices({key_of(graph.nodes[0]): (Measured(Choice("own"), seconds),)})
    asked = Build("sm_90", "own", streams="auto", choices=choices)
    scheduled = schedule(Program("predict", {}, graph, target="sm_90"), asked)
    assert traits_of("sm_90").has_streams and bool(streams(scheduled, asked).streams) is several


def test_a_product_of_few_tiles_works_as_long_as_its_tiles_do() -> None:
    """The time of a measured product is busy time by its share of the multiprocessors, but at least by the model."""
    for rows, share in ((256, 4 / 132), (2048, 1.0)):
        x = input_of("x", Kind.DATA, rows, rows).value
        node = Builder(name="here").node(OPS["matmul"], x, x, transpose_a=False, transpose_b=False)
        choices = Choices({key_of(node): (Measured(Choice("own"), 5e-3),)})
        machine = machine_for(Build("sm_90", "own", choices=choices))
        latency, busy = halves(node, machine)
        assert latency + busy == pytest.approx(5e-3, rel=1e-12)
        assert busy == pytest.approx(share * 5e-3, rel=0.01)


def test_long_nodes_start_on_a_full_machine() -> None:
    """A node that is busy for longer than it waits has the launch as its latency, a product also half of its start."""
    machine = machine_of("sm_90", "own")
    launch = machine.device.launch
    for rows, long in ((64, False), (8192, True)):
        x = input_of("x", Kind.DATA, rows, rows).value
        product = Builder(name="here").node(OPS["matmul"], x, x, transpose_a=False, transpose_b=False)
        relu = Builder(name="here").node(OPS["relu"], x)
        for node, part in ((product, 0.5 if long else 1), (relu, 0 if long else 1)):
            latency, busy = halves(node, machine)
            assert latency == pytest.approx(launch + part * machine.of_node(node).start, rel=1e-6)
            assert latency + busy == pytest.approx(seconds(node, machine), rel=1e-12)
        assert fills(relu, machine) is long and not fills(product, machine)


@pytest.mark.parametrize("provider", ["own", "vendor"])
def test_equal_measurements_give_equal_plans(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = check_file(f"{MODELS / 'lenet'}.nn")
    options = Options(target="sm_90", provider=provider, precision="bf16")
    sizes = {"B": 64}
    plain, _ = compile_entry(checked, "train_step", sizes, options)
    nodes = [n for n in plain.graph.nodes if not n.op.view]
    choices = Choices({key_of(n): (Measured(Choice("own"), 1e-6 * (1 + i)),) for i, n in enumerate(nodes)})
    from dslc.compiler import pipeline

    original = pipeline.build_options
    monkeypatch.setattr(pipeline, "build_options", lambda *a, **k: replace(original(*a, **k), choices=choices))
    first, second = (compile_entry(checked, "train_step", sizes, options)[0] for _ in range(2))
    assert [n.name for n in first.schedule or ()] == [n.name for n in second.schedule or ()]
    assert first.memory is not None and second.memory is not None
    assert first.memory.work_bytes == second.memory.work_bytes
    machine = cost.machine_for(Build("sm_90", provider, choices=choices))
    assert finish(first, machine) == finish(second, machine)
