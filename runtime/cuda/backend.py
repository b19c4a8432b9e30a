"""The backend that runs a session on a GPU."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from dslc.base.errors import DslcError, DslcWarning, OutOfMemory
from dslc.runtime.artifact.interface import Interface
from dslc.runtime.artifact.targets import Choice, capability_of
from dslc.runtime.cuda import faults
from dslc.runtime.cuda.arrays.arrays import DeviceArray, foreign_array, lies_on_gpu, new_array
from dslc.runtime.cuda.arrays.range_checks import RangeChecks
from dslc.runtime.cuda.context import LaneContext
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.device_state import DeviceState
from dslc.runtime.cuda.driver_bytes import code_of, driver_bytes
from dslc.runtime.cuda.executor import DevicePlan
from dslc.runtime.cuda.lane import Lane, idle_stream
from dslc.runtime.cuda.libraries.libraries import Libraries
from dslc.runtime.cuda.libraries.nccl import Nccl
from dslc.runtime.cuda.modules import Modules
from dslc.runtime.cuda.owned import Owned
from dslc.runtime.cuda.sizes import RUN_ONCE, fitting_batch, lane_sizes, session_bytes
from dslc.runtime.cuda.sums.gathering import Kernels
from dslc.runtime.cuda.sums.layout import Layout, flags_of, sums_of
from dslc.runtime.cuda.sums.peers import peers_of
from dslc.runtime.cuda.sums.shard_sums import DeviceSums
from dslc.runtime.cuda.sums.sum_sizes import SumSizes
from dslc.runtime.cuda.transfers import has_frames, has_own_slots
from dslc.runtime.session.host_memory import out_of_memory
from dslc.runtime.session.memory_need import named_buffers

if TYPE_CHECKING:
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.artifact.share import Share
    from dslc.runtime.cuda.sums.exchange import Transport
    from dslc.runtime.session.backend import OnDevice
    from dslc.runtime.session.calls.shard_sum import Exchange
    from dslc.runtime.session.context import Loaded

#: What a load leaves free: the larger of a part of the need and some bytes, by which what the driver takes may be more
#: than was foreseen.
_SPARE_PART: Final = 0.01
_SPARE_BYTES: Final = 64 << 20


class CudaBackend:
    """An artifact on a GPU: state, code, and for each context a lane with every program bound to it.

    ``bytes`` are those of the pool that it takes, ``driver_bytes`` about those that the driver takes next to them.
    ``choice``: the target that was taken, and whether the driver compiles its PTX, which is announced; so is the time
    that libraries take to choose algorithms. ``bulk``: None for the bulks of the plans; ``steps``: how many training
    steps a run may hold. Raises OutOfMemory R401 before anything is taken when it does not fit; whatever goes wrong
    later, nothing that was taken stays.
    """

    def __init__(
        self,
        artifact: Artifact,
        device: Device,
        choice: Choice,
        programs: Sequence[Loaded],
        contexts: int,
        bulk: int | None = None,
        steps: int = 1,
        share: Share | None = None,
    ) -> None:
        self.name = str(device)
        self._device = device
        table = artifact.header["state"]
        sizes = lane_sizes(programs, steps)
        prepared = max(p.prepared_bytes for p in programs)
        sums = sum(each.pooled for each in sums_of(programs, artifact.header["interface"]))
        size, self._share = table["bytes"] if share is None else share.bytes, share
        self._steps = sizes.steps
        self.bytes = session_bytes(size, sizes, contexts, prepared) + sums
        capability = capability_of(choice.target)
        assert capability is not None, f"{choice.target} was chosen for a GPU"
        self.driver_bytes = driver_bytes(programs, code_of(artifact, programs, capability), sizes, contexts)
        self.contexts: list[dict[Loaded, DevicePlan]] = []
        self._owned = owned = Owned(device)
        with device, owned:
            _ensure_room(device, self.bytes, self.driver_bytes, sums, artifact, programs)
            self.state = _state(device, size, prepared, owned)
            code = {name: artifact.blob(name) for kind in ("cubin", "ptx") for name in artifact.blobs(kind)}
            self._modules = Modules(device, code, capability, choice.through_ptx)
            owned.on_close(self._modules.close)
            self._libraries = Libraries(device, owned, artifact.id)
            self._kernels = Kernels(device, owned)
            self._transport: Transport | None = None
            cubins, dtypes = artifact.blobs("cubin"), Interface.of_header(artifact.header["interface"]).checked_dtypes
            self._checks = RangeChecks(device, self._modules, cubins, choice.target, dtypes, contexts, owned)
            self._lanes = [Lane(device, sizes, owned) for _ in range(contexts)]
            self.blocks = [
                {layout: LaneContext(lane, address) for layout, address in lane.contexts.items()}
                for lane in self._lanes
            ]
            for lane in self._lanes:
                self.contexts.append({program: self._bound(artifact, program, lane, bulk) for program in programs})
            for lane in self._lanes:
                lane.owner = self
                lane.drained_by(owned)  # graphs are destroyed only after their work has ended
        for number, text in self._warnings(artifact, choice):
            warnings.warn(DslcWarning(number, text), stacklevel=6)

    def _bound(self, artifact: Artifact, program: Loaded, lane: Lane, bulk: int | None) -> DevicePlan:
        """A program on the memory of a lane."""
        own_slots = has_own_slots(program.entry)
        return DevicePlan(
            program.plan,
            lane.updating if own_slots else lane,
            self.state,
            self._modules,
            self._libraries,
            artifact.blob,
            self._owned,
            name=str(program),
            slots=lane.slots_of_updates if own_slots else lane.slots,
            frames=self._steps if has_frames(program.entry) else 0,
            bulk=_bulk_of(artifact, program) if bulk is None else bulk,
            context=lane.contexts.get(program.carried),
            once=program.entry in RUN_ONCE,
            early=() if program.early is None else program.early.after,
        )

    def _warnings(self, artifact: Artifact, choice: Choice) -> Iterator[tuple[str, str]]:
        """The number and text of what a user should know about the load: PTX that the driver compiled, libraries that
        take long to choose algorithms, and measurements of other versions."""
        name = artifact.header["name"]
        if choice.through_ptx:
            yield (
                "W006",
                (
                    f"{name} holds code for {choice.target}; the driver compiled its PTX for the"
                    f" {self._device.name} in {self._modules.seconds:.1f} s"
                ),
            )
        measured = artifact.header.get("lock", {}).get(choice.target, {}).get("versions", ())
        slow, other = self._libraries.announcement(name), self._libraries.measured_elsewhere(name, measured)
        for number, said in (("W007", slow), ("W010", other)):
            if said is not None:
                yield number, said

    def check(self) -> None:
        self._device.mend()
        if self._device.driver.lost is not None:
            raise faults.again(self._device.driver.lost, self.name)

    def adopt(self, call: str, inputs: Mapping[str, object]) -> Mapping[str, object]:
        if not any(map(self._foreign, inputs.values())):
            return inputs
        return {
            name: foreign_array(self._device, value, name, f"{call}({name}=...)") if self._foreign(value) else value
            for name, value in inputs.items()
        }

    def _foreign(self, value: object) -> bool:
        """True if the value is on a GPU and is not yet a DeviceArray of this session's device."""
        return not (isinstance(value, DeviceArray) and value.device is self._device) and lies_on_gpu(value)

    def may_be_outside(self, ranged: Sequence[tuple[OnDevice, tuple[int, int]]]) -> bool:
        return self._checks.may_be_outside(ranged)

    def new_array(self, dtype: str, shape: Sequence[int]) -> DeviceArray:
        with self._device:
            return new_array(self._device, dtype, shape)

    def sums(self, shard: Loaded, update: Loaded, count: int, each: int) -> DeviceSums:
        layout = Layout.of(shard.plan, update.plan)
        with self._device as device:
            flags = flags_of(update.plan)
            share = self._share if shard.early is None else shard.early.share
            sizes = SumSizes(
                layout.terms, layout.row, count, each=each, flags=flags.bytes, share=share, work=update.work_bytes
            )
            parts = self._kernels, self._part, self._connected
            return DeviceSums(layout, sizes, device, *parts, self.state, flags)

    def _part(self) -> Owned:
        """An owner of resources that may be let go of earlier than the others."""
        part = Owned(self._device)
        self._owned.on_close(part.close)
        for lane in self._lanes:
            lane.drained_by(self._owned)
        return part

    def _connected(self, group: Exchange, taken: SumSizes, wanted: SumSizes) -> Transport:
        """What moves bytes between this process's GPU and those of the group's other processes. OutOfMemory R401 if
        there is no room for ``wanted`` instead of ``taken``, or for NCCL where that is needed."""
        device, named = self._device, [("what the other GPUs send", wanted.exchanged)]
        need = max(0, wanted.pooled - taken.pooled)
        found = self._transport
        if found is None and (found := peers_of(device, group, part := self._part())) is None:
            part.close()
            need, named = need + wanted.nccl, [*named, ("NCCL's own", wanted.nccl)]
        if need > device.pool.available():
            error: OutOfMemory = out_of_memory(need, device.pool.available(), named)
            error.message = error.message.replace("the session needs", "the exchange with other GPUs needs", 1)
            error.place = str(device)
            raise error
        if found is None:
            nccl = found = Nccl(self._device, group)
            self._owned.on_close(nccl.close)
            for lane in self._lanes:
                lane.drained_by(self._owned)
        self._transport = found
        return found

    def facts(self) -> Mapping[str, str]:
        from dslc.runtime.cuda.libraries.nccl import nccl_version

        libraries = {f"the version of {name}": version for name, version in self._libraries.versions.items()}
        return {
            "the GPU": f"{self._device.name}, {self._device.target}",
            "the driver's version of CUDA": str(self._device.driver.version()),
            "the version of NCCL": nccl_version(),
            **libraries,
        }

    def counters(self) -> Mapping[str, int]:
        """``graph_launches``, ``launches``, ``synchronisations`` (during runs), ``waits`` (for results, an
        earlier run, or inputs), ``bytes_in``, ``bytes_out``, ``compilations``."""
        total: Counter[str] = Counter(compilations=self._modules.compilations, waits=self._checks.waits)
        for lane in self._lanes:
            for name, value in asdict(lane.counters).items():
                total[name] += value
        return dict(total)

    def keep_choices(self) -> int:
        with self._device:
            return self._libraries.keep()

    def close(self) -> None:
        """Wait for running work and release everything; memory returns to the pool."""
        self._device.mend()
        if self._owned.closed:
            return
        # A lost GPU cannot be entered any more, and has nothing to release.
        with nullcontext() if self._device.driver.lost else self._device:
            for lane in self._lanes:
                for slot in lane.all_slots:
                    with suppress(DslcError):  # whoever reads its results gets the error
                        lane.settle(slot)
            self._owned.close()
        self.contexts.clear()
        self.blocks.clear()


