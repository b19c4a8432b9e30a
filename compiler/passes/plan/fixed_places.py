"""Places that do not depend on lifetimes: those of a program's inputs and results, and of new values of states."""

from __future__ import annotations

from dataclasses import dataclass

from dslc.compiler.ir.build import SHARD, Build
from dslc.compiler.ir.graph import Input, Kind, Node, Value
from dslc.compiler.ir.program import TRAINING, Move, Place, Program, aligned
from dslc.compiler.ir.types import TensorType
from dslc.compiler.passes.plan.step_block import scalar_offsets
from dslc.compiler.passes.plan.value_uses import ValueUses
from dslc.runtime.artifact.reserved import LOSS_SUM, OF_STATE, STEP_BLOCK


@dataclass(frozen=True, slots=True)
class Update:
    """The new value of a state, and the state."""

    state: Input
    value: Value


class FixedPlaces:
    """``places``: by content. ``results``: where each result lies at the end; ``moves`` copy those that lie elsewhere.
    ``late_updates`` could not be computed in place, so moves must follow. ``io_bytes``, ``constant_bytes`` (at the
    start of the work region) and ``prepared_bytes`` are the sizes of what is placed; ``carried``: the context region's
    tensors."""

    def __init__(self, program: Program, build: Build, uses: ValueUses) -> None:
        self.graph, self.build, self.uses = program.graph, build, uses
        self.places: dict[Value, Place] = {}
        self.io_bytes = STEP_BLOCK
        self.constant_bytes = self.prepared_bytes = 0
        self.carried: list[tuple[str, TensorType, int]] = []
        self.results: dict[str, Place] = {}
        self.moves: list[Move] = []
        self._place_inputs(in_context=program.entry not in TRAINING)
        self._place_results()
        self.late_updates: list[Update] = []
        self._place_updates()

    def place(self, value: Value) -> Place:
        """The place of a value whose content has one."""
        of_content, first = self.places[self.uses.content[value]], self.uses.first_byte[value]
        return Place(of_content.region, of_content.offset + first) if first else of_content

    def is_in_state(self, value: Value) -> bool:
        """Whether a value lies in a region that lasts from run to run."""
        place = self.places.get(self.uses.content[value])
        return place is not None and place.region in ("state", "context", "prepared")

    def _place_inputs(self, *, in_context: bool) -> None:
        """The step block's scalars, data in io, constants in work, and what lasts. ``in_context``: the entry's states
        lie in the context region."""
        scalars = scalar_offsets([i.name for i in self.graph.inputs if i.kind is Kind.SCALAR])
        for source in self.graph.inputs:
            match source.kind:
                case Kind.SCALAR:
                    assert source.value.type.rank == 0, f"the scalar {source.name} is {source.value.type}"
                    self.places[source.value] = Place("io", scalars[source.name])
                case Kind.DATA:
                    self.places[source.value] = self._next_in_io(source.value)
                case Kind.CONSTANT:
                    self.places[source.value] = Place("work", self.constant_bytes)
                    self.constant_bytes += aligned(source.value.type.bytes)
                case Kind.PREPARED:
                    pass
                case Kind.STATE:
                    if not in_context:
                        self._place_in_state(OF_STATE + source.name, source.value)
                case _:
                    self._place_in_state(source.name, source.value)
        self._place_prepared()
        if in_context:
            self._place_context()

    def _next_in_io(self, value: Value) -> Place:
        place = Place("io", self.io_bytes)
        self.io_bytes += aligned(value.type.bytes)
        return place

    def _place_in_state(self, name: str, value: Value) -> None:
        """Where the build has assigned its bytes."""
        assert name in self.build.state, f"{name} is not part of the state"
        self.places[value] = Place("state", self.build.state[name])

    def _place_prepared(self) -> None:
        """What ``prepare`` computes, in the order of names, so that all programs agree."""
        for source in self._by_name(Kind.PREPARED):
            self.places[source.value] = Place("prepared", self.prepared_bytes)
            self.prepared_bytes += aligned(source.value.type.bytes)

    def _place_context(self) -> None:
        """The states that a caller carries from run to run, in the order of names."""
        end = 0
        for source in self._by_name(Kind.STATE):
            self.places[source.value] = Place("context", end)
            self.carried.append((source.name, source.value.type, end))
            end += aligned(source.value.type.bytes)

    def _by_name(self, kind: Kind) -> list[Input]:
        return sorted((i for i in self.graph.inputs if i.kind is kind), key=lambda i: i.name)

    def _place_results(self) -> None:
        """Each in io: computed there, or moved there at the end from a state or a constant."""
        for name, value in sorted(self.graph.outputs.items(), key=self._order_of_result):
            content = self.uses.content[value]
            is_taken = name.startswith(SHARD) and content in self.places  # each sum of shards has bytes of its own
            if content not in self.places:
                self.places[content] = self._next_in_io(content)
            place = self.place(value)
            if is_taken or place.region != "io":
                target = self._next_in_io(value)
                self.moves.append(Move(value.type, place, target, name))
                place = target
            self.results[name] = place

    def _order_of_result(self, output: tuple[str, Value]) -> tuple[int, str]:
        """What shards give follows other results: gradients as their parameters in the state, buffers, and the loss;
        what has 16 bits before all else."""
        name, value = output
        of = name.removeprefix(SHARD)
        if of == name:
            return 0, ""
        if value.type.dtype.itemsize == 2:
            return 1, of
        return (2 if of in self.build.pieces else 4 if of == LOSS_SUM else 3), of

    def _place_updates(self) -> None:
        """Places new values over their states if all other readers of the old value run before."""
        for state, value in self.graph.updates:
            content = self.uses.content[value]
            if content is state.value:
                continue
            assert value.type.bytes == content.type.bytes, f"the new {state.name} is a piece of a tensor"
            if content not in self.places and self._is_computed_over(state.value, content):
                self.places[content] = self.places[state.value]
            else:
                self.late_updates.append(Update(state, value))

    def _is_computed_over(self, old: Value, new: Value) -> bool:
        node = new.producer
        assert isinstance(node, Node)
        return self.uses.can_overwrite(node, old, new)
