"""select: the nodes that run as kernels are those that the provider asks for and the target has kernels for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs.pass_examples import EXAMPLES, Example, steps
from graphs.random_graphs import graph_of, input_of

from dslc.base.errors import BuildError
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import scan
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.plan.select_kernels import select


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_all_but_views_are_kernels_of_the_provider_own(example: Example) -> None:
    program = steps(example)["select"].after
    working = [n for n in program.graph.nodes if not n.op.view]
    assert list(program.kernels) == [n for n in working if n not in program.loops]
    assert all(n.op is scan for n in program.loops)  # a loop is a program of its own, or one resident kernel
    for node, launches in program.kernels.items():
        blocks = {block.number: block.bytes for launch in launches for block in launch.scratch}
        assert launches and program.scratch.get(node, ()) == tuple(blocks[i] for i in range(len(blocks)))


def half_and_single() -> Program:
    """A sum in bf16, for which the CPU has no kernel, and one in f32."""
    narrow, wide = (input_of(dtype.value, Kind.DATA, 4, dtype=dtype) for dtype in (DType.BF16, DType.F32))
    b = Builder(name="here")
    sums = {f"result.{x.name}": b(OPS["sum"], x.value, over=(0,), keep=False) for x in (narrow, wide)}
    return Program("predict", {}, graph_of([narrow, wide], sums))


def test_the_reference_has_no_kernels_and_auto_those_that_exist() -> None:
    program = half_and_single()
    assert select(program, Build(provider="reference")) is program
    [node] = select(program, Build(provider="auto")).kernels
    assert node.types[0].dtype is DType.F32


def test_a_kernel_that_is_missing_is_told_if_the_provider_must_have_it() -> None:
    with pytest.raises(BuildError, match="without a kernel for the target cpu: sum") as caught:
        select(half_and_single(), Build(provider="own"))
    assert caught.value.code == "E0603"


def product_of(count: int) -> Program:
    x, w = (input_of(name, Kind.DATA, count, count, dtype=DType.BF16) for name in "xw")
    y = Builder(name="here")(OPS["matmul"], x.value, w.value, transpose_a=False, transpose_b=False)
    return Program("predict", {}, graph_of([x, w], {"result.y": y}), target="sm_90")


def test_the_best_way_of_a_provider_of_the_build_is_taken() -> None:
    program = product_of(256)
    [node] = program.graph.nodes
    ways = [Measured(Choice("cublaslt", "id=1", 1 << 20), 1e-5), Measured(Choice("cublaslt", "id=2"), 2e-5)]
    choices = Choices({key_of(node): (*ways, Measured(Choice("own"), 3e-5))})
    own = select(program, Build("sm_90", "auto")).kernels
    for provider, limit, wanted in [
        ("vendor", None, "id=1"), ("vendor", 1 << 20, "id=1"), ("vendor", (1 << 20) - 1, "id=2"),
        ("auto", None, None), ("own", None, None),
    ]:  # fmt: skip
        chosen = replace(choices, workspace_limit=limit)
        found = select(program, Build("sm_90", provider, choices=chosen)).kernels
        assert getattr(found[node][0].spec, "algorithm", None) == wanted
        assert wanted is not None or found == own


def test_a_node_that_was_not_measured_is_computed_as_ever() -> None:
    program = product_of(256)
    other = Choices({"another problem": (Measured(Choice("own"), 1e-6),)})
    for provider in ("own", "vendor"):
        build = Build("sm_90", provider)
        assert select(program, replace(build, choices=other)) == select(program, build)


def test_no_key_is_made_without_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslc.compiler.passes.plan.select_kernels.key_of", None)
    assert select(product_of(256), Build("sm_90", "vendor")).kernels
