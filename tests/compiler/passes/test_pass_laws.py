"""Laws that hold for every pass of the pipeline, over training steps of small models, for the CPU and for a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs.pass_examples import EXAMPLES, Example, Step, evaluate, feeds_of, source_of, steps
from places import GOLDEN, ROOT

from dslc.cli.views.graphs import difference, memory_text
from dslc.compiler.ir.graph import Graph, Node, origins_of
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import body_of, scan
from dslc.compiler.ir.text import format_graph, numbering
from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.runner import pass_name

NAMES = [pass_name(step) for step in PIPELINE]
#: These add the numbers of a sum in another order. Sums of the examples have at most so many terms.
REORDERING = {
    "after_loops", "attention_forms", "channels_last", "decompose", "order_rows", "transposes", "image_transposes",
    "pad_classes", "pad_widths", "wide_rows", "written_attention",
}  # fmt: skip
TERMS = 32 * 32 * 32
#: It adds the backward pass and the updates, which a second run would differentiate again.
ADDING = {"autodiff"}
#: Passes over `predict` alone: no training step changes in them. Their own tests have the example.
OF_PREDICT = {
    "fold_scales", "joined_products", "pad_columns", "convolution_epilogue", "pack_weights", "prepare", "put_rows",
    "few_queries", "chains",
}  # fmt: skip
#: Passes for ops that no example has: their own tests have one.
WITHOUT_EXAMPLE = OF_PREDICT | {
    "replacements",
    "image_transposes",
    "half_orders",
    "training_epilogue",
    "met_taps",
    "partial_windows",
    "transforms",
    "known_values",
    "attention_transposes",
    "free_transposes",
    "pad_widths",
    "wide_rows",
    "joined_loops",
    "loop_tails",
}
#: Passes whose own tests have a smaller example than the models here.
SMALLER_EXAMPLE = WITHOUT_EXAMPLE | {
    "autodiff", "precision", "simplify", "fuse", "horizontal_reductions", "recompute_outputs", "slice_reads", "stacked",
    "few_rows_epilogue", "tf32", "widen_halves", "gather_casts", "placed_pads", "together", "joined_slices",
    "joined_reshapes", "pieces", "small_producers",
}  # fmt: skip

#: Model and rows of the example whose steps take some seconds in numpy.
LARGEST = ("convolutions", 32)

every_pass = pytest.mark.parametrize("name", NAMES)
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=str)


def decisions(program: Program) -> str:
    """The program as text: its graph, and what the planners decided."""
    number = numbering(program.graph)

    def shown(nodes: object) -> str:
        return ", ".join(f"%{number[node.outputs[0]]}" for node in nodes)  # type: ignore[attr-defined]

    lines = [format_graph(program.graph)]
    lines += [f"{shown([n])} runs as {len(launches)} kernels" for n, launches in program.kernels.items()]
    lines += [f"{shown([n])} has {blocks} bytes of scratch" for n, blocks in program.scratch.items()]
    lines += [] if program.schedule is None else [f"in this order: {shown(program.schedule)}"]
    lines += [f"{shown([n])} is on stream {stream}" for n, stream in program.streams.items()]
    lines += [f"{shown([n])} waits for {shown(others)}" for n, others in program.waits.items()]
    return "\n".join([*lines, memory_text(program)])


def changed(name: str) -> list[tuple[Example, Step]]:
    """The examples that a pass changes."""
    found = [(example, steps(example)[name]) for example in EXAMPLES]
    return [(example, step) for example, step in found if step.before != step.after]


@pytest.mark.parametrize(
    "example",
    [pytest.param(e, marks=pytest.mark.slow) if (e.model, e.rows) == LARGEST else e for e in EXAMPLES],
    ids=str,
)
def test_values_are_kept(example: Example) -> None:
    """Bit for bit, but for sums in another order. A pass may add results and updates."""
    values = None
    for name, step in steps(example).items():
        if step.after.graph is step.before.graph:
            continue
        feeds = feeds_of(step.before.graph, 1) | feeds_of(step.after.graph, 1)
        values = evaluate(step.before.graph, feeds) if values is None else values
        found = evaluate(step.after.graph, feeds)
        assert values.keys() <= found.keys() and (name in ADDING or values.keys() == found.keys()), name
        for key, value in values.items():
            # a product of all steps; sums of rows, which numpy adds pairwise
            if name in REORDERING or (name == "simplify" and example.model in ("looped", "edges")):
                bound = TERMS * np.finfo(np.float64).eps * max(1.0, float(np.max(np.abs(value))))
                np.testing.assert_allclose(found[key], value, rtol=0, atol=bound, err_msg=f"{name}: {key}")
            else:
                assert found[key].tobytes() == value.tobytes(), f"{name}: {key}"
        values = found


@every_pass
@every_example
def test_a_run_again_gives_the_same_and_leaves_its_program_as_it_was(example: Example, name: str) -> None:
    step = steps(example)[name]
    before = decisions(step.before)
    assert decisions(step.run(step.before)) == decisions(step.after)
    assert decisions(step.before) == before


@every_pass
@every_example
def test_a_second_run_changes_nothing(example: Example, name: str) -> None:
    step = steps(example)[name]
    if name in ADDING:
        assert decisions(step.run(step.after)) != decisions(step.after), "it belongs no more to the exceptions"
    else:
        assert step.run(step.after) == step.after


def nodes_of(graph: Graph) -> list[Node]:
    """The nodes of a graph and of the bodies of its loops."""
    return [
        each for node in graph.nodes for each in (node, *(nodes_of(body_of(node.attrs)) if node.op is scan else ()))
    ]


@every_pass
@every_example
def test_names_and_places_are_kept(example: Example, name: str) -> None:
    """Inputs, results, updates; and nodes come from nodes of the model, by path and place in the source."""
    step = steps(example)[name]
    before, after = step.before, step.after
    assert (before.entry, before.sizes, before.target) == (after.entry, after.sizes, after.target)
    assert {i.name: i.kind for i in before.graph.inputs} == {i.name: i.kind for i in after.graph.inputs}
    if name not in ADDING:
        assert list(before.graph.outputs) == list(after.graph.outputs)
        assert [i.name for i, _ in before.graph.updates] == [i.name for i, _ in after.graph.updates]
        assert {*origins_of(nodes_of(after.graph))} <= {*origins_of(nodes_of(before.graph))}


@every_pass
def test_an_example_is_changed(name: str) -> None:
    """So that the laws above say something about the pass."""
    assert bool(changed(name)) == (name not in WITHOUT_EXAMPLE)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SMALLER_EXAMPLE])
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    """The smallest change of an example."""
    texts = [(difference(decisions(s.before), decisions(s.after)), example) for example, s in changed(name)]
    text, example = min(texts, key=lambda found: len(found[0].splitlines()))
    golden(f"passes/{name}.txt", f"{example}\n\n{text}")


@every_pass
def test_a_pass_has_a_test_file_and_a_golden_file(name: str) -> None:
    source = source_of(PIPELINE[NAMES.index(name)])
    assert (ROOT / "compiler/passes" / f"{source}.py").is_file()
    stage, _, module = source.rpartition("/")
    assert (ROOT / "tests/compiler/passes" / stage / f"test_{module}.py").is_file()
    assert (GOLDEN / "passes" / f"{name}.txt").is_file()
