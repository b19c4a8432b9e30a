"""Some steps of an optimizer of the language."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_laws.evaluation import run, values_of

from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops import registry

OPTIMIZERS = registry.optimizers()


STEPS = 20


def trained(name: str, named: dict[str, Any], dtype: type = np.float64) -> list[np.ndarray]:
    """The parameter after each step of the language's optimizer, on gradients 0.3*p + noise, with lr/(1 + step)."""
    rng = np.random.default_rng(1)
    p = rng.uniform(-1, 1, (3, 4)).astype(dtype)
    type_ = TensorType(DType.F64 if dtype is np.float64 else DType.F32, p.shape)
    o, args = OPTIMIZERS[name].rule(OPTIMIZERS[name].defaults | named, type_, False)
    slots = [np.zeros(o.slot_type(slot, type_).ints, dtype) for slot in o.slots(args)]
    b, history = Builder(), []
    for step in range(STEPS):
        g = (0.3 * p + rng.uniform(-1, 1, p.shape)).astype(dtype)
        arrays = [p, g, *slots, np.array(args["lr"] / (1 + step), dtype), np.array(step)]
        values = values_of(arrays)
        outputs = o.update(b, args, values[0], values[1], values[2:-2], values[-2], values[-1])
        p, *slots, flag = run(outputs, dict(zip(values, arrays)))
        assert not flag
        history.append(p)
    return history
