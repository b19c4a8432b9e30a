"""The layout of the state: every parameter, buffer and optimizer slot of an artifact, at one place for all entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.program import ALIGNMENT
from dslc.compiler.ir.types import DType, TensorType

_ORDER: Final = (Kind.PARAM, Kind.BUFFER, Kind.OPTIMIZER)


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of the state. ``init``: its initialiser in words; ``of``: the parameter an optimizer slot belongs
    to; ``trained``: whether the training step updates it. Its type has neither dims nor the abstract float."""

    name: str
    kind: Kind
    type: TensorType
    init: str
    of: str | None = None
    trained: bool = True


@dataclass(frozen=True)
class StateLayout:
    """``tensors`` in the order of their bytes: parameters, buffers, optimizer, by name in each. ``forward_order``:
    the trained parameters in the order in which the model reads them; it is that of the output ``nonfinite``."""

    tensors: tuple[StateTensor, ...]
    offsets: Mapping[str, int]
    bytes: int
    forward_order: tuple[str, ...]


def lay_out(tensors: Sequence[StateTensor], forward_order: Sequence[str]) -> StateLayout:
    """Gives every tensor its offset, a multiple of 64."""
    placed = tuple(sorted(tensors, key=lambda t: (_ORDER.index(t.kind), t.name)))
    offsets: dict[str, int] = {}
    end = 0
    for tensor in placed:
        assert tensor.type.dtype is not DType.FLOAT, f"{tensor.name} has no precision yet"
        assert tensor.name not in offsets, f"two state tensors are named {tensor.name}"
        offsets[tensor.name] = end
        end += -(-tensor.type.bytes // ALIGNMENT) * ALIGNMENT
    return StateLayout(placed, offsets, end, tuple(forward_order))
