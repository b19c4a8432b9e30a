"""One problem on the GPU: its operands, its reference result, and the candidates that were found right."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import OutOfMemory
from dslc.runtime.artifact.instructions import Gemm, GraphOp, Instruction
from dslc.runtime.artifact.targets import capability_of
from dslc.runtime.cuda.arguments import Arguments
from dslc.runtime.cuda.binding import Binder
from dslc.runtime.cuda.graph import Bulk, Launch, Placed
from dslc.runtime.cuda.modules import Modules
from dslc.runtime.cuda.owned import Owned
from dslc.tune.checking import Difference, combined, damage
from dslc.tune.operands import PATTERN, UNWRITTEN, Fountain, Guarded, guarded, read, room
from dslc.tune.timing import Flush, Turns, hopeful

if TYPE_CHECKING:
    from dslc.runtime.artifact.plan import Buffer, Plan
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.libraries.libraries import Libraries
    from dslc.tune.candidate import Candidate

_FEWEST_SETS, _MOST_SETS = 2, 32  # of operands; each is used by one call of a graph
_LONG: Final = 5e-4  # seconds of a graph next to which those of an event's record are small
_LOOKS: Final = 3  # calls that give a first idea of a candidate's time
_BUSY: Final = 16  # writes of the memory of a flush before such a call: some 0.5 ms
_HOPELESS: Final = 2.0  # times the least first time of a provider: such candidates are timed no further
_HEADROOM: Final = 0.8  # part of the free memory that sets may take; the rest is for workspaces
#: A comparison's blocks, threads, and results per block, as in ``dslc.compiler.codegen.cuda.compare``.
Comparer = Callable[[str], tuple[Any, int, int]]
_RESULTS: Final = 4


class Refusal(Exception):
    """A problem that cannot be measured; the text says why."""


class _Placed(Binder):
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


class _Accepted:
    """A candidate that was loaded: its plan, its code and its scratch memory."""

    def __init__(self, bench: Bench, candidate: Candidate) -> None:
        device = bench.device
        self.owned = Owned(device)
        self.plan = candidate.plan
        capability = capability_of(bench.target)
        assert capability is not None, f"{bench.target} is a GPU"
        self._modules = Modules(device, candidate.code, capability, bench.through_ptx)
        self.owned.on_close(self._modules.close)
        self._libraries = bench.libraries
        self.scratch: dict[tuple[str, int], Guarded] = {
            ("work", start): guarded(device, self.owned, f"scratch {i}", end - start, bench.stream)
            for i, (start, end) in enumerate(blocks_of(self.plan.buffers))
        }

    def calls(self, operands: Set) -> list[Placed]:
        """The steps of one call on a set."""
        scratch = {place: block.address for place, block in self.scratch.items()}
        binder = _Placed(self.plan, {**operands.places(self.plan), **scratch}, self._modules, self._libraries)
        return [item for instruction in self.plan.instructions for item in binder.placed(instruction)]


class Bench:
    """Opened with the reference's candidate; ``close`` gives everything back. The device's context is current.

    ``comparer(dtype)``: the function of the comparing kernel, its blocks and threads. ``deterministic``: a candidate
    must give the same bits when it is run again.
    """

    def __init__(
        self, device: Device, stream: Any, libraries: Libraries, comparer: Comparer, target: str, through_ptx: bool,
        reference: Candidate, deterministic: bool,
    ) -> None:  # fmt: skip
        self._deterministic = deterministic
        self.device, self.stream, self.libraries, self.target = device, stream, libraries, target
        self.through_ptx = through_ptx
        self._comparer = comparer
        self._accepted: dict[str, _Accepted] = {}
        self._seen: dict[str, float] = {}  # seconds of one call, about
        self._owned = Owned(device)
        with self._owned:
            self._open(reference)

    def _open(self, reference: Candidate) -> None:
        device, owned, plan = self.device, self._owned, reference.plan
        owned.on_close(device.pool.release_cached)
        owned.on_close(self._let_go_of_accepted)
        self._plan = plan
        self._flush = Flush(device, owned)
        self._events = [device.driver.event(owned.noted, timing=True) for _ in range(2)]
        self._first = Set(device, owned, plan, self.stream)
        results = self._first.results
        self._kept = [guarded(device, owned, each.name, each.size, self.stream) for each in results]
        again = results if self._deterministic else []
        self._before = [guarded(device, owned, each.name, each.size, self.stream) for each in again]
        largest = max((each.size for each in self._first.inputs), default=0)
        self._spare = guarded(device, owned, "copy of an input", largest, self.stream)
        self._fountain, self._operands = Fountain(device, owned, self.stream), reference.operands
        self._checks = reference.checks
        self._parts = guarded(device, owned, "parts", 8 * _RESULTS * self._comparer("f32")[1], self.stream)
        device.driver.synchronise(self.stream)
        loaded = _Accepted(self, reference)
        try:
            wrong = self._run(loaded)
            if wrong is not None:
                raise Refusal(f"the reference {wrong}")
            if self._checks.finite:
                self._refuse_infinite()
            self._keep(self._kept)
        finally:
            loaded.owned.close()

    def _refuse_infinite(self) -> None:
        """Compares the results of the last call with zeros: elements that are not finite are strange there."""
        for number, (port, result, zeros) in enumerate(zip(self._plan.outputs, self._first.results, self._kept)):
            self.device.driver.fill(zeros.address, 0, 1, zeros.size, self.stream)
            strange = self._difference(self._plan.buffers[port.buffer].dtype, result, zeros).strange
            if strange:
                raise Refusal(f"{strange} elements of its result {number} are not finite for random values")

    def _keep(self, copies: Sequence[Guarded]) -> None:
        """Copy the results of the last call."""
        for copy, result in zip(copies, self._first.results):
            self.device.driver.copy(copy.address, result.address, result.size, self.stream)
        self.device.driver.synchronise(self.stream)

    def _run(self, loaded: _Accepted) -> str | None:
        """Run one call on the first set; how it wrote where it must not, or None. An earlier candidate may have
        written anywhere, so inputs and zones are set again."""
        driver = self.device.driver
        for i, (port, operand, where) in enumerate(zip(self._plan.inputs, self._operands, self._first.inputs)):
            self._fountain.fill(where, self._plan.buffers[port.buffer].dtype, operand, i)
            where.guard(self.device, self.stream)
        for result in self._first.results:
            result.guard(self.device, self.stream)
        for block in (*self._first.results, *loaded.scratch.values()):
            driver.fill(block.address, UNWRITTEN, 1, block.size, self.stream)
        for _, step in loaded.calls(self._first):
            step.submit(self.device, self.stream)  # type: ignore[union-attr]
        driver.synchronise(self.stream)
        blocks = (*self._first.inputs, *self._first.results, *loaded.scratch.values())
        outside = damage([block.zones(self.device, self.stream) for block in blocks], PATTERN)
        return self._changed_input() if outside is None else outside

    def _changed_input(self) -> str | None:
        """Which input the call changed, or None."""
        for i, (port, operand, where) in enumerate(zip(self._plan.inputs, self._operands, self._first.inputs)):
            before = replace(self._spare, size=where.size)
            self._fountain.fill(before, self._plan.buffers[port.buffer].dtype, operand, i)
            if not self._same_bits(where, before):
                return f"writes into {where.name}"
        return None

    def _same_bits(self, a: Guarded, b: Guarded) -> bool:
        """Whether two buffers of one size hold the same bits. Compared as integers, so that each nan is itself."""
        apart = self._difference("i32" if a.size % 4 == 0 else "u8", a, b)
        return not apart.most and not apart.strange

    def check(self, name: str, candidate: Candidate) -> tuple[float, str | None]:
        """Load and run a candidate: (its error, why it is refused). It is kept for ``time`` unless it is refused.
        OutOfMemory if its workspace does not fit, and other DslcErrors of a kernel that fails."""
        loaded = _Accepted(self, candidate)
        try:
            why = self._run(loaded)
            error = 0.0
            for number, (port, result, kept) in enumerate(zip(self._plan.outputs, self._first.results, self._kept)):
                if why is None:
                    buffer = self._plan.buffers[port.buffer]
                    apart = self._difference(buffer.dtype, result, kept)
                    error = max(error, apart.error)
                    why = apart.refusal(buffer.dtype, _tf32(candidate.plan.instructions), self._checks.rounds)
                    if why is not None and len(self._kept) > 1:
                        why = f"{why} in result {number}"
            if why is None and self._deterministic:
                why = self._repeated(loaded)
            if why is None:
                self._seen[name] = min(self._look(loaded) for _ in range(_LOOKS))
                self._accepted[name] = loaded
            return error, why
        finally:
            if name not in self._accepted:
                loaded.owned.close()

    def _repeated(self, loaded: _Accepted) -> str | None:
        """Run it again on the same inputs: why it is refused, or None."""
        self._keep(self._before)
        why = self._run(loaded)
        if why is None and not all(map(self._same_bits, self._first.results, self._before)):
            why = "gives other bits when run again"
        return why

    def _look(self, loaded: _Accepted) -> float:
        """Seconds of one call on the first set. The GPU writes other data while the call is submitted: otherwise it
        would wait for the host, which takes up to 0.2 ms to submit a library's call."""
        driver, (begin, end) = self.device.driver, self._events
        for _ in range(_BUSY):
            self._flush.enqueue(self.stream)
        driver.record(begin, self.stream)
        for _, step in loaded.calls(self._first):
            step.submit(self.device, self.stream)  # type: ignore[union-attr]
        driver.record(end, self.stream)
        driver.synchronise(self.stream)
        return driver.elapsed(begin, end) / 1000

    def _difference(self, dtype: str, result: Guarded, kept: Guarded) -> Difference:
        function, blocks, threads = self._comparer(dtype)
        from dslc.runtime.artifact.dtypes import ITEMSIZE

        count = result.size // ITEMSIZE[dtype]
        values = [("pointer", x.address) for x in (result, kept, self._parts)]
        arguments = Arguments([*values, ("i64", count)])
        launch = Launch(function, (blocks, 1, 1), (threads, 1, 1), 0, arguments, "comparison")
        launch.submit(self.device, self.stream)
        raw = read(self.device, self._parts.address, 8 * _RESULTS * blocks, self.stream)
        return combined(raw.view(np.float64).reshape(blocks, _RESULTS).tolist(), count)

    def time(self, seconds: float, begins: Callable[[str], None]) -> dict[str, list[float]]:
        """The seconds of one call of each accepted candidate in each round; of a hopeless one those of one call."""
        owned = Owned(self.device)
        try:
            least = min(self._seen.values())
            wanted = min(_MOST_SETS, max(_FEWEST_SETS, math.ceil(_LONG / least) if least else _MOST_SETS))
            sets = [self._first, *self._more_sets(wanted - 1, owned)]
            graphs = {}
            for name in hopeful(self._seen, _HOPELESS):
                calls = self._accepted[name].calls
                placed: list[Placed] = list(itertools.chain.from_iterable(calls(each) for each in sets))
                graphs[name] = Bulk(self.device, placed, self.stream, owned), len(sets)
            turns = Turns(self.device, self.stream, owned, self._flush, graphs, begins)
            turns.run(seconds)
            return {**{name: [seconds] for name, seconds in self._seen.items()}, **turns.rounds}
        finally:
            self.device.driver.synchronise(self.stream)
            owned.close()

    def _more_sets(self, wanted: int, owned: Owned) -> list[Set]:
        """Further sets with the same content, as many of them as fit into the memory."""
        plan, device = self._plan, self.device
        need = room([plan.buffers[port.buffer] for port in (*plan.inputs, *plan.outputs)])
        fitting = int(_HEADROOM * device.pool.available()) // need
        sets: list[Set] = []
        for _ in range(min(wanted, fitting)):
            try:
                sets.append(Set(device, owned, plan, self.stream))
            except OutOfMemory:
                break
            for source, target in zip(self._first.inputs, sets[-1].inputs):
                device.driver.copy(target.address, source.address, source.size, self.stream)
        device.driver.synchronise(self.stream)
        return sets

    def _let_go_of_accepted(self) -> None:
        while self._accepted:
            self._accepted.popitem()[1].owned.close()

    def close(self) -> None:
        """Give everything back to the driver."""
        self._owned.close()


def _tf32(instructions: Sequence[Instruction]) -> bool:
    """Whether a library rounds factors to TF32; own kernels say so in the node, so the reference does the same."""
    for instruction in instructions:
        if isinstance(instruction, Gemm) and instruction.compute == "tf32":
            return True
        if isinstance(instruction, GraphOp) and instruction.attrs.get("compute") == "tf32":
            return True
    return False
