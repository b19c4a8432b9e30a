"""Gradients by central differences, updates, clipping, flags; what is refused; deep chains."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs.random_graphs import build_for, evaluate, graph_of, input_of
from graphs.train_specs import one_update

from dslc.base.errors import DslcError
from dslc.compiler.ir.build import Build, ParamSpec
from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.dtypes.precision import precision
from dslc.compiler.passes.lower.gradient.autodiff import autodiff
from dslc.compiler.passes.lower.gradient.differentiate import differentiate

SMOOTH = ("tanh", "sigmoid", "sin", "exp", "neg")
B = Builder(name="f")


def _mean(value: Value) -> Value:
    return B(OPS["mean"], value, over=tuple(range(value.type.rank)), keep=False) if value.type.rank else value


def _random_loss(rng: random.Random) -> tuple[Graph, list[Input]]:
    """A smooth function of three parameters with shared values and broadcasting."""
    params = [input_of(f"w{i}", Kind.PARAM, *s, dtype=DType.F64) for i, s in enumerate([(3, 4), (4,), (3, 1)])]
    values = [p.value for p in params]
    for _ in range(rng.randint(3, 15)):
        x, y = rng.choice(values), rng.choice(values)
        op = rng.choice([*SMOOTH, "add", "mul", "sub", "mul", "reshape", "matmul"])
        if op in SMOOTH:
            values.append(B(OPS["tanh"], B(OPS[op], x)))
        elif op == "reshape":
            values.append(B(OPS["transpose"], x, perm=tuple(reversed(range(x.type.rank)))))
        elif op == "matmul":
            if x.type.rank == y.type.rank == 2 and x.type.shape[0] == y.type.shape[0]:
                product = B(OPS["matmul"], x, y, transpose_a=True, transpose_b=False)
                values.append(B(OPS["tanh"], product))
        elif all(1 in (m, n) or m == n for m, n in zip(x.type.shape[::-1], y.type.shape[::-1])):
            values.append(B(OPS[op], x, y))
    loss = _mean(values[-1])
    for value in (*rng.sample(values, 2), *(p.value for p in params)):
        loss = B(OPS["add"], loss, _mean(B(OPS["sin"], value)))
    return graph_of(params, {"loss": loss}), params


def test_gradients_are_central_differences(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    for case in range(fuzz_count(300)):
        graph, params = _random_loss(rng)
        loss = graph.outputs["loss"]
        found = differentiate(graph, loss, [p.value for p in params])
        derived = graph_of(params, {p.name: found[p.value] for p in params})
        verify_graph(derived)
        draw = np.random.default_rng(case)
        feeds = {p.name: draw.uniform(-1, 1, p.value.type.ints) for p in params}
        gradients = evaluate(derived, feeds)
        for param in params:
            for index in [tuple(draw.integers(0, s) for s in param.value.type.ints) for _ in range(2)]:
                slope = []
                for sign in (1, -1):
                    moved = feeds[param.name].copy()
                    moved[index] += sign * 1e-6
                    slope.append(float(evaluate(graph, {**feeds, param.name: moved})["loss"]))
                expected = (slope[0] - slope[1]) / 2e-6
                assert gradients[param.name][index] == pytest.approx(expected, rel=1e-3, abs=1e-5)


def _line(*, params: int = 1, frozen: bool = False) -> tuple[Graph, list[ParamSpec]]:
    """loss = mean((x * w0 * w1 ...)^2), with sgd's slots."""
    x = input_of("x", Kind.DATA, 4, dtype=DType.FLOAT)
    weights = [input_of(f"w{i}", Kind.PARAM, 4, dtype=DType.FLOAT) for i in range(params)]
    slots = [input_of(f"w{i}.momentum_buffer", Kind.OPTIMIZER, 4, dtype=DType.FLOAT) for i in range(params)]
    value = x.value
    for w in weights:
        value = B(OPS["mul"], value, w.value)
    loss = Builder(name="loss")(OPS["mean"], B(OPS["mul"], value, value), over=(0,), keep=False)
    specs = [ParamSpec(w.name, trained=not frozen or i > 0) for i, w in enumerate(weights)]
    return graph_of([x, *weights, *slots], {"loss": loss}), specs


def _trained(
    graph: Graph, specs: list[ParamSpec], clip_norm: float | None = None, clip_value: float | None = None, **args: Any
) -> tuple[Graph, Build]:
    given = {"momentum": 0.9, "nesterov": False, **args}
    spec = one_update("sgd", given, specs, clip_norm, clip_value)
    build = Build(train=spec)
    program = precision(autodiff(Program("train_step", {}, graph), build), build)
    verify_graph(program.graph)
    return program.graph, build_for(program.graph)


def _step(graph: Graph, **feeds: Any) -> dict[str, np.ndarray]:
    ready = {n: np.asarray(v, np.int64 if n == "step" else np.float32) for n, v in feeds.items()}
    return evaluate(graph, {"step": np.asarray(0), "lr": np.float32(0.1), **ready})


def test_a_step_of_sgd() -> None:
    graph, specs = _line()
    trained, _ = _trained(graph, specs)
    x, w = np.array([1, 2, 3, 4], np.float32), np.array([1, -1, 2, 0.5], np.float32)
    out = _step(trained, x=x, w0=w, **{"w0.momentum_buffer": np.ones(4)})
    gradient = 2 * x * x * w / 4
    np.testing.assert_allclose(out["update w0.momentum_buffer"], 0.9 + gradient, rtol=1e-6)
    np.testing.assert_allclose(out["update w0"], w - 0.1 * (0.9 + gradient), rtol=1e-6)
    assert out["nonfinite"].tolist() == [0] and out["nonfinite"].dtype == np.uint8


