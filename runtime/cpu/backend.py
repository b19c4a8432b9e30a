"""The backend that runs a session on this machine's CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import EnvironmentFault
from dslc.runtime.artifact.dtypes import filled
from dslc.runtime.artifact.header_schema import PREPARE, WRITERS
from dslc.runtime.artifact.instructions import Kernel, Reference
from dslc.runtime.cpu.executor import BoundPlan
from dslc.runtime.cpu.reference_step import Meanings
from dslc.runtime.session.backend import OnDevice, Sums
from dslc.runtime.session.calls.host_sums import HostSums
from dslc.runtime.session.context import Loaded
from dslc.runtime.session.host_memory import available_bytes, block, ensure_free, out_of_memory
from dslc.runtime.session.memory_need import named_buffers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.artifact.interface import Carried
    from dslc.runtime.artifact.share import Share
    from dslc.runtime.cpu.objects import Objects
    from dslc.runtime.session.session import MeaningsSource


class HostState:
    """The state region, or a context, in host memory."""

    def __init__(self, size: int) -> None:
        self.block = block(size)

    def read(self, offset: int, out: NDArray[Any]) -> None:
        np.copyto(out, self._view(offset, out))

    def write(self, offset: int, values: NDArray[Any]) -> None:
        np.copyto(self._view(offset, values), values, casting="no")

    def fill(self, state: Carried) -> None:
        self.write(state.offset, filled(state.dtype, state.shape, state.start))

    def _view(self, offset: int, like: NDArray[Any]) -> NDArray[Any]:
        return self.block[offset : offset + like.nbytes].view(like.dtype).reshape(like.shape)


class HostBackend:
    """The state, and for each context its own io and work blocks with every program bound to them.

    Raises OutOfMemory R401 before any allocation if the memory does not suffice, EnvironmentFault R202 or R203 for code
    that this CPU cannot run.
    """

    name = "cpu"

    def __init__(
        self,
        artifact: Artifact,
        programs: Sequence[Loaded],
        contexts: int,
        source: MeaningsSource,
        share: Share | None = None,
    ) -> None:
        """``share``: of updates, if several processes train together."""
        meanings, objects = _meanings_of(programs, source), _objects_of(artifact, programs)
        table = artifact.header["state"]
        io, work = (max(p.io_bytes for p in programs), max(p.work_bytes for p in programs))
        carried = {p.carried: p.context_bytes for p in programs if p.context_bytes}
        prepared = max(p.prepared_bytes for p in programs)
        size, self._share = table["bytes"] if share is None else share.bytes, share
        with _reserved(size + prepared + contexts * (io + work + sum(carried.values())), table, programs):
            self.state = HostState(size)
            lasting = {"state": self.state.block, "prepared": block(prepared)}  # of all contexts
            self.contexts: list[dict[Loaded, BoundPlan]] = []
            self.blocks: list[dict[tuple[Carried, ...], HostState]] = []
            for _ in range(contexts):
                # Programs share memory: one runs at a time.
                regions = {**lasting, "io": block(io), "work": block(work)}
                kept = {layout: HostState(size) for layout, size in carried.items()}
                self.blocks.append(kept)
                self.contexts.append(
                    {
                        program: BoundPlan(
                            program.plan,
                            {**regions, "context": kept[program.carried].block} if program.carried else regions,
                            meanings,
                            artifact.blob,
                            name=str(program),
                            writes_state=program.entry in WRITERS,
                            prepares=program.entry == PREPARE,
                            objects=objects,
                        )
                        for program in programs
                    }
                )

    def check(self) -> None:
        """Does nothing: a CPU cannot be lost."""

    def adopt(self, call: str, inputs: Mapping[str, object]) -> Mapping[str, object]:
        return inputs

    def may_be_outside(self, ranged: Sequence[tuple[OnDevice, tuple[int, int]]]) -> bool:
        raise AssertionError("the CPU backend has no device arrays")

    def new_array(self, dtype: str, shape: Sequence[int]) -> OnDevice:
        raise AssertionError("the CPU backend has no device arrays")

    def sums(self, shard: Loaded, update: Loaded, count: int, each: int) -> Sums:
        return HostSums(shard.plan, update.plan, count, each, self._share, self.state)

    def facts(self) -> Mapping[str, str]:
        return {}

    def counters(self) -> Mapping[str, int]:
        return {}

    def keep_choices(self) -> int:
        return 0

    def close(self) -> None:
        self.state.block = block(0)
        self.contexts.clear()
        self.blocks.clear()


def _meanings_of(programs: Sequence[Loaded], source: MeaningsSource) -> Meanings | None:
    """The ops' meanings, requested only if a plan has a reference instruction. R203 if they are missing."""
    if not any(isinstance(i, Reference) for program in programs for i in program.plan.instructions):
        return None
    if source is None:
        raise EnvironmentFault(
            "R203",
            "the artifact is built with the reference provider, whose ops are not in the runtime",
            help="load it through `dslc.load` with the compiler installed, or build it with another provider",
        )
    return source if isinstance(source, Mapping) else source()


def _objects_of(artifact: Artifact, programs: Sequence[Loaded]) -> Objects | None:
    """The kernels of all programs for this CPU's level; None if no plan has a kernel. R202 if the artifact has no code
    for this CPU's level."""
    symbols = {i.symbol for p in programs for i in p.plan.instructions if isinstance(i, Kernel)}
    if not symbols:
        return None
    from dslc.runtime.cpu.objects import load_objects

    return load_objects({name: artifact.blob(name) for name in artifact.blobs("object")}, symbols)


@contextmanager
def _reserved(need: int, table: Mapping[str, Any], programs: Sequence[Loaded]) -> Iterator[None]:
    """Raise OutOfMemory R401 up front if ``need`` bytes are not free, and convert a MemoryError inside."""
    buffers = named_buffers(table, programs)
    ensure_free(need, buffers)
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(need, available_bytes(), buffers) from error
