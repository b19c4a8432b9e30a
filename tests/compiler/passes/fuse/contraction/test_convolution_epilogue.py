"""convolution_epilogue: cuDNN and own kernels compute what reads their convolutions; the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from graphs.random_graphs import evaluate, feeds_of, graph_of, input_of

from dslc.compiler.codegen.cuda.libraries.cudnn import VendorConvSum
from dslc.compiler.codegen.cuda.libraries.registry import library_call
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Graph, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.contraction.convolution_epilogue import convolution_epilogue
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph

#: There cuDNN computes small convolutions, too.
BUILD = Build(target="sm_80", provider="vendor")
SHAPES = {"x": (2, 6, 6, 32), "w": (64, 3, 3, 32), "bias": (1, 1, 1, 64), "other": (1, 1, 1, 64), "rest": (2, 6, 6, 64)}


class Given:
    """Inputs, and ops on them."""

    def __init__(self, dtype: DType = DType.BF16) -> None:
        self.inputs = {name: input_of(name, Kind.DATA, *shape, dtype=dtype) for name, shape in SHAPES.items()}
        self.bias, self.other, self.rest = (self.inputs[name].value for name in ("bias", "other", "rest"))
        self.b = Builder(name="layer")

    def conv(self, groups: int = 1, apart: int = 1) -> Value:
        attrs = {"stride": (1, 1), "pad": (apart, apart), "dilation": (apart, apart), "groups": groups}
        x, w = self.inputs["x"].value, self.inputs["w"].value
        if groups > 1:
            w = self("slice", w, starts=(0,) * 4, stops=(64, 3, 3, 32 // groups), steps=(1,) * 4)
        return self("conv_last", x, w, **attrs)

    def __call__(self, op: str, *values: Value, **attrs: Any) -> Value:
        return self.b(OPS[op], *values, **attrs)

    def graph(self, y: Value) -> Graph:
        return fuse_graph(graph_of([*self.inputs.values()], {"y": y}))


def passed(graph: Graph, entry: str = "predict", build: Build = BUILD) -> Graph:
    return convolution_epilogue(Program(entry, {}, graph, target=build.target), build).graph


TAKEN: dict[str, tuple[Callable[[Given], Value], tuple[str, ...], bool]] = {
    "bias": (lambda g: g("add", g.conv(), g.bias), ("bias",), False),
    "bias and relu": (lambda g: g("relu", g("add", g.bias, g.conv())), ("bias",), True),
    "all": (lambda g: g("relu", g("add", g("add", g.conv(), g.bias), g.rest)), ("bias", "c"), True),
    "of two": (lambda g: g("relu", g("add", g("add", g.conv(), g.conv()), g.bias)), ("c", "bias"), True),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_added_is_cudnns(name: str) -> None:
    make, kinds, relu = TAKEN[name]
    given = Given()
    before = given.graph(make(given))
    after = passed(before)
    verify_graph(after)
    feeds = feeds_of(before, 5)
    [wanted], [found] = evaluate(before, feeds).values(), evaluate(after, feeds).values()
    np.testing.assert_array_equal(found, wanted)
    last = after.nodes[-1]
    assert last.op.name == "contraction" and passed(after) is after
    launch = library_call(last, "sm_80")
    assert isinstance(launch, Launch) and isinstance(launch.spec, VendorConvSum)
    assert (launch.spec.added, launch.spec.relu) == (kinds, relu)
    call = launch.spec.instruction(range(len(launch.spec.shapes)), 99, 0)
    assert call.inputs == tuple(range(2 + len(kinds))) and call.outputs == (2 + len(kinds),)
    assert (call.attrs["added"], call.attrs["relu"]) == ([*kinds], relu)
    wanted_shapes = {"bias": (64,), "c": SHAPES["rest"]}
    assert launch.spec.shapes[2:] == (*(wanted_shapes[kind] for kind in kinds), SHAPES["rest"])


def _volumes(window: tuple[int, int, int], stride: tuple[int, int, int] = (1, 1, 1)) -> Graph:
    """A convolution of volumes, padded where the window has more than one place, with a bias, a residual and relu."""
    count = tuple((n - 1) // s + 1 for n, s in zip((4, 6, 6), stride))
    shapes = {"x": (2, 4, 6, 6, 32), "w": (64, *window, 32), "bias": (1, 1, 1, 1, 64), "rest": (2, *count, 64)}
    inputs = {name: input_of(name, Kind.DATA, *shape, dtype=DType.BF16) for name, shape in shapes.items()}
    x, w, bias, rest = (each.value for each in inputs.values())
    attrs = {"stride": stride, "pad": tuple(k // 2 for k in window), "dilation": (1, 1, 1), "groups": 1}
    b = Builder(name="layer")
    y = b(OPS["add"], b(OPS["add"], b(OPS["conv_last"], x, w, **attrs), bias), rest)
    return fuse_graph(graph_of([*inputs.values()], {"y": b(OPS["relu"], y)}))


def test_volumes_of_flat_windows_are_images_to_which_cudnn_adds() -> None:
    before = _volumes((1, 3, 3), (1, 2, 2))
    after = passed(before)
    verify_graph(after)
    feeds = feeds_of(before, 5)
    np.testing.assert_array_equal(evaluate(after, feeds)["y"], evaluate(before, feeds)["y"])
    launch = library_call(after.nodes[-1], "sm_80")
    assert isinstance(launch, Launch) and isinstance(launch.spec, VendorConvSum)
    assert launch.spec.shapes == ((8, 6, 6, 32), (64, 3, 3, 32), (64,), (8, 3, 3, 64), (8, 3, 3, 64))
    assert (launch.spec.conv.stride, launch.spec.conv.pad) == ((2, 2), (1, 1))


@pytest.mark.parametrize(("window", "stride"), [((3, 1, 1), (1, 1, 1)), ((3, 3, 3), (1, 1, 1)), ((1, 3, 3), (2, 1, 1))])
def test_cudnn_adds_nothing_to_other_volumes(window: tuple[int, int, int], stride: tuple[int, int, int]) -> None:
    before = _volumes(window, stride)
    assert passed(before) is before


LEFT: dict[str, Callable[[Given], Value]] = {
    "two biases": lambda g: g("add", g("add", g.conv(), g.bias), g.other),
    "a scale": lambda g: g("mul", g.conv(), g.bias),
    "another function": lambda g: g("sigmoid", g("add", g.conv(), g.bias)),
    "relu before the sum": lambda g: g("add", g("relu", g.conv()), g.rest),
    "a bias to a window that reaches far": lambda g: g("add", g.conv(apart=9), g.bias),
    "twice": lambda g: (lambda y: g("add", y, y))(g.conv()),
    "relu without a bias": lambda g: g("relu", g.conv()),
    "a residual without a bias": lambda g: g("add", g.rest, g.conv()),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_cudnn_does_not_add(name: str) -> None:
    given = Given()
    before = given.graph(LEFT[name](given))
    assert passed(before) is before


OWN: dict[str, Callable[[Given], Value]] = {
    "bias": lambda g: g("add", g.conv(2), g.bias),
    "a scale and a maximum": lambda g: g("maximum", g.rest, g("mul", g.conv(2), g.bias)),
    "depthwise": lambda g: g("relu", g("add", g.conv(32), g.bias)),
    "residual and two biases": lambda g: g("add", g.rest, g("relu", g("add", g("add", g.conv(2), g.bias), g.other))),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("provider", ["vendor", "own"])
def test_own_kernels_compute_any_formula(name: str, provider: Literal["vendor", "own"]) -> None:
    given, build = Given(), Build(target="sm_80", provider=provider)
    before = given.graph(OWN[name](given))
    after = passed(before, build=build)
    verify_graph(after)
    feeds = feeds_of(before, 5)
    [wanted], [found] = evaluate(before, feeds).values(), evaluate(after, feeds).values()
    np.testing.assert_array_equal(found, wanted)
    last = after.nodes[-1]
    assert last.op.name == "contraction" and passed(after, build=build) is after
    [launch] = lowered(last, "sm_80", provider == "vendor") or []
    assert launch.spec.epilogue is not None and not isinstance(launch.spec, LibraryCall)


def test_a_measured_way_of_a_convolution_is_not_lost() -> None:
    given = Given()
    graph = given.graph(OWN["bias"](given))
    whole = passed(graph).nodes[-1]
    [alone] = [node for node in graph.nodes if node.op.name == "conv_last"]
    ways = {
        key_of(node): (Measured(Choice("own", "tile"), seconds),) for node, seconds in ((alone, 2e-6), (whole, 1e-6))
    }
    both, first = Choices(ways), Choices({key_of(alone): ways[key_of(alone)]})
    assert passed(graph, build=replace(BUILD, choices=first)) is graph
    assert passed(graph, build=replace(BUILD, choices=both)) is not graph


def test_only_predict_on_a_gpu_and_no_own_kernel_for_cudnns() -> None:
    given, wide = Given(), Given(DType.F32)
    graph, of_f32 = (each.graph(each("add", each.conv(), each.bias)) for each in (given, wide))
    assert passed(graph, "train_step") is graph and passed(graph, build=Build(target="cpu")) is graph
    assert passed(of_f32) is of_f32 and passed(graph) is not graph
    own = wide.graph(wide("relu", wide.conv(2)))
    inexact = wide.graph(wide("sigmoid", wide.conv(2)))
    assert passed(own) is not own and passed(inexact) is inexact


def test_the_example(golden: Callable[[str, str], None]) -> None:
    given = Given()
    before = given.graph(TAKEN["all"][0](given))
    golden(
        "passes/convolution_epilogue.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(passed(before))}"
    )
