"""The state region: params, buffers, optimizer tensors and the states of training, each kind in the order of names.
Equal for all entries of a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from dslc.compiler.check import entries
from dslc.compiler.check.entries import optimizer_slots, slot_type, train_spec
from dslc.compiler.check.model import Checked
from dslc.compiler.ir.build import RAW, LossScale
from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.program import aligned
from dslc.compiler.ir.types import DType, TensorType
from dslc.runtime.artifact.header_schema import AS_PARAM
from dslc.runtime.artifact.reserved import OF_STATE
from dslc.runtime.artifact.slices import Piece, piece_name, pieces_of, slice_count


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of the state. ``of``: the parameter of an optimizer tensor; None if it belongs to the loss scale, to
    metrics over an epoch, or is a state of the model."""

    name: str
    kind: Kind
    type: TensorType
    offset: int
    init: str
    trained: bool
    of: str | None = None


@dataclass(frozen=True)
class StateLayout:
    tensors: tuple[StateTensor, ...]
    bytes: int
    #: trained parameters in forward order, the order of a training step's flags
    forward_order: tuple[str, ...]
    #: the pieces of each trained parameter, and of its slots, if the step has shards
    pieces: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)
    #: the number of slices, if there are more than the step's shards
    slices: int | None = None

    @property
    def offsets(self) -> Mapping[str, int]:
        """By name, also of pieces: ``w[0:16]``, and ``w[0:16].exp_avg`` for a slot."""
        found = {t.name: t.offset for t in self.tensors}
        for t in self.tensors:
            param = t.of or t.name
            for piece in self.pieces.get(param, ()):
                name = piece_name(param, piece) + t.name.removeprefix(param)
                found[name] = t.offset + piece.start * t.type.dtype.itemsize
        return found


def layout_state(
    checked: Checked, params: DType, scale: LossScale | None = None, sizes: Mapping[str, int] | None = None
) -> StateLayout:
    """Assigns each tensor an offset that is a multiple of 64 bytes. ``params``: the dtype of floats; ``sizes``: those
    of training, by default the dims' defaults."""
    spec = train_spec(checked, scale)
    trained = [p.name for p in spec.params if p.trained] if spec else []
    slots = optimizer_slots(spec) if spec else {}
    wanted: list[tuple[str, Kind, TensorType, str, str | None]] = []
    for kind in (Kind.PARAM, Kind.BUFFER):
        for name in sorted(n for n, i in checked.params.items() if i.input.kind is kind):
            info = checked.params[name]
            wanted.append((name, kind, TensorType(params, info.input.value.type.ints), str(info.init), None))
    scaling = spec.loss_scale.states if spec and spec.loss_scale else {}
    sums = entries.of_epoch(checked)
    for slot in sorted((*slots, *scaling, *sums)):
        if slot in sums:
            wanted.append((slot, Kind.OPTIMIZER, sums[slot], "constant(0)", None))
        elif slot in scaling:
            dtype, number = scaling[slot]
            type = TensorType(params if dtype is DType.FLOAT else dtype, ())
            wanted.append((slot, Kind.OPTIMIZER, type, f"constant({number:g})", None))
        else:
            assert spec is not None
            own = slot_type(spec, slot, slots[slot], checked.params[slots[slot]].input.value.type)
            type = TensorType(params, own.ints)
            init = AS_PARAM if slot == f"{slots[slot]}.{RAW}" else "constant(0)"
            wanted.append((slot, Kind.OPTIMIZER, type, init, slots[slot]))
    at = {d.name: d.default for d in checked.dims} if sizes is None else sizes
    for name, state in sorted(checked.states.items()) if spec else ():
        type = state.input.value.type.bind(at)
        type = TensorType(params, type.shape) if type.dtype is DType.FLOAT else type
        wanted.append((OF_STATE + name, Kind.STATE, type, f"constant({state.start:g})", None))
    trained_names = set(trained)
    tensors: list[StateTensor] = []
    offset = 0
    for name, kind, type, init, of in wanted:
        is_trained = kind is Kind.PARAM and name in trained_names
        tensors.append(StateTensor(name, kind, type, offset, init, is_trained, of))
        offset += aligned(type.bytes)
    shards = 1 if spec is None else spec.shards
    counted = [(t.name, prod(t.type.ints), t.type.dtype.itemsize) for t in tensors if t.trained] if shards > 1 else []
    slices = slice_count(shards, sum(aligned(count * itemsize) for _, count, itemsize in counted))
    more = slices if slices > slice_count(shards) else None
    return StateLayout(tuple(tensors), offset, tuple(trained), pieces_of(counted, slices), more)
