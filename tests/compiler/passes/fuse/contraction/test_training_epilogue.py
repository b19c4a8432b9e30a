"""training_epilogue: the kernels of convolutions add what would be kernels of their own; the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from graphs.random_graphs import evaluate, feeds_of, graph_of, input_of

from dslc.compiler.codegen.cuda.libraries.cublaslt import VendorGemm, VendorSum
from dslc.compiler.codegen.cuda.libraries.cudnn import VendorConvSum
from dslc.compiler.codegen.cuda.libraries.library import NoCall
from dslc.compiler.codegen.cuda.libraries.registry import library_call
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.ir.build import Build, Precision
from dslc.compiler.ir.graph import Graph, Kind, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.contraction.training_epilogue import training_epilogue
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.rounding import tf32_rounded

#: There cuDNN computes small convolutions, too.
BUILD = Build(target="sm_80", provider="vendor")
TF32 = Build(target="sm_80", provider="vendor", precision=Precision(DType.F32, DType.F32, tf32=True))
PLAIN: dict[str, Any] = {"stride": (1, 1), "pad": (0, 0), "dilation": (1, 1), "groups": 1}


class Given:
    """Inputs, and ops on them. ``window``: of the convolution, ``into``: its channels."""

    def __init__(self, dtype: DType = DType.F32, window: int = 1, into: int = 96, **attrs: Any) -> None:
        weight = (64, window, window, into // attrs.get("groups", 1))
        places = OPS["conv_last"].infer([TensorType(dtype, s) for s in ((4, 16, 16, into), weight)], PLAIN | attrs)
        shapes = {"x": (4, 16, 16, into), "w": weight, "bias": (1, 1, 1, 64), "rest": places[0].ints}
        self.attrs = PLAIN | attrs
        self.inputs = {name: input_of(name, Kind.DATA, *shape, dtype=dtype) for name, shape in shapes.items()}
        self.x, self.w, self.bias, self.rest = (each.value for each in self.inputs.values())
        self.b = Builder(name="layer")

    def conv(self, phase: Phase = Phase.FORWARD) -> Value:
        return Builder(name="layer", phase=phase)(OPS["conv_last"], self.x, self.w, **self.attrs)

    def __call__(self, op: str, *values: Value) -> Value:
        return self.b(OPS[op], *values)

    def graph(self, y: Value) -> Graph:
        """Of two readers of ``y``."""
        both = {"y": self("relu", y), "z": self("add", y, y)}
        return fuse_graph(graph_of([*self.inputs.values()], both))


def passed(graph: Graph, entry: str = "train_step", build: Build = BUILD) -> Graph:
    return training_epilogue(Program(entry, {}, graph, target=build.target), build).graph


def joined(before: Graph, build: Build = BUILD) -> Node:
    """The one node that the pass makes, after checks that hold for each."""
    after = passed(before, build=build)
    verify_graph(after)
    feeds = feeds_of(before, 5)
    for found, wanted in zip(evaluate(after, feeds).values(), evaluate(before, feeds).values(), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert passed(after, build=build) is after, "a second run changes something"
    [node] = [node for node in after.nodes if node.op.name == "contraction"]
    return node


TAKEN: dict[str, tuple[Callable[[Given], Value], tuple[str, ...]]] = {
    "bias": (lambda g: g("add", g.conv(), g.bias), ("bias",)),
    "bias first": (lambda g: g("add", g.bias, g.conv()), ("bias",)),
}
RESIDUAL: dict[str, Callable[[Given], Value]] = {
    "bias and residual": lambda g: g("add", g("add", g.conv(), g.bias), g.rest),
    "residual and bias": lambda g: g("add", g("add", g.rest, g.conv()), g.bias),
}


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("build", [BUILD, TF32], ids=["f32", "tf32"])
def test_windows_of_one_place_are_a_product_of_matrices(name: str, build: Build) -> None:
    make, kinds = TAKEN[name]
    given = Given()
    node = joined(given.graph(make(given)), build)
    launch = library_call(tf32_rounded(node) if build is TF32 else node, "sm_80")
    assert isinstance(launch, Launch) and isinstance(launch.spec, VendorSum)
    compute: Literal["f32", "tf32"] = "f32" if build is BUILD else "tf32"
    assert launch.spec.gemm == VendorGemm((1024, 96), (64, 96), (1024, 64), False, True, compute)
    assert launch.spec.added == kinds and launch.reads == node.inputs
    call = launch.spec.instruction(range(len(launch.spec.shapes)), 99, 0)
    assert (call.bias, call.c) == (2, None)
    rng = np.random.default_rng(5)
    x, w, *others = (rng.standard_normal(t.ints) for t in node.input_types)
    [wanted] = node.op.meaning([x, w, *others], node.attrs)
    product = x.reshape(launch.spec.gemm.a) @ w.reshape(launch.spec.gemm.b).T
    shaped = [other.reshape(shape) for other, shape in zip(others, launch.spec.shapes[2:-1], strict=True)]
    np.testing.assert_allclose(sum(shaped, product).reshape(wanted.shape), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", RESIDUAL)
def test_a_residual_is_cudnns_in_16_bits_and_a_kernel_in_f32(name: str) -> None:
    half, wide = Given(DType.BF16), Given()
    launch = library_call(joined(half.graph(RESIDUAL[name](half))), "sm_80")
    assert isinstance(launch, Launch) and isinstance(launch.spec, VendorConvSum) and "c" in launch.spec.added
    before = wide.graph(RESIDUAL[name](wide))
    assert passed(before) is before and passed(before, build=TF32) is before


def test_cudnn_adds_to_windows_of_16_bits() -> None:
    given = Given(DType.BF16, window=3, pad=(1, 1))
    launch = library_call(joined(given.graph(TAKEN["bias"][0](given))), "sm_80")
    assert isinstance(launch, Launch) and isinstance(launch.spec, VendorConvSum)


@pytest.mark.parametrize(
    ("given", "build"),
    [
        (Given(window=3, pad=(1, 1), groups=32), BUILD),
        (Given(window=7, pad=(3, 3), groups=64, into=64), TF32),
        (Given(into=4), TF32),
        (Given(into=8), BUILD),
    ],
    ids=["groups", "depthwise", "few channels", "few multiply-adds"],
)
def test_own_kernels_add_to_convolutions_that_they_compute(given: Given, build: Build) -> None:
    node = joined(given.graph(TAKEN["bias"][0](given)), build)
    launches = lowered(tf32_rounded(node) if build is TF32 else node, "sm_80", True)
    assert launches and not any(isinstance(launch.spec, LibraryCall) for launch in launches)


LEFT: dict[str, Callable[[Given], Value]] = {
    "two biases": lambda g: g("add", g("add", g.conv(), g.bias), g("exp", g.bias)),
    "an activation": lambda g: g("relu", g("add", g.conv(), g.bias)),
    "a scale": lambda g: g("mul", g.conv(), g.bias),
    "a residual without a bias": lambda g: g("add", g.rest, g.conv()),
    "another reader": lambda g: (lambda y: g("mul", g("add", y, g.bias), g("exp", g("neg", y))))(g.conv()),
    "of another phase": lambda g: g("add", g.conv(Phase.BACKWARD), g.bias),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    given = Given()
    before = given.graph(LEFT[name](given))
    assert passed(before) is before


@pytest.mark.parametrize(
    ("window", "attrs"),
    [(3, {"pad": (1, 1)}), (1, {"stride": (2, 2)}), (1, {"pad": (1, 1)}), (3, {})],
    ids=["padded windows", "stride", "pad", "windows"],
)
def test_other_windows_of_f32_are_left_to_cudnn_and_a_kernel(window: int, attrs: dict[str, Any]) -> None:
    given = Given(window=window, **attrs)
    before = given.graph(TAKEN["bias"][0](given))
    assert passed(before) is before
    [alone] = [node for node in before.nodes if node.op.name == "conv_last"]
    assert not isinstance(library_call(alone, "sm_80"), NoCall), "cuDNN computes it"


def test_only_training_on_a_gpu() -> None:
    given = Given()
    graph = given.graph(TAKEN["bias"][0](given))
    assert passed(graph, "predict") is graph and passed(graph, build=Build(target="cpu")) is graph
    assert passed(graph, "eval_step") is not graph and passed(graph) is not graph


def test_a_convolution_computed_again_alone_has_the_bits_of_the_first() -> None:
    given = Given()
    y, again = TAKEN["bias"][0](given), given.conv(Phase.MIRROR)
    values = {"y": y, "two": given("exp", y), "again": again}
    graph = graph_of([*given.inputs.values()], values)
    assert passed(graph) is graph
    alone = graph_of([*given.inputs.values()], {"y": y, "two": given("exp", y)})
    assert passed(alone) is not alone


def test_the_example(golden: Callable[[str, str], None]) -> None:
    given = Given()
    before = given.graph(TAKEN["bias"][0](given))
    golden("passes/training_epilogue.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(passed(before))}")
