"""The samples of all ops as cases of tests, and gradients of a node."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import run, values_of
from op_samples.every import SAMPLES
from op_samples.sample import Sample

from dslc.compiler.ir.graph import Input, Node, Value
from dslc.compiler.ir.op import Builder, Op
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry

OPS = registry.ops()

Law = Callable[..., None]


def every_sample(fits: Callable[[Op, Sample], bool] = lambda op, sample: True) -> Callable[[Law], Law]:
    """``law(op, sample, ...)`` holds for all samples that fit: one test for each op, as a test for each of more than
    1,500 samples costs more than most laws do. A failure names its sample."""
    chosen = {n: [(i, s) for i, s in enumerate(SAMPLES[n]) if fits(OPS[n], s)] for n in sorted(SAMPLES.keys() & OPS)}

    def decorated(law: Law) -> Law:
        @wraps(law)
        def test(op: Op, **others: Any) -> None:
            for number, sample in chosen[op.name]:
                try:
                    law(op=op, sample=sample, **others)
                except Exception as error:
                    error.add_note(f"sample {number} of {op.name}")
                    raise

        signature = inspect.signature(law)
        others = [parameter for name, parameter in signature.parameters.items() if name != "sample"]
        test.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return pytest.mark.parametrize("op", [pytest.param(OPS[n], id=n) for n in chosen if chosen[n]])(test)

    return decorated


def attrs_of(sample: Sample, float_dtype: DType) -> dict[str, Any]:
    return {name: float_dtype if value is DType.FLOAT else value for name, value in sample.attrs.items()}


def node_of(op: Op, xs: list[np.ndarray], attrs: dict[str, Any]) -> Node:
    return Builder(name="here").node(op, *values_of(xs), **attrs)


def gradients_of(op: Op, node: Node, feeds: dict[Value, np.ndarray], weights: list[np.ndarray | None]) -> list[Any]:
    """Gradients of the weighted sum of the outputs; reads no more than ``needs[0]`` says. None: no gradient."""
    dys = [None if w is None else values_of([w], "dy")[0] for w in weights]
    b = Builder(name="gradient")
    found = op.grad(node, dys, b)
    assert len(found) == len(node.inputs)
    named = {f"x{i}": v for i, v in enumerate(node.inputs)} | {f"y{i}": v for i, v in enumerate(node.outputs)}
    allowed = {named[name]: feeds[named[name]] for name in op.needs[0] if name in named}
    allowed |= {v: w for v, w in zip(dys, weights) if v is not None and w is not None}
    assert _leaves([g for g in found if g is not None], set(named.values()) | set(allowed)) <= set(allowed)
    fitted = []
    for gradient, x in zip(found, node.inputs):
        if gradient is not None and gradient.type.shape != x.type.shape:
            gradient = b(OPS["sum_to"], gradient, shape=x.type.shape)
        assert gradient is None or gradient.type == x.type
        fitted.append(gradient)
    arrays = iter(run([g for g in fitted if g is not None], allowed))
    return [None if g is None else next(arrays) for g in fitted]


def _leaves(roots: list[Value], stops: set[Value]) -> set[Value]:
    """The values at which a walk from ``roots`` ends: those in ``stops``, and graph inputs."""
    found: set[Value] = set()
    seen: set[Value] = set()
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value in stops or isinstance(value.producer, Input):
            found.add(value)
        elif value not in seen:
            seen.add(value)
            stack.extend(value.producer.inputs)
    return found
