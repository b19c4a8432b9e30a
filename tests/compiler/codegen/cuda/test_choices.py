"""A node is computed as its measured choice says: by an own kernel, or by a library's call with that algorithm."""

from __future__ import annotations

import pytest
from graphs.random_graphs import input_of

from dslc.base.errors import BuildError
from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.choice import Choice
from dslc.compiler.ir.graph import Kind, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.runtime.artifact.instructions import Gemm, GraphOp

ALGORITHM = "id=66 tile=20 stages=35 splitk=1 reduction=0 swizzle=0 custom=0 inner=0 cluster=2"
PLAN = "eng62_k2=5_k3=0"


def product() -> Node:
    x, w = (input_of(name, Kind.DATA, 256, 256, dtype=DType.BF16).value for name in "xw")
    return Builder(name="here").node(OPS["matmul"], x, w, transpose_a=False, transpose_b=False)


def convolution(dtype: DType = DType.BF16) -> Node:
    x = input_of("x", Kind.DATA, 64, 14, 14, 64, dtype=dtype).value
    w = input_of("w", Kind.DATA, 64, 3, 3, 64, dtype=dtype).value
    attrs = {"stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "groups": 1}
    return Builder(name="here").node(OPS["conv_last"], x, w, **attrs)


def instruction(node: Node, choice: Choice) -> tuple[Gemm | GraphOp, int]:
    [launch] = lowered(node, "sm_90", True, choice) or ()
    assert isinstance(launch.spec, LibraryCall)
    made, [room] = launch.spec.instruction((0, 1, 2), 3, 0), launch.scratch
    assert isinstance(made, Gemm | GraphOp)
    return made, room.bytes


def test_a_product_calls_the_chosen_algorithm() -> None:
    made, room = instruction(product(), Choice("cublaslt", ALGORITHM, 1000))
    assert isinstance(made, Gemm) and made.algorithm == ALGORITHM.encode("ascii")
    assert 1000 + 256 <= room < 1000 + 2 * 256


@pytest.mark.parametrize(
    ("plan", "engine", "knobs"), [(PLAN, 62, ((2, 5), (3, 0))), ("eng0", 0, ()), ("eng5_k12=10", 5, ((12, 10),))]
)
def test_a_convolution_calls_the_chosen_plan(plan: str, engine: int, knobs: tuple[tuple[int, int], ...]) -> None:
    made, room = instruction(convolution(), Choice("cudnn", plan))
    assert isinstance(made, GraphOp) and (made.engine, made.knobs) == (engine, knobs)
    assert room == 256


@pytest.mark.parametrize("node", [product(), convolution()], ids=str)
def test_own_keeps_the_own_kernel_in_a_build_with_libraries(node: Node) -> None:
    wanted = target_of("sm_90").lower(node)
    assert lowered(node, "sm_90", True, Choice("own")) == wanted != lowered(node, "sm_90", True)


@pytest.mark.parametrize("node", [product(), convolution()], ids=str)
@pytest.mark.parametrize("vendor", [False, True])
def test_nothing_chosen_is_what_it_was(node: Node, vendor: bool) -> None:
    assert lowered(node, "sm_90", vendor) == target_of("sm_90", vendor).lower(node)


@pytest.mark.parametrize(
    ("node", "choice", "why"),
    [
        (product(), Choice("cudnn", PLAN), "cudnn is not called for it"),
        (convolution(), Choice("cublaslt", ALGORITHM), "cublaslt is not called for it"),
        (convolution(DType.F64), Choice("cudnn", PLAN), "cudnn is not called for it: f64"),
        (convolution(), Choice("cudnn", "eng62 k2=5"), "does not write algorithms like this"),
        (convolution(), Choice("cudnn", "eng62_k2=5\n"), "does not write algorithms like this"),
        (product(), Choice("cublaslt", "66, 20"), "does not write algorithms like this"),
        (product(), Choice("cublaslt", "id=٣"), "does not write algorithms like this"),
        (product(), Choice("blas", "fast"), "there is no library blas"),
        (product(), Choice("own", "as it was in 1997"), "no such variant"),
    ],
    ids=str,
)
def test_a_way_that_does_not_exist_is_refused(node: Node, choice: Choice, why: str) -> None:
    with pytest.raises(BuildError, match=why) as caught:
        lowered(node, "sm_90", True, choice)
    assert caught.value.code == "E0609"


def test_the_cpu_has_no_variants() -> None:
    x = input_of("x", Kind.DATA, 8).value
    node = Builder(name="here").node(OPS["relu"], x)
    cpu = target_of("cpu")
    assert cpu.variants(node) == ("",)
    assert cpu.lower(node, Choice("own")) == cpu.lower(node)
    for choice in (Choice("own", "fast"), Choice("cudnn", PLAN)):
        with pytest.raises(BuildError, match="E0609"):
            cpu.lower(node, choice)
