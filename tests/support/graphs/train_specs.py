"""Train sections with a single update, for tests of passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dslc.compiler.ir.build import LossScale, ParamSpec, TrainSpec, UpdateSpec
from dslc.compiler.ops.registry import optimizers


def one_update(
    optimizer: str,
    args: Mapping[str, Any],
    params: Sequence[ParamSpec],
    clip_norm: float | None = None,
    clip_value: float | None = None,
    loss_scale: LossScale | None = None,
) -> TrainSpec:
    """A section that trains all trained ``params`` with one loss."""
    trained = tuple(spec.name for spec in params if spec.trained)
    update = UpdateSpec("", optimizers()[optimizer], args, trained, clip_norm, clip_value)
    return TrainSpec((update,), tuple(params), loss_scale=loss_scale)
