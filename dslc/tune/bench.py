"""One problem on the GPU: its operands, its reference result, and the candidates that were found right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from dslc.base.errors import OutOfMemory
from dslc.runtime.artifact.instructions import Gemm, GraphOp, Instruction
from dslc.runtime.cuda.graphs.graph import Bulk, Placed
from dslc.runtime.cuda.owned import Owned
from dslc.tune.checking import Difference, limits_of
from dslc.tune.comparison import Comparer, Comparison, Pair, same_bits
from dslc.tune.loaded import Loaded, Machine, Set
from dslc.tune.operands import UNWRITTEN, Fountain, Guarded, guarded, room
from dslc.tune.timing import Flush, Turns, entrants, provider_of

if TYPE_CHECKING:
    from dslc.tune.candidate import Candidate

_FEWEST_SETS, _MOST_SETS = 2, 32  # of operands; each is used by one call of a graph
_LONG: Final = 5e-4  # seconds next to which those of an event's record are small
_BUSY: Final = 8  # writes of the memory of a flush before a timed call: some 0.25 ms
#: Candidates that take so many times the least first time of their provider are timed no further. Of calls as long as
#: ``_LONG``, single times are nearly as good as rounds, in which such calls would take much of the budget.
_HOPELESS, _HOPELESS_LONG = 2.0, 1.2
#: Seconds by which the first call of a candidate may be longer than others: libraries load their code then.
_LOADING: Final = 0.01
#: A call may take so many times the reference's seconds, and no less than so many seconds, before it counts as hanging.
_HANGING, _SHORTEST = 100.0, 2.0
_HEADROOM: Final = 0.8  # part of the free memory that sets may take; the rest is for workspaces


class Refusal(Exception):
    """A problem that cannot be measured; the text says why."""


@dataclass(frozen=True, slots=True)
class Checked:
    """``error``: the largest difference from the reference. ``refused``: why it is wrong, or None. ``seconds``: of one
    call, about. ``outdone``: it takes so much longer than others that nobody looked at its results."""

    error: float
    refused: str | None
    seconds: float
    outdone: bool = False


@dataclass(frozen=True, slots=True)
class _Right:
    """A candidate that was found right. ``workspace``: its bytes; ``seconds``: of one call, about."""

    loaded: Loaded
    workspace: int
    seconds: float


class Bench:
    """Opened with the reference's candidate; ``close`` gives everything back. The device's context is current.

    ``comparer(dtype)``: the function of the comparing kernel, its blocks and threads. ``deterministic``: a candidate
    must give the same bits when it is run again. ``runs``: called with the seconds that the next step of a check may
    take: a call of the candidate, or a look at its results.
    """

    def __init__(
        self, machine: Machine, comparer: Comparer, reference: Candidate, deterministic: bool,
        runs: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._deterministic, self._machine, self._runs = deterministic, machine, runs
        self.device, self.stream = machine.device, machine.stream
        self._accepted: dict[str, _Right] = {}
        self._damaged = True  # inputs and zones may hold anything
        self._owned = Owned(self.device)
        with self._owned:
            self._open(reference, comparer)

    def _open(self, reference: Candidate, comparer: Comparer) -> None:
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
        self._comparison = Comparison(device, owned, self.stream, comparer)
        self._dtypes = [plan.buffers[port.buffer].dtype for port in plan.outputs]
        loaded = Loaded(self._machine, reference)
        try:
            self._prepare()
            self._reference = self._run(loaded, loaded.calls(self._first))
            _, wrong = self._examined(loaded, [])
            if wrong is not None:
                raise Refusal(f"the reference {wrong}")
            if self._checks.finite:
                self._refuse_infinite()
            self._keep(self._kept)
            self._damaged = False
        finally:
            loaded.owned.close()

    def _refuse_infinite(self) -> None:
        """Compares the results of the last call with zeros: elements that are not finite are strange there."""
        for zeros in self._kept:
            self.device.driver.fill(zeros.address, 0, 1, zeros.size, self.stream)
        triples = zip(self._dtypes, self._first.results, self._kept, strict=True)
        found, _ = self._comparison.of([Pair(*each) for each in triples])
        for number, each in enumerate(found):
            if each.strange:
                raise Refusal(f"{each.strange} elements of its result {number} are not finite for random values")

    def _keep(self, copies: Sequence[Guarded]) -> None:
        """Copy the results of the last call."""
        for copy, result in zip(copies, self._first.results):
            self.device.driver.copy(copy.address, result.address, result.size, self.stream)

    def _prepare(self) -> None:
        """Set inputs and zones again, unless a check has found them untouched since."""
        if self._damaged:
            for i, (port, operand, where) in enumerate(zip(self._plan.inputs, self._operands, self._first.inputs)):
                self._fountain.fill(where, self._plan.buffers[port.buffer].dtype, operand, i)
                where.guard(self.device, self.stream)
            for result in self._first.results:
                result.guard(self.device, self.stream)
        self._damaged = True

    def _run(self, loaded: Loaded, steps: Sequence[Placed]) -> float:
        """Run one call on the first set; its seconds. The GPU writes other data while the call is submitted: otherwise
        it would wait for the host, which takes up to 0.2 ms to submit a library's call."""
        driver, (begin, end) = self.device.driver, self._events
        for block in (*self._first.results, *loaded.scratch.values()):
            driver.fill(block.address, UNWRITTEN, 1, block.size, self.stream)
        for _ in range(_BUSY):
            self._flush.enqueue(self.stream)
        driver.record(begin, self.stream)
        for _, step in steps:
            step.submit(self.device, self.stream)  # type: ignore[union-attr]
        driver.record(end, self.stream)
        driver.synchronise(self.stream)
        return driver.elapsed(begin, end) / 1000

    def _examined(self, loaded: Loaded, pairs: Sequence[Pair]) -> tuple[list[Difference], str | None]:
        """The difference of each pair, and how the candidate wrote where it must not, or None."""
        inputs = self._first.inputs
        same = []
        for i, (port, operand, where) in enumerate(zip(self._plan.inputs, self._operands, inputs)):
            before = replace(self._spare, size=where.size)
            dtype = self._plan.buffers[port.buffer].dtype
            same.append(same_bits(where, before, partial(self._fountain.fill, before, dtype, operand, i)))
        blocks = (*inputs, *self._first.results, *loaded.scratch.values())
        found, outside = self._comparison.of([*pairs, *same], blocks)
        for where, apart in zip(inputs, found[len(pairs) :], strict=True):
            if outside is None and not apart.same:
                outside = f"writes into {where.name}"
        return found[: len(pairs)], outside

    def check(self, name: str, candidate: Candidate, workspace: int) -> Checked:
        """Load a candidate and run it twice. It is kept for ``time`` if it is right. One of a provider that has a right
        one, which takes much less time and no more workspace, is run once. OutOfMemory if its workspace does not fit,
        and other DslcErrors of a kernel that fails."""
        loaded = Loaded(self._machine, candidate)
        try:
            steps = loaded.calls(self._first)
            self._prepare()
            self._runs(self._longest)
            seconds = self._run(loaded, steps)
            if self._outdone(name, workspace, seconds):
                return Checked(0.0, None, seconds, outdone=True)
            self._keep(self._before)
            self._runs(self._longest)
            seconds = min(seconds, self._run(loaded, steps))
            self._runs(self._longest)
            error, why = self._judged(loaded, _tf32(candidate.plan.instructions))
            if why is None:
                self._accepted[name] = _Right(loaded, workspace, seconds)
                self._damaged = False
            return Checked(error, why, seconds)
        finally:
            if name not in self._accepted:
                loaded.owned.close()

    def accept(self, name: str, candidate: Candidate, workspace: int, seconds: float) -> None:
        """Load a candidate that was found right before, by another process."""
        loaded = Loaded(self._machine, candidate)
        with loaded.owned:
            loaded.calls(self._first)  # libraries build their plans
        self._accepted[name] = _Right(loaded, workspace, seconds)

    @property
    def _longest(self) -> float:
        """The seconds that a call may take."""
        return max(_SHORTEST, _HANGING * self._reference)

    def _outdone(self, name: str, workspace: int, seconds: float) -> bool:
        """Whether another one of its provider takes much less time than a first call, and no more workspace."""
        return any(
            provider_of(other) == provider_of(name)
            and right.workspace <= workspace
            and seconds > _HOPELESS * right.seconds + _LOADING
            for other, right in self._accepted.items()
        )

    def _judged(self, loaded: Loaded, tf32: bool) -> tuple[float, str | None]:
        """The error of the last call, and why it is wrong, or None."""
        results = self._first.results
        limits = [limits_of(dtype, tf32, self._checks.rounds) for dtype in self._dtypes]
        values = zip(self._dtypes, results, self._kept, limits, strict=True)
        again = [same_bits(*each) for each in zip(results, self._before)]
        found, why = self._examined(loaded, [*(Pair(*each) for each in values), *again])
        if why is not None:
            return 0.0, why
        apart = found[: len(results)]
        for number, (limit, each) in enumerate(zip(limits, apart, strict=True)):
            why = each.refusal(limit)
            if why is not None:
                why = f"{why} in result {number}" if len(results) > 1 else why
                break
        if why is None and not all(each.same for each in found[len(results) :]):
            why = "gives other bits when run again"
        return max((each.error for each in apart), default=0.0), why

    def time(self, seconds: float, begins: Callable[[str], None]) -> dict[str, list[float]]:
        """The seconds of one call of each accepted candidate in each round; of a hopeless one those of one call."""
        owned = Owned(self.device)
        seen = {name: right.seconds for name, right in self._accepted.items()}
        try:
            self._prepare()
            self._damaged = False
            least = min(seen.values())
            wanted = min(_MOST_SETS, max(_FEWEST_SETS, math.ceil(_LONG / least) if least else _MOST_SETS))
            sets = [self._first, *self._more_sets(wanted - 1, owned)]
            graphs = {}
            for name in entrants(seen, _HOPELESS if least < _LONG else _HOPELESS_LONG):
                calls = self._accepted[name].loaded.calls
                placed: list[Placed] = list(itertools.chain.from_iterable(calls(each) for each in sets))
                graphs[name] = Bulk(self.device, placed, self.stream, owned), len(sets)
            turns = Turns(self.device, self.stream, owned, self._flush, graphs, begins)
            turns.run(seconds)
            return {**{name: [each] for name, each in seen.items()}, **turns.rounds}
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
            self._accepted.popitem()[1].loaded.owned.close()

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
