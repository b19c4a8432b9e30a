"""A candidate that is loaded, and the operands on which it runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslc.runtime.artifact.targets import capability_of
from dslc.runtime.cuda.binding import Binder
from dslc.runtime.cuda.graphs.graph import Placed
from dslc.runtime.cuda.modules import Modules
from dslc.runtime.cuda.owned import Owned
from dslc.tune.operands import Guarded, guarded

if TYPE_CHECKING:
    from dslc.runtime.artifact.plan import Buffer, Plan
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.libraries.libraries import Libraries
    from dslc.tune.candidate import Candidate


@dataclass(frozen=True, slots=True)
class Machine:
    """Where candidates run. ``target``: of their code; ``through_ptx``: the driver compiles it for the device."""

    device: Device
    stream: Any
    libraries: Libraries
    target: str
    through_ptx: bool


class Steps(Binder):
    """Binds a plan whose ports and scratch blocks lie anywhere. ``places``: where each begins, (region, offset), ->
    address. A buffer lies in one of them."""

    def __init__(
        self, plan: Plan, places: Mapping[tuple[str, int], int], modules: Modules, libraries: Libraries
    ) -> None:
        super().__init__(plan, {"io": 0, "work": 0}, modules, libraries, "candidate")
        self._places, self._starts = places, sorted(places)

    def address(self, index: int) -> int:
        buffer = self._plan.buffers[index]
        start = self._starts[bisect_right(self._starts, (buffer.region, buffer.offset)) - 1]
        assert start[0] == buffer.region, "a buffer lies in a port or in scratch memory"
        return self._places[start] + buffer.offset - start[1]


class Set:
    """One set of operands: each input and each result of the problem between red zones."""

    def __init__(self, device: Device, owned: Owned, plan: Plan, stream: Any) -> None:
        self.inputs = [
            guarded(device, owned, f"input {i}", plan.buffers[port.buffer].bytes, stream)
            for i, port in enumerate(plan.inputs)
        ]
        self.results = [
            guarded(device, owned, f"result {i}", plan.buffers[port.buffer].bytes, stream)
            for i, port in enumerate(plan.outputs)
        ]

    def places(self, plan: Plan) -> dict[tuple[str, int], int]:
        """The addresses of a candidate's ports."""
        ports = zip((*plan.inputs, *plan.outputs), (*self.inputs, *self.results), strict=True)
        return {(plan.buffers[p.buffer].region, plan.buffers[p.buffer].offset): where.address for p, where in ports}


def blocks_of(buffers: Sequence[Buffer]) -> list[tuple[int, int]]:
    """The parts of the work region that buffers cover, (start, end): those that overlap are one block, as in the body
    of a loop, where a buffer may be a part of another."""
    found: list[tuple[int, int]] = []
    for start, size in sorted((buffer.offset, buffer.bytes) for buffer in buffers if buffer.region == "work"):
        if found and (start < found[-1][1] or start == found[-1][0]):
            found[-1] = found[-1][0], max(found[-1][1], start + size)
        else:
            found.append((start, start + size))
    return found


class Loaded:
    """A candidate's plan, code and scratch memory."""

    def __init__(self, machine: Machine, candidate: Candidate) -> None:
        device = machine.device
        self.owned = Owned(device)
        self.plan = candidate.plan
        capability = capability_of(machine.target)
        assert capability is not None, f"{machine.target} is a GPU"
        self._modules = Modules(device, candidate.code, capability, machine.through_ptx)
        self.owned.on_close(self._modules.close)
        self._libraries = machine.libraries
        self.scratch: dict[tuple[str, int], Guarded] = {
            ("work", start): guarded(device, self.owned, f"scratch {i}", end - start, machine.stream)
            for i, (start, end) in enumerate(blocks_of(self.plan.buffers))
        }

    def calls(self, operands: Set) -> list[Placed]:
        """The steps of one call on a set."""
        scratch = {place: block.address for place, block in self.scratch.items()}
        binder = Steps(self.plan, {**operands.places(self.plan), **scratch}, self._modules, self._libraries)
        return [item for instruction in self.plan.instructions for item in binder.placed(instruction)]
