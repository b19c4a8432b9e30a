"""An update whose parameters are cut into pieces, each updated like a parameter of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dslc.compiler.ir.build import SHARD, TrainSpec
from dslc.compiler.ir.graph import Input, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import TensorType
from dslc.runtime.artifact.slices import Piece, piece_name


@dataclass(frozen=True)
class Cut:
    """``pieces``: of each parameter that is cut. ``of_sums``: the update reads their sums in pieces, too."""

    pieces: Mapping[str, tuple[Piece, ...]]
    of_sums: bool

    def names(self, name: str) -> list[str]:
        """The names of a parameter's pieces; its own if it is not cut."""
        return [piece_name(name, piece) for piece in self.pieces.get(name, ())] or [name]

    def sum_names(self, name: str) -> list[str]:
        """The inputs for the sums of these pieces, by the number of their first element: ``shard.w.0, shard.w.16``."""
        return [f"{SHARD}{name}.{piece.start}" for piece in self.pieces.get(name, ())] or [SHARD + name]

    def section(self, train: TrainSpec) -> TrainSpec:
        """The section with pieces instead of the parameters that are cut."""
        [update] = train.updates
        params = [dataclasses.replace(spec, name=name) for spec in train.params for name in self.names(spec.name)]
        trained = [name for whole in update.trained for name in self.names(whole)]
        update = dataclasses.replace(update, trained=tuple(trained))
        return dataclasses.replace(train, updates=(update,), params=tuple(params))

    def inputs(self, train: TrainSpec, whole: Mapping[str, Input]) -> dict[str, Input]:
        """The inputs of an update with pieces instead of these parameters, of their slots, and of their sums if it
        reads these in pieces."""
        [update] = train.updates
        found: dict[str, Input] = {}
        for key, source in whole.items():
            name = key.removeprefix(SHARD)
            cut = self.of_sums and key != name and name in self.pieces
            found |= self._parts(source, name, self.sum_names(name)) if cut else {key: source}
        for name in self.pieces:
            for slot in ("", *(f".{each}" for each in train.slots(update, name))):
                source = found.pop(name + slot)
                found |= self._parts(source, name, [part + slot for part in self.names(name)])
        return found

    def _parts(self, source: Input, name: str, named: Sequence[str]) -> dict[str, Input]:
        """Inputs for the pieces of a tensor that is cut like the parameter ``name``."""
        types = [TensorType(source.value.type.dtype, (piece.stop - piece.start,)) for piece in self.pieces[name]]
        return {part: Input(part, source.kind, type, source.span) for part, type in zip(named, types, strict=True)}

    def values(self, gradients: Mapping[str, Value]) -> dict[str, Value]:
        """The gradients of parameters and of pieces, by name, from those of whole parameters."""
        return {part: value for name, whole in gradients.items() for part, value in self._values(name, whole)}

    def _values(self, name: str, whole: Value) -> Iterator[tuple[str, Value]]:
        if name not in self.pieces:
            yield name, whole
            return
        b = Builder(name=name, phase=Phase.UPDATE)
        flat = b(OPS["reshape"], whole, shape=(prod(whole.type.ints),))
        for piece in self.pieces[name]:
            part = b(OPS["slice"], flat, starts=(piece.start,), stops=(piece.stop,), steps=(1,))
            yield piece_name(name, piece), part

    def flags(self, names: Sequence[str], of_pieces: Sequence[Value]) -> list[Value]:
        """A flag b1[] for each whole parameter: whether one of its pieces has set its own."""
        each = iter(of_pieces)
        return [_any([next(each) for _ in self.names(name)]) for name in names]


def _any(flags: Sequence[Value]) -> Value:
    found, *more = flags
    for flag in more:
        found = Builder(name="nonfinite", phase=Phase.UPDATE)(OPS["logical_or"], found, flag)
    return found
