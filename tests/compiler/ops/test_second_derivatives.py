"""Gradients of gradients: for every op that has a gradient, that of its gradient is the central difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from op_laws.evaluation import apply, run, values_of
from op_laws.sample_cases import SAMPLES, attrs_of, every_sample, node_of
from op_samples.sample import Sample
from places import ROOT

from dslc.compiler.ir.graph import Graph, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder, NoGradient, Op
from dslc.compiler.ir.pull_back import NotDifferentiable, Recorder, pull_back
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.lower.gradient.differentiate import differentiate
from dslc.compiler.passes.lower.gradient.sum_gradients import total

#: Ops whose ``grad`` itself is another one inside of ``gradient``.
OF_PHASE = ("path_loss",)
EPS, ATOL, RTOL = 1e-6, 2e-5, 2e-3  # of central differences
CLOSE = 1e-6  # of central differences along a direction, in which each element has its share


def _weights(sample: Sample, ys: Sequence[np.ndarray]) -> list[np.ndarray | None]:
    chosen = sample.outputs if sample.outputs is not None else range(len(ys))
    rng = np.random.default_rng(7)
    floats = [i in chosen and y.dtype == np.float64 for i, y in enumerate(ys)]
    return [np.array(rng.uniform(0.5, 1.5, y.shape)) if wanted else None for y, wanted in zip(ys, floats, strict=True)]


def _first(node: Node, dys: Sequence[Value | None], wanted: Sequence[Value], phase: Phase) -> dict[Value, Value]:
    """The gradients of the wanted inputs."""
    terms = {v: [dy] for v, dy in zip(node.outputs, dys, strict=True) if dy is not None}
    pull_back([node], terms, set(wanted), total, phase)
    return {v: total(terms[v]) for v in wanted if v in terms}


def _inputs(op: Op, sample: Sample) -> tuple[list[np.ndarray], list[int]]:
    xs = [np.array(x) for x in sample.arrays(op.name)]
    floats = [i for i, x in enumerate(xs) if x.dtype == np.float64]
    return xs, floats if sample.differentiable is None else list(sample.differentiable)


def _differences(value: Callable[[], float], array: np.ndarray, eps: float) -> np.ndarray:
    """The central difference of the value by each element of the array."""
    found = np.zeros_like(array)
    for at in np.ndindex(array.shape):
        kept = array[at]
        array[at] = kept + eps
        above = value()
        array[at] = kept - eps
        found[at] = (above - value()) / (2 * eps)
        array[at] = kept
    return found


def _agrees_along(
    value: Callable[[], float], arrays: Sequence[np.ndarray], gradients: Sequence[np.ndarray], rng: np.random.Generator
) -> bool:
    """Whether the central difference along a random direction, in which every element moves, is what the gradients
    say. Where it is not, a gradient is wrong or jumps, and the elements tell which."""
    steps = [rng.uniform(0.5, 1.5, x.shape) * rng.choice([-1.0, 1.0], x.shape) for x in arrays]
    kept = [x.copy() for x in arrays]
    values = []
    for sign in (1, -1):
        for x, before, step in zip(arrays, kept, steps, strict=True):
            x[...] = before + sign * EPS * step
        values.append(value())
    for x, before in zip(arrays, kept, strict=True):
        x[...] = before
    found = (values[0] - values[1]) / (2 * EPS)
    said = float(sum(np.sum(g * step) for g, step in zip(gradients, steps, strict=True)))
    return abs(found - said) <= CLOSE * max(1, abs(value()), abs(said))  # not of nan


@every_sample()
def test_the_gradient_of_the_gradient_is_the_central_difference(op: Op, sample: Sample) -> None:
    xs, wanted = _inputs(op, sample)
    attrs = attrs_of(sample, DType.F64)
    node = node_of(op, xs, attrs)
    weights = _weights(sample, apply(op, xs, attrs))
    if all(w is None for w in weights) or not wanted:
        return
    dys = [None if w is None else values_of([w], "dy")[0] for w in weights]
    try:
        op.grad(node, dys, Builder())
        op.in_gradient(node, Recorder())
    except NoGradient:
        return
    first = _first(node, dys, [node.inputs[i] for i in wanted], Phase.GRADIENT)
    arrays = [*xs, *(w for w in weights if w is not None)]
    sources = [*node.inputs, *(dy for dy in dys if dy is not None)]
    wrt = [sources[i] for i in (*wanted, *range(len(xs), len(sources)))]
    b, rng = Builder(), np.random.default_rng(11)
    parts, scales = [], []
    for gradient in first.values():
        scales.append(np.array(rng.uniform(0.5, 1.5, gradient.type.ints)))
        [scale] = values_of(scales[-1:], "c")
        arrays, sources = [*arrays, scales[-1]], [*sources, scale]
        parts.append(b(OPS["sum"], b(OPS["mul"], gradient, scale), over=tuple(range(gradient.type.rank)), keep=False))
    if not parts:
        return
    loss = total(parts)
    found = differentiate(Graph((), (), {}), loss, wrt)

    def value() -> float:
        return float(run([loss], dict(zip(sources, arrays, strict=True)))[0])

    got = dict(zip(found, run(list(found.values()), dict(zip(sources, arrays, strict=True))), strict=True))
    moved = [arrays[sources.index(source)] for source in wrt]
    gradients = [got.get(source, np.zeros_like(array)) for source, array in zip(wrt, moved, strict=True)]
    if all(_agrees_along(value, moved, gradients, rng) for _ in range(2)):
        return
    compared = 0
    for array, found_here in zip(moved, gradients, strict=True):
        near, far = (_differences(value, array, eps) for eps in (EPS, 3 * EPS))
        close = {"rtol": RTOL, "atol": ATOL * max(1, abs(value()))}
        smooth = np.isclose(near, far, **close)  # elsewhere the gradient jumps, or does not exist
        compared += int(np.sum(smooth))
        np.testing.assert_allclose(found_here[smooth], near[smooth], **close)
    assert compared or not sum(source.type.elements for source in wrt)


@every_sample(lambda op, sample: type(op).in_gradient is not Op.in_gradient or op.name in OF_PHASE)
def test_the_composition_has_the_value_and_the_gradient_of_the_op(op: Op, sample: Sample) -> None:
    xs, wanted = _inputs(op, sample)
    attrs = attrs_of(sample, DType.F64)
    node = node_of(op, xs, attrs)
    ys = apply(op, xs, attrs)
    weights = _weights(sample, ys)
    if all(w is None for w in weights):
        return
    feeds = dict(zip((*node.inputs, *node.outputs), (*xs, *ys), strict=True))
    values = op.in_gradient(node, Recorder())
    if values is not None:
        assert len(values) == len(ys)
        composed = [(v, y) for v, y in zip(values, ys, strict=True) if v is not None]
        assert composed
        for array, (_, y) in zip(run([v for v, _ in composed], feeds), composed, strict=True):
            np.testing.assert_allclose(array, y, rtol=1e-9, atol=1e-9)
        weights = [w if v is not None else None for w, v in zip(weights, values, strict=True)]
    dys = [None if w is None else values_of([w], "dy")[0] for w in weights]
    feeds |= {dy: w for dy, w in zip(dys, weights, strict=True) if dy is not None and w is not None}
    inputs = [node.inputs[i] for i in wanted]
    plain, own = (_first(node, dys, inputs, phase) for phase in (Phase.BACKWARD, Phase.GRADIENT))
    assert {v for v in plain if v.type.elements} == {v for v in own if v.type.elements}
    for source in own:
        np.testing.assert_allclose(*run([plain[source], own[source]], feeds), rtol=1e-9, atol=1e-9)


def test_gradient_refuses_no_op_that_has_a_gradient() -> None:
    """As the page of functions says. Ops of gradients and of later passes, which no model calls, may have none."""
    refused, differentiated = set(), set()
    for name, samples in SAMPLES.items():
        for sample in samples:
            op, (xs, wanted) = OPS[name], _inputs(OPS[name], sample)
            attrs = attrs_of(sample, DType.F64)
            weights = _weights(sample, apply(op, xs, attrs))
            dys = [None if w is None else values_of([w], "dy")[0] for w in weights]
            if not wanted or all(dy is None for dy in dys):
                continue
            node = node_of(op, xs, attrs)
            try:
                op.grad(node, dys, Builder())
            except NoGradient:
                continue
            differentiated.add(name)
            try:
                _first(node, dys, [node.inputs[i] for i in wanted], Phase.GRADIENT)
            except NotDifferentiable:
                refused.add(name)
    assert {"path_loss", "scatter_reduce", "matmul"} <= differentiated and not refused
    page = (ROOT / "docs/ops.md").read_text(encoding="utf-8")
    assert "gradients of gradients, to any order" in page and "E0507" not in page
