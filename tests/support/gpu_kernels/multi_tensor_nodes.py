"""Nodes of one launch for many tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from gpu_kernels import simulator
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType

ADAM = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "decoupled": True}
STEPS: dict[str, tuple[int, dict[str, Any]]] = {
    "sgd_update": (0, {"weight_decay": 0.1}),
    "sgd_momentum_update": (1, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adam_update": (2, ADAM),
    "lion_update": (1, {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1}),
    "adadelta_update": (2, {"rho": 0.9, "eps": 1e-6, "weight_decay": 0.1}),
    "nadam_update": (2, ADAM | {"momentum_decay": 0.004}),
    "radam_update": (2, ADAM),
    "rprop_update": (2, {"shrink": 0.5, "grow": 1.2, "least": 1e-6, "most": 50.0, "weight_decay": 0.1}),
    "rmsprop_centered_momentum_update": (3, {"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.0, "momentum": 0.9}),
}


def value(dtype: DType, shape: tuple[int, ...]) -> Any:
    return Input("x", Kind.DATA, TensorType(dtype, shape)).value


def update(step: str, shapes: Any, narrow: DType = DType.F32) -> tuple[Node, list[np.ndarray]]:
    """A ``multi_update`` and its inputs; the second gradient is infinite in its last element."""
    rng, (slots, attrs) = np.random.default_rng(3), STEPS[step]
    states = [value(DType.F32, s) for s in shapes for _ in range(1 + slots)]
    grads = [value(narrow, s) for s in shapes]
    xs = [np.abs(rng.normal(size=v.type.ints)).astype(np.float32) for v in states]
    xs += [simulator.held(rng.normal(size=s), narrow) for s in shapes]
    xs[len(states) + 1].reshape(-1)[-1] = np.inf
    scalars = [value(DType.F32, ()), value(DType.I64, ())]
    node = Builder(name="here").node(
        OPS["multi_update"], *states, *grads, *scalars, step=step, each=tuple(sorted(attrs.items())), together=True
    )
    return node, [*xs, np.asarray(0.1, np.float32), np.asarray(3)]
