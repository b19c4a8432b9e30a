"""The workspaces of all problems are chosen together: the fastest ways without a budget, else those that fit best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from graphs.random_graphs import graph_of, input_of
from places import MODELS

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.cost import machine_for
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Kind, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType
from dslc.compiler.options import Options
from dslc.compiler.passes.mirror.mirror import plans
from dslc.compiler.passes.order import FUSING, PLANNING
from dslc.compiler.passes.plan.stream_timeline import finish
from dslc.compiler.passes.plan.workspaces import with_limit
from dslc.compiler.pipeline import compile_entry, foresee

MIB = 1 << 20
FAST, SLOW, OWN = "id=1", "id=2", ""


def program() -> Program:
    """Two products of different sizes, one after the other."""
    x = input_of("x", Kind.DATA, 512, 256, dtype=DType.BF16)
    w, v = (input_of(n, Kind.DATA, 256, k, dtype=DType.BF16) for n, k in (("w", 256), ("v", 512)))
    b = Builder(name="here")
    h = b(OPS["matmul"], x.value, w.value, transpose_a=False, transpose_b=False)
    y = b(OPS["matmul"], h, v.value, transpose_a=False, transpose_b=False)
    return Program("predict", {}, graph_of([x, w, v], {"result.y": y}), target="sm_90")


def ways(fast: float, room: int, slow: float) -> tuple[Measured, ...]:
    return Measured(Choice("cublaslt", FAST, room), fast), Measured(Choice("cublaslt", SLOW), slow)


def choices(of: Program) -> Choices:
    """The first is twice as fast with 64 MiB; the second by a hundredth with 16 MiB."""
    first, second = of.graph.nodes
    return Choices({key_of(first): ways(1e-5, 64 * MIB, 2e-5), key_of(second): ways(1e-5, 16 * MIB, 1.01e-5)})


def planned(build: Build) -> Program:
    return plans(program(), [build], FUSING, PLANNING)[0]


def taken(plan: Program) -> dict[str, str]:
    """The algorithm of each product, by its columns."""
    calls = {n: launches[0].spec for n, launches in plan.kernels.items() if n.op.name == "matmul"}
    return {str(n.types[0].ints[1]): getattr(spec, "algorithm", OWN) for n, spec in calls.items()}


def bytes_of(plan: Program) -> int:
    assert plan.memory is not None
    return plan.memory.io_bytes + plan.memory.work_bytes


def built(budget: int | None, limit: int | None = None) -> Build:
    chosen = replace(choices(program()), workspace_limit=limit)
    return Build("sm_90", "vendor", budget=budget, choices=chosen)


def test_without_a_budget_the_fastest_ways_are_taken() -> None:
    build = built(None)
    assert with_limit(build, planned) is build
    assert taken(planned(build)) == {"256": FAST, "512": FAST}


def test_a_limit_holds_in_both_directions() -> None:
    """A limit that would be ignored, or turned around, takes another way on one side of each workspace."""
    for limit, wanted in [
        (64 * MIB, {"256": FAST, "512": FAST}), (64 * MIB - 1, {"256": SLOW, "512": FAST}),
        (16 * MIB, {"256": SLOW, "512": FAST}), (16 * MIB - 1, {"256": SLOW, "512": SLOW}),
        (0, {"256": SLOW, "512": SLOW}), (None, {"256": FAST, "512": FAST}),
    ]:  # fmt: skip
        assert taken(planned(built(None, limit))) == wanted, limit
        assert taken(planned(with_limit(built(1 << 40, limit), planned))) == wanted, limit


def test_of_the_sets_that_fit_the_fastest_is_taken() -> None:
    sizes = {limit: bytes_of(planned(built(None, limit))) for limit in (None, 16 * MIB, 0)}
    assert sizes[None] > sizes[16 * MIB] > sizes[0]
    for budget, wanted in [
        (sizes[None], {"256": FAST, "512": FAST}), (sizes[None] - 1, {"256": SLOW, "512": FAST}),
        (sizes[16 * MIB], {"256": SLOW, "512": FAST}), (sizes[16 * MIB] - 1, {"256": SLOW, "512": SLOW}),
        (sizes[0] - 1, {"256": SLOW, "512": SLOW}),  # nothing fits: the fewest bytes
    ]:  # fmt: skip
        build = with_limit(built(budget), planned)
        assert taken(planned(build)) == wanted, budget
        assert budget < sizes[0] or bytes_of(planned(build)) <= budget


def test_a_problem_keeps_a_measured_way() -> None:
    """The default call of a problem without a way within the limit would take more room than any of its ways."""
    first, second = program().graph.nodes
    only = (Measured(Choice("cublaslt", FAST, 8 * MIB), 1e-5),)
    found = Choices({key_of(first): only, key_of(second): ways(1e-5, 64 * MIB, 2e-5)})
    build = with_limit(Build("sm_90", "vendor", budget=1, choices=found), planned)
    assert taken(planned(build)) == {"256": FAST, "512": SLOW}


def test_few_plans_are_made() -> None:
    nodes = program().graph.nodes
    many = tuple(Measured(Choice("cublaslt", f"id={n}", n * MIB), 1e-5 / (1 + n)) for n in range(40, -1, -1))
    asked = list[int | None]()

    def counted(build: Build) -> Program:
        asked.append(build.choices.workspace_limit)
        return planned(build)

    found = Choices({key_of(node): many for node in nodes})
    with_limit(Build("sm_90", "vendor", budget=1, choices=found), counted)
    assert len(asked) == 6 and asked[0] is None and asked[-1] == 0
    assert asked[1:] == sorted(asked[1:], reverse=True, key=lambda x: x or 0)
    asked.clear()
    with_limit(Build("sm_90", "vendor", budget=1 << 40, choices=found), counted)
    assert len(asked) == 1, "it fits, and nothing is recomputed"


@pytest.mark.slow
def test_a_slower_algorithm_is_taken_where_recomputation_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """One convolution is 1 us faster with half a GiB; with it, the step must recompute values to fit the budget."""
    checked = check_file(f"{MODELS / 'unet'}.nn")
    sizes = {dim.name: dim.default for dim in checked.dims}
    options = Options(target="sm_90", provider="vendor", precision="bf16", streams=1)
    plain, _ = compile_entry(checked, "train_step", sizes, replace(options, mirror="never"))
    convs = [n for n in plain.graph.nodes if n.op.name.startswith("conv") and _calls_library(plain, n)]
    one = key_of(convs[0])
    found: Mapping[str, tuple[Measured, ...]] = {
        key_of(n): (Measured(Choice("cudnn", "eng1"), 2e-5),) for n in convs
    } | {one: (Measured(Choice("cudnn", "eng2_k1=1", 512 * MIB), 1.9e-5), Measured(Choice("cudnn", "eng1"), 2e-5))}
    original = pipeline.build_options

    def compiled(mirror: str | int, limit: int | None = None) -> Program:
        chosen = Choices(found, limit)
        monkeypatch.setattr(pipeline, "build_options", lambda *a, **k: replace(original(*a, **k), choices=chosen))
        return compile_entry(checked, "train_step", sizes, replace(options, mirror=mirror))[0]

    state = _state_bytes(checked, options)
    small, large = compiled("never", 0), compiled("never")
    assert bytes_of(large) > bytes_of(small) + 256 * MIB
    budget = state + bytes_of(small)
    joint = compiled(budget)
    assert joint.mirrored is None and bytes_of(joint) <= bytes_of(small)
    assert "eng2_k1=1" not in _algorithms(joint) and "eng2_k1=1" in _algorithms(large)
    roomy = compiled(state + bytes_of(large))
    assert roomy.mirrored is None and "eng2_k1=1" in _algorithms(roomy)
    monkeypatch.setattr(pipeline, "with_limit", lambda build, _: build)  # each problem by itself
    alone = compiled(budget)
    machine = machine_for(Build("sm_90", "vendor", choices=Choices(found)))
    slow = machine_for(Build("sm_90", "vendor", choices=Choices(found, 0)))
    assert alone.mirrored is not None and "eng2_k1=1" in _algorithms(alone)
    assert bytes_of(alone) <= bytes_of(small) and finish(joint, slow) < finish(alone, machine)


def test_what_is_foreseen_with_measurements_is_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = check_file(f"{MODELS / 'lenet'}.nn")
    sizes = {dim.name: dim.default for dim in checked.dims}
    options = Options(target="sm_90", provider="vendor")
    plain, _ = compile_entry(checked, "train_step", sizes, options)
    calls = [n for n in plain.graph.nodes if _calls_library(plain, n) and n.op.name == "matmul"]
    chosen = Choices({key_of(n): ways(1e-5, 64 * MIB, 2e-5) for n in calls})
    original = pipeline.build_options
    monkeypatch.setattr(pipeline, "build_options", lambda *a, **k: replace(original(*a, **k), choices=chosen))
    mirrors = ("never", "auto", 40 * MIB)
    for mirror, found in zip(mirrors, foresee(checked, "train_step", sizes, options, mirrors)):
        compiled, _ = compile_entry(checked, "train_step", sizes, replace(options, mirror=mirror))
        assert bytes_of(found) == bytes_of(compiled) and _algorithms(found) == _algorithms(compiled)


def _calls_library(plan: Program, node: Node) -> bool:
    return any(hasattr(launch.spec, "library") for launch in plan.kernels.get(node, ()))


def _algorithms(plan: Program) -> list[str]:
    return [getattr(launch.spec, "algorithm", "") for launches in plan.kernels.values() for launch in launches]


def _state_bytes(checked: object, options: Options) -> int:
    from dslc.compiler.artifact.state_layout import layout_state
    from dslc.compiler.options import precision_of

    asked = precision_of(checked, options)  # type: ignore[arg-type]
    return layout_state(checked, asked.params, asked.loss_scale).bytes  # type: ignore[arg-type]
