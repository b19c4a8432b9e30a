"""Results of a function of the language on arrays in f64, and the gradients of their weighted sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from graphs.random_graphs import graph_of
from op_laws.evaluation import run, type_of
from op_laws.recorder import Recorder

from dslc.compiler.ir.graph import Input, Kind, Value
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.lower.gradient.differentiate import differentiate


def weights_of(shape: Sequence[int]) -> np.ndarray:
    """What a result is multiplied by before it is added up."""
    return np.random.default_rng([4, *shape]).uniform(-1, 1, tuple(shape))


def with_gradients(build: Callable[..., Any], xs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """``build(call, *values)`` gives one value or several. The results; the gradients of the inputs in f64, zeros where
    none flows, for the sum of all float results times their weights."""
    call = Recorder(DType.F64)
    inputs = [Input(f"x{i}", Kind.PARAM if x.dtype == np.float64 else Kind.DATA, type_of(x)) for i, x in enumerate(xs)]
    found = build(call, *(i.value for i in inputs))
    results: list[Value] = list(found) if isinstance(found, (tuple, list)) else [found]
    feeds = {i.value: x for i, x in zip(inputs, xs)}
    parts, weights = [], []
    for number, result in enumerate(r for r in results if r.type.dtype.is_float):
        weight = weights_of(result.type.ints)
        weights.append(Input(f"w{number}", Kind.DATA, type_of(weight)))
        feeds[weights[-1].value] = weight
        product = call.emit(OPS["mul"], result, weights[-1].value)
        parts.append(call.emit(OPS["sum"], product, over=tuple(range(weight.ndim)), keep=False))
    loss = parts[0]
    for part in parts[1:]:
        loss = call.emit(OPS["add"], loss, part)
    wrt = [i.value for i in inputs if i.kind is Kind.PARAM]
    gradients = differentiate(graph_of([*inputs, *weights], {"loss": loss}), loss, wrt)
    known = [gradients[v] for v in wrt if v in gradients]
    arrays = iter(run([*results, *known], feeds))
    shown = [next(arrays) for _ in results]
    return shown, [next(arrays) if v in gradients else np.zeros(v.type.ints) for v in wrt]
