"""select: the nodes that run as kernels are those that the provider asks for and the target has kernels for."""

from __future__ import annotations

import pytest
from graphs.pass_examples import EXAMPLES, Example, steps
from graphs.random_graphs import graph_of, input_of

from dslc.base.errors import BuildError
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.plan.select_kernels import select


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_all_but_views_are_kernels_of_the_provider_own(example: Example) -> None:
    program = steps(example)["select"].after
    assert list(program.kernels) == [node for node in program.graph.nodes if not node.op.view]
    for node, launches in program.kernels.items():
        blocks = {block.number: block.bytes for launch in launches for block in launch.scratch}
        assert launches and program.scratch.get(node, ()) == tuple(blocks[i] for i in range(len(blocks)))


def half_and_single() -> Program:
    """A sum in bf16, for which the CPU has no kernel, and one in f32."""
    narrow, wide = (input_of(dtype.value, Kind.DATA, 4, dtype=dtype) for dtype in (DType.BF16, DType.F32))
    b = Builder(name="here")
    sums = {f"result.{x.name}": b(OPS["add"], x.value, x.value) for x in (narrow, wide)}
    return Program("predict", {}, graph_of([narrow, wide], sums))


def test_the_reference_has_no_kernels_and_auto_those_that_exist() -> None:
    program = half_and_single()
    assert select(program, Build(provider="reference")) is program
    [node] = select(program, Build(provider="auto")).kernels
    assert node.types[0].dtype is DType.F32


def test_a_kernel_that_is_missing_is_told_if_the_provider_must_have_it() -> None:
    with pytest.raises(BuildError, match="without a kernel for the target cpu: add") as caught:
        select(half_and_single(), Build(provider="own"))
    assert caught.value.code == "E0603"