def test_groups_frozen_parameters_and_flags() -> None:
    graph, specs = _line(params=3, frozen=True)
    specs[1] = ParamSpec("w1", lr_factor=0.5, weight_decay=0.1)
    trained, _ = _trained(graph, specs)
    ones = np.ones(4, np.float32)
    slots = {f"w{i}.momentum_buffer": np.zeros(4) for i in range(3)}
    out = _step(trained, x=ones, w0=ones, w1=ones, w2=ones, **slots)
    assert "update w0" not in out
    np.testing.assert_allclose(out["update w1"], 1 - 0.05 * (0.5 + 0.1), rtol=1e-6)
    np.testing.assert_allclose(out["update w2"], 1 - 0.1 * 0.5, rtol=1e-6)
    assert out["nonfinite"].tolist() == [0, 0]
    broken = _step(trained, x=[1, np.inf, 1, 1], w0=ones, w1=ones, w2=ones, **slots)
    assert broken["nonfinite"].tolist() == [1, 1] and broken["update w1"][1] == 1.0


def test_clipping_bounds_the_norm_of_all_gradients() -> None:
    graph, specs = _line(params=2)
    trained, _ = _trained(graph, specs, clip_norm=0.5, momentum=0.0)
    slots = {n: np.zeros(4) for n in ("w0.momentum_buffer", "w1.momentum_buffer")}
    out = _step(trained, x=[3] * 4, w0=[1] * 4, w1=[2] * 4, **slots)
    moved = np.concatenate([(1 - out["update w0"]) / 0.1, (2 - out["update w1"]) / 0.1])
    assert np.linalg.norm(moved) == pytest.approx(0.5, rel=1e-4)


def test_clipping_by_value_bounds_each_element_before_the_norm() -> None:
    graph, specs = _line(params=2)
    slots = {n: np.zeros(4) for n in ("w0.momentum_buffer", "w1.momentum_buffer")}
    feeds: dict[str, Any] = {"x": [3] * 4, "w0": [1] * 4, "w1": [2] * 4, **slots}

    def moved(**clips: float) -> np.ndarray:
        out = _step(_trained(graph, specs, momentum=0.0, **clips)[0], **feeds)
        return np.concatenate([(1 - out["update w0"]) / 0.1, (2 - out["update w1"]) / 0.1])

    free = moved()
    limit = float(np.median(np.abs(free)))
    held = np.clip(free, -limit, limit)
    assert np.abs(free).max() > limit
    np.testing.assert_allclose(moved(clip_value=limit), held, rtol=1e-4)
    norm = float(np.linalg.norm(held)) / 2
    np.testing.assert_allclose(moved(clip_value=limit, clip_norm=norm), held / 2, rtol=1e-4)


def test_a_parameter_without_influence_is_the_checks_to_find() -> None:
    """The pass trains what it is told to; see tests/compiler/check/test_unreached_parameters.py."""
    graph, specs = _line()
    lonely = input_of("dead.weight", Kind.PARAM, 2, dtype=DType.FLOAT)
    graph = Graph((*graph.inputs, lonely), graph.nodes, graph.outputs)
    with pytest.raises(AssertionError, match="dead"):
        _trained(graph, [*specs, ParamSpec("dead.weight")])
    assert "update dead.weight" not in _step(
        _trained(graph, [*specs, ParamSpec("dead.weight", trained=False)])[0],
        **{"x": [3] * 4, "w0": [1] * 4, "w0.momentum_buffer": [0] * 4, "dead.weight": [1, 1]},
    )


def test_stop_gradient_and_integers_stop() -> None:
    x = input_of("w", Kind.PARAM, 4)
    stopped = B(OPS["stop_gradient"], x.value)
    rounded = B(OPS["cast"], B(OPS["cast"], x.value, dtype=DType.I32), dtype=DType.F32)
    loss = _mean(B(OPS["mul"], stopped, rounded))
    assert differentiate(graph_of([x], {"loss": loss}), loss, [x.value]) == {}


def test_an_op_without_gradient_is_named() -> None:
    x = input_of("w", Kind.PARAM, 4)
    body = (("exp", (0,), ()),)
    loss = _mean(Builder(name="odd")(OPS["fused"], x.value, body=body))
    with pytest.raises(DslcError) as caught:
        differentiate(graph_of([x], {"loss": loss}), loss, [x.value])
    assert caught.value.code == "E0507" and caught.value.place == "odd" and "fused" in caught.value.message


def test_other_entries_stay() -> None:
    graph, specs = _line()
    program = Program("predict", {}, graph)
    assert autodiff(program, Build(train=one_update("sgd", {}, specs))) is program


def test_golden(golden: Callable[[str, str], None]) -> None:
    graph, specs = _line(params=2)
    specs[0] = ParamSpec("w0", lr_factor=0.1)
    build = Build(train=one_update("sgd", {"momentum": 0.9, "nesterov": False}, specs, 1.0))
    after = autodiff(Program("train_step", {}, graph), build).graph
    golden("passes/autodiff.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


@pytest.mark.slow
def test_a_long_chain_needs_no_recursion() -> None:
    w = input_of("w", Kind.PARAM, 2)
    value = w.value
    for i in range(10_000):
        value = Builder(name=f"l{i}")(OPS["tanh"], value)
    loss = _mean(value)
    found = differentiate(graph_of([w], {"loss": loss}), loss, [w.value])
    graph = graph_of([w], {"g": found[w.value]})
    assert len(graph.nodes) > 20_000 and {n.phase for n in graph.nodes} == {Phase.FORWARD, Phase.BACKWARD}