def _state(device: Device, size: int, prepared: int, owned: Owned) -> DeviceState:
    blocks = [(device.pool.allocate(each, owned.noted).address if each else 0, each) for each in (size, prepared)]
    stream = idle_stream(device, owned)
    for address, each in blocks:
        if each:
            device.driver.fill(address, 0, 1, each, stream)
    device.driver.synchronise(stream)
    return DeviceState(device, blocks[0][0], blocks[1][0], stream)


def _bulk_of(artifact: Artifact, program: Loaded) -> int | None:
    """The build's ``bulk`` option for a plan without bulks of its own; None for a plan that has them."""
    from dslc.runtime.artifact.instructions import BulkBegin

    if any(isinstance(i, BulkBegin) for i in program.plan.instructions):
        return None
    asked = artifact.header["options"].get("bulk", "all")
    return asked if type(asked) is int and asked >= 0 else len(program.plan.instructions) + 1


def _ensure_room(
    device: Device, plan: int, driver: int, sums: int, artifact: Artifact, programs: Sequence[Loaded]
) -> None:
    """Raise OutOfMemory R401 unless ``plan`` bytes, the driver's next to them, and some to spare are free. ``sums``:
    those of ``plan`` for the sums over shards. Takes nothing."""
    need = plan + driver
    spare = max(int(need * _SPARE_PART), _SPARE_BYTES)
    free = device.pool.available()
    if need + spare <= free:
        return
    buffers = [*named_buffers(artifact.header["state"], programs), ("the driver's code and graphs", driver)]
    buffers += [("the sums over shards", sums)] if sums else []
    error: OutOfMemory = out_of_memory(need, max(0, free - spare), buffers)
    error.place = str(device)
    fitting = fitting_batch(artifact, programs, max(0, free - spare - driver), plan)
    if fitting is not None:
        error.help = f"build with a smaller batch: about {fitting} would fit (--size), or free memory of the GPU"
    raise error
