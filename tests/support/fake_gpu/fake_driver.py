"""A CUDA driver made of host memory, for tests without a GPU.

Structures, enums and return codes are those of ``cuda.bindings.driver``; calls are counted and may be made to fail.
Device memory is host memory, filled with 0xCD when it is allocated. Streams are as lazy as CUDA allows: what is
enqueued runs when somebody waits for it, another stream first where an event says so, and the nodes of a graph run in a
random order that respects their dependencies. So a wait that is missing, or a pinned block that is written again too
early, gives wrong values here. Kernels are Python functions of their arguments' addresses.
"""

from __future__ import annotations

import ctypes
import random
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import cuda.bindings.driver as real
import numpy as np

from dslc.runtime.artifact.reserved import CHECK_THREADS, check_symbol
from dslc.runtime.cuda.faults import CAPTURE_INVALIDATED, STICKY

SUCCESS, INVALID, NO_MEMORY, NO_CONTEXT, BAD_HANDLE, NOT_FOUND, NOT_READY, ILLEGAL = 0, 1, 2, 201, 400, 500, 600, 700
NOT_SUPPORTED = 801
_SECONDS = 30.0  # until nobody is expected any more to write a number for which a stream waits
_ASKED_ANY_TIME = ("cuGetErrorName", "cuGetErrorString")
_WITHOUT_CONTEXT = ("cuInit", "cuDriverGetVersion", "cuDevice", "cuCtxPushCurrent", "cuCtxPopCurrent")


def _addition(dtype: str) -> Callable[..., None]:
    """The runtime's own kernel, whose PTX other tests run: the total, left and right vector, units of 16 bytes."""

    def add(fake: FakeDriver, grid: Any, block: Any, total: int, left: int, right: int, units: int) -> None:
        count = units * 16 // np.dtype(dtype).itemsize
        with np.errstate(all="ignore"):
            fake.array(total, dtype, count)[:] = fake.array(left, dtype, count) + fake.array(right, dtype, count)

    return add


def _gathering(dtype: str) -> Callable[..., None]:
    """The runtime's kernel for what two shards give; a block for each row of the table."""

    def widened(fake: FakeDriver, at: int, units: int) -> Any:
        if dtype == "bf16":
            return (fake.array(at, "u2", units * 8).astype("u4") << 16).view("f4")
        item = 2 if dtype == "f16" else 4
        return fake.array(at, f"f{item}", units * 16 // item).astype("f4")

    def add(fake: FakeDriver, grid: Any, block: Any, total: int, left: int, right: int, table: int) -> None:
        for at, given, units in fake.array(table, "u8", 3 * grid[0]).reshape(-1, 3).tolist():
            with np.errstate(all="ignore"):
                found = widened(fake, left + given, units) + widened(fake, right + given, units)
            fake.array(total + at, "f4", len(found))[:] = found

    return add


def _check(dtype: str) -> Callable[..., None]:
    """The kernel that looks for values outside a range; other tests run its PTX."""

    def look(fake: FakeDriver, grid: Any, block: Any, values: int, flag: int, count: int, low: int, last: int) -> None:
        assert grid[0] * block[0] > 0 and block[0] == CHECK_THREADS
        found = fake.array(values, dtype, count)
        low, last = (n - (n >> 63 << 64) for n in (low, last))
        if ((found < low) | (found > last)).any():
            fake.pinned(flag, "u4", 1)[:] = 1

    return look


INTEGERS = {"i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "u64": "u8", "u32": "u4", "u16": "u2", "u8": "u1"}
CHECKS = {check_symbol(name): _check(code) for name, code in INTEGERS.items()}
#: What every driver knows: the runtime brings its PTX.
ADDITIONS = {
    "dslc_add_f32": _addition("f4"),
    "dslc_add_f64": _addition("f8"),
    **{f"dslc_gather_{dtype}": _gathering(dtype) for dtype in ("f32", "f16", "bf16")},
}


class Refused(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(eq=False)
class Op:
    """Something on a stream; ``after`` is an op of another stream that must be done before, ``host`` the address of
    pinned memory that it reads or writes."""

    run: Callable[[], None]
    stream: Stream
    after: Op | None = None
    host: int = 0
    done: bool = False
    asked: bool = False  # whether it was done: it is, when somebody asks again
    fill: tuple[int, int, int, int] | None = None  # address, value, width and count, of a fill without gaps
    at: int = 0  # how many ops of the device were done with it
    until: tuple[int, int] | None = None  # an address, and the number that must have been written there before


@dataclass(eq=False)
class Stream:
    queue: deque[Op] = field(default_factory=deque)
    captured: list[Op] | None = None  # what was enqueued since a capture began
    disturbed: bool = False  # its capture has been ended by another thread


@dataclass(eq=False)
class Event:
    mark: Op | None = None


@dataclass(eq=False)
class Module:
    image: bytes


@dataclass(eq=False)
class Function:
    name: str
    module: Module
    shared: int = 48 << 10


@dataclass(eq=False)
class Node:
    run: Callable[[], None]
    after: tuple[int, ...]
    kind: str
    fill: tuple[int, int, int, int] | None = None
    event: Event | None = None  # that it records


def fake_cubin(arch: int, *symbols: str, parameters: int = 2, code: int = 0, local: int = 0) -> bytes:
    """An ELF file as short as can be, whose flags name ``arch`` (90), with the names of its kernels, each of which
    takes so many parameters of 8 bytes, has so many bytes of code and takes so many of local memory."""
    listed = b"".join(struct.pack("<BBHIHHI", 4, 0x17, 12, 0, i, 8 * i, 8 << 18) for i in range(parameters))
    listed = struct.pack("<BBH", 3, 0x1B, 64) + listed  # an attribute of another form stands before
    contents = [(f".nv.info.{symbol}", listed) for symbol in symbols]
    contents += [(f".text.{symbol}", bytes(code)) for symbol in symbols if code]
    if local:
        contents.append(
            (".nv.info", struct.pack("<BBHII", 4, 0x11, 8, 1, 1) + struct.pack("<BBHII", 4, 0x12, 8, 1, local))
        )
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _ in contents)
    rows, body = [bytes(64)], b""
    for name, content in (*contents, ("", names)):
        start = names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0
        rows.append(struct.pack("<IIQQQQIIQQ", start, 1, 0, 0, 64 + len(body), len(content), 0, 0, 1, 0))
        body += content
    ident = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7)
    head = (2, 190, 1, 0, 0, 64 + len(body), arch << 8 | 0x6000004, 64, 56, 0, 64, len(rows), len(rows) - 1)
    return ident + struct.pack("<HHIQQQIHHHHHH", *head) + body + b"".join(rows)


class FakeDriver:
    """``kernels``: symbol -> function of (driver, grid, block, *addresses). ``total``: the device's bytes of memory."""

    def __init__(
        self,
        kernels: Mapping[str, Callable[..., None]] | None = None,
        *,
        parameters: Mapping[str, int] | None = None,
        capability: tuple[int, int] = (9, 0),
        total: int = 1 << 30,
        devices: int = 1,
        seed: int = 0,
    ) -> None:
        self.kernels = {**ADDITIONS, **CHECKS, **(kernels or {})}
        self.parameters = {**dict.fromkeys(ADDITIONS, 4), **(parameters or {})}
        self.capability, self.total, self.devices = capability, total, devices
        self.calls: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()  # calls that failed, but for those that ask whether work is done
        self.log: list[str] = []
        self.together = 0  # kernels whose blocks must all be on the device at once
        self.early = 0  # edges of graphs between kernels, the later of which may begin early
        self.fail_at: int | None = None  # the number of the call that fails, from 1
        self.fail_with = INVALID
        self.fired = 0
        self.dead = 0  # the sticky code of a lost context
        self.patience = 60.0  # seconds, of the Driver that is put upon this
        self.clock = 0  # ops that were done: each takes a millisecond
        self.hung = False  # nothing that was enqueued ends any more
        self.used_elsewhere = 0  # bytes that other processes hold
        self.device_memory: dict[int, np.ndarray] = {}
        self.host_memory: dict[int, np.ndarray] = {}
        self.objects: dict[int, Any] = {}
        self.retained = 0
        self._next = 1000
        self._random = random.Random(seed)
        self._local = threading.local()
        self._lock = threading.RLock()
        self.opened = 0  # allocations of other processes
        self.peers = False  # whether processes, which are threads here, may open each other's memory
        self._writes: dict[int, deque[Op]] = {}  # by address: the numbers that streams are to write there
        self._written = threading.Condition(self._lock)

    # What tests ask

    def leaks(self) -> dict[str, int]:
        """What is alive, by kind. Modules, streams and so on by their class."""
        found = Counter(type(o).__name__ for o in self.objects.values() if not isinstance(o, Function | Node))
        found["device memory"] = len(self.device_memory)
        found["host memory"] = len(self.host_memory)
        return {k: v for k, v in found.items() if v}

    def graphs(self) -> list[int]:
        """How many nodes each of the graphs has that can be launched, sorted."""
        return sorted(len(o[0]) for o in self.objects.values() if isinstance(o, tuple))

    @property
    def used(self) -> int:
        return sum(m.nbytes for m in self.device_memory.values())

    def array(self, address: int, dtype: str, shape: Any) -> np.ndarray:
        """Device memory as numpy sees it; outside of every allocation the context is lost, as on a GPU."""
        wanted = np.dtype(dtype)
        size = int(wanted.itemsize * np.prod(shape, dtype=np.int64))
        block, at = self._within(self.device_memory, address, size)
        if block is None:
            self.dead = ILLEGAL
            raise Refused(ILLEGAL)
        return block[at : at + size].view(wanted).reshape(shape)

    def pinned(self, address: int, dtype: str, shape: Any) -> np.ndarray:
        """Pinned memory of the host as a kernel sees it."""
        wanted = np.dtype(dtype)
        size = int(wanted.itemsize * np.prod(shape, dtype=np.int64))
        block, at = self._within(self.host_memory, address, size)
        assert block is not None, "a kernel writes host memory that is not pinned"
        return block[at : at + size].view(wanted).reshape(shape)

    # Calls

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            return getattr(real, name)
        do = getattr(type(self), "do_" + name)  # AttributeError: a call that this fake does not know
        if not hasattr(real, name):
            raise AttributeError(name)

        def call(*args: Any) -> tuple[Any, ...]:
            with self._lock:
                return self._called(name, do, args)

        return call

    def _called(self, name: str, do: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        if name in _ASKED_ANY_TIME:
            return do(self, *args)
        self.calls[name] += 1
        self.log.append(name)
        try:
            if self.dead:
                raise Refused(self.dead)
            if len(self.log) == self.fail_at:
                self.fired += 1
                if self.fail_with in STICKY:
                    self.dead = self.fail_with
                raise Refused(self.fail_with)
            if not name.startswith(_WITHOUT_CONTEXT) and not self._stack:
                raise Refused(NO_CONTEXT)
            answer = do(self, *args)
        except Refused as refused:
            if refused.code != NOT_READY:
                self.refused[name] += 1
            results = 2 if name == "cuMemGetInfo" else 1
            return (real.CUresult(refused.code), *(None,) * results)
        return (real.CUresult(SUCCESS), *(answer if isinstance(answer, tuple) else (answer,)))

    @property
    def _stack(self) -> list[int]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        return self._local.stack

    def _new(self, item: Any, kind: Any = int) -> Any:
        self._next += 8
        self.objects[self._next] = item
        return kind(self._next)

    def _get(self, handle: Any, kind: type) -> Any:
        found = self.objects.get(int(handle))
        if not isinstance(found, kind):
            raise Refused(BAD_HANDLE)
        return found

    def _drop(self, handle: Any, kind: type) -> None:
        self._get(handle, kind)
        del self.objects[int(handle)]

    @staticmethod
    def _within(blocks: Mapping[int, np.ndarray], address: int, size: int) -> tuple[np.ndarray | None, int]:
        for start, block in blocks.items():
            if start <= address and address + size <= start + block.nbytes:
                return block, address - start
        return None, 0

    def _device(self, address: Any, size: int) -> np.ndarray:
        block, at = self._within(self.device_memory, int(address), size)
        if block is None:
            raise Refused(INVALID)
        return block[at : at + size]

    # Streams

    def _put(self, stream: Any, run: Callable[[], None], after: Op | None = None, host: int = 0) -> Op:
        where = self._get(stream, Stream)
        op = Op(run, where, after, host)
        if where.captured is not None:
            where.captured.append(op)
            return op
        where.queue.append(op)
        return op

    def _finish(self, op: Op | None) -> None:
        assert op is None or op.done or not self.hung, "the driver waits for ever"
        while op is not None and not op.done:
            first = op.stream.queue[0]
            if first.after is not None and not first.after.done:
                self._finish(first.after)
                continue
            if first.until is not None and not self._reached(*first.until):
                waiting = self._writes.get(first.until[0])
                if waiting:
                    self._finish(waiting[0])
                else:  # another thread is to enqueue it
                    assert self._written.wait(_SECONDS), "nobody writes the number for which a stream waits"
                continue
            op.stream.queue.popleft()
            first.run()
            first.done = True
            self.clock += 1
            first.at = self.clock

    def _reached(self, address: int, number: int) -> bool:
        return (int(self.array(address, "u4", 1)[0]) - number) % (1 << 32) < 1 << 31

    def _drain(self, stream: Stream) -> None:
        if stream.queue:
            self._finish(stream.queue[-1])

    # Errors

    def do_cuGetErrorName(self, code: Any) -> tuple[Any, ...]:
        return (real.CUresult(0), real.CUresult(int(code)).name.encode())

    def do_cuGetErrorString(self, code: Any) -> tuple[Any, ...]:
        return (real.CUresult(0), b"the fake driver was told to fail")

    # Devices

    def do_cuInit(self, flags: int) -> tuple[()]:
        return ()

    def do_cuDriverGetVersion(self) -> int:
        return 13000

    def do_cuDeviceGetCount(self) -> int:
        return self.devices

    def do_cuDeviceGet(self, ordinal: int) -> Any:
        if not 0 <= ordinal < self.devices:
            raise Refused(101)
        return real.CUdevice(ordinal)

    def do_cuDeviceGetName(self, length: int, device: Any) -> bytes:
        return b"Fake GPU\0\0"

    def do_cuDeviceGetAttribute(self, attribute: Any, device: Any) -> int:
        if attribute.name.endswith("MULTIPROCESSOR_COUNT"):
            return 132
        if attribute.name.endswith("CLOCK_RATE"):
            return 1980000
        if attribute.name.endswith("L2_CACHE_SIZE"):
            return 1 << 16
        return self.capability[attribute.name.endswith("MINOR")]

    def do_cuDeviceGetPCIBusId(self, length: int, device: Any) -> bytes:
        return f"0000:{int(device) + 1:02x}:00.0\0".encode()[:length]

    def do_cuDeviceTotalMem(self, device: Any) -> int:
        return self.total

    def do_cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        self.retained += 1
        return real.CUcontext(77)

    def do_cuDevicePrimaryCtxRelease(self, device: Any) -> tuple[()]:
        self.retained -= 1
        return ()

    def do_cuCtxPushCurrent(self, context: Any) -> tuple[()]:
        assert int(context) == 77 and self.retained
        self._stack.append(77)
        return ()

    def do_cuCtxPopCurrent(self) -> Any:
        if not self._stack:
            raise Refused(NO_CONTEXT)
        self._stack.pop()
        return real.CUcontext(77)

    # Memory

    def do_cuMemGetInfo(self) -> tuple[int, int]:
        return max(0, self.total - self.used - self.used_elsewhere), self.total

    def do_cuMemAlloc(self, size: int) -> Any:
        if size <= 0:
            raise Refused(INVALID)
        if size > self.total - self.used - self.used_elsewhere:
            raise Refused(NO_MEMORY)
        return real.CUdeviceptr(self._take(self.device_memory, size))

    def do_cuMemFree(self, address: Any) -> tuple[()]:
        for stream in [s for s in self.objects.values() if isinstance(s, Stream)]:
            self._drain(stream)  # the driver waits for the device here
        self._release(self.device_memory, int(address))
        return ()

    def do_cuMemHostAlloc(self, size: int, flags: int) -> int:
        return self._take(self.host_memory, size)

    def do_cuMemFreeHost(self, address: int) -> tuple[()]:
        end = address + self.host_memory[address].nbytes if address in self.host_memory else address
        waiting = [op for s in self.objects.values() if isinstance(s, Stream) for op in s.queue]
        assert not any(address <= op.host < end for op in waiting), "pinned memory is freed while a stream may use it"
        self._release(self.host_memory, int(address))
        return ()

    def do_cuMemGetAddressRange(self, address: Any) -> tuple[Any, int]:
        for start, block in self.device_memory.items():
            if start <= int(address) < start + block.nbytes:
                return real.CUdeviceptr(start), block.nbytes
        raise Refused(INVALID)

    def do_cuIpcGetMemHandle(self, address: Any) -> Any:
        if not self.peers:
            raise Refused(NOT_SUPPORTED)
        assert int(address) in self.device_memory, "the handle of an allocation's beginning"
        handle = real.CUipcMemHandle()
        ctypes.memmove(handle.getPtr(), int(address).to_bytes(64, "little"), 64)
        return handle

    def do_cuIpcOpenMemHandle(self, handle: Any, flags: int) -> Any:
        assert flags == 1, "access to the other device is asked for"
        address = int.from_bytes(ctypes.string_at(handle.getPtr(), 64), "little")
        if address not in self.device_memory:
            raise Refused(INVALID)
        self.opened += 1
        return real.CUdeviceptr(address)

    def do_cuIpcCloseMemHandle(self, address: Any) -> tuple[()]:
        self.opened -= 1
        return ()

    def do_cuStreamWriteValue32(self, stream: Any, address: int, number: int, flags: int) -> tuple[()]:
        assert flags == 0
        to = self._device(address, 4).view(np.uint32)
        waiting = self._writes.setdefault(int(address), deque())

        def run() -> None:
            to[0] = number
            waiting.popleft()

        waiting.append(self._put(stream, run))
        self._written.notify_all()
        return ()

    def do_cuStreamWaitValue32(self, stream: Any, address: int, number: int, flags: int) -> tuple[()]:
        assert flags == 0, "until it is at least the number"
        self._device(address, 4)
        self._put(stream, lambda: None).until = int(address), number
        return ()

    def do_cuPointerGetAttribute(self, attribute: Any, address: Any) -> int:
        assert attribute.name.endswith("DEVICE_ORDINAL")
        self._device(address, 1)
        return 0

    @staticmethod
    def _take(blocks: dict[int, np.ndarray], size: int) -> int:
        raw = np.empty(size + 512, np.uint8)
        start = -raw.ctypes.data % 512
        block = raw[start : start + size]
        if size <= 1 << 24:
            block.fill(0xCD)
        blocks[block.ctypes.data] = block
        return block.ctypes.data

    @staticmethod
    def _release(blocks: dict[int, np.ndarray], address: int) -> None:
        if address not in blocks:
            raise Refused(INVALID)
        del blocks[address]

    def _host(self, address: int, size: int) -> tuple[np.ndarray, bool]:
        """Host memory, and whether it is pinned."""
        block, at = self._within(self.host_memory, address, size)
        if block is not None:
            return block[at : at + size], True
        raw = (ctypes.c_uint8 * size).from_address(address)
        return np.frombuffer(raw, np.uint8), False

    def do_cuMemcpyHtoDAsync(self, target: Any, source: int, size: int, stream: Any) -> tuple[()]:
        to = self._device(target, size)
        host, pinned = self._host(source, size)
        taken = host if pinned else host.copy()  # the driver reads pageable memory before it returns
        self._put(stream, lambda: np.copyto(to, taken), host=source)
        return ()

    def do_cuMemcpyDtoHAsync(self, target: int, source: Any, size: int, stream: Any) -> tuple[()]:
        device = self._device(source, size)
        host, pinned = self._host(target, size)
        op = self._put(stream, lambda: np.copyto(host, device), host=target)
        if not pinned:
            self._finish(op)
        return ()

    def do_cuMemcpy2DAsync(self, copy: Any, stream: Any) -> tuple[()]:
        assert int(copy.srcMemoryType) == int(copy.dstMemoryType) == 4, "the driver tells memory by its address"
        rows, width, pitches = copy.Height, copy.WidthInBytes, (copy.srcPitch, copy.dstPitch)
        assert rows and width <= min(pitches)
        (of, from_host), (to, to_host) = (
            self._either(address, pitch * (rows - 1) + width)
            for address, pitch in zip((copy.srcDevice, copy.dstDevice), pitches)
        )

        def run() -> None:
            for row in range(rows):
                np.copyto(to[row * pitches[1] :][:width], of[row * pitches[0] :][:width])

        self._put(stream, run, host=from_host or to_host)
        return ()

    def _either(self, address: Any, size: int) -> tuple[np.ndarray, int]:
        """The device's bytes there, or those of pinned memory with their address."""
        block, at = self._within(self.host_memory, int(address), size)
        return (self._device(address, size), 0) if block is None else (block[at : at + size], int(address))

    def do_cuMemcpyDtoDAsync(self, target: Any, source: Any, size: int, stream: Any) -> tuple[()]:
        to, of = self._device(target, size), self._device(source, size)
        self._put(stream, lambda: np.copyto(to, of))
        return ()

    def _fill(self, target: Any, value: int, width: int, rows: int, pitch: int) -> Callable[[], None]:
        to = self._device(target, pitch * (rows - 1) + width if rows else 0)
        pattern = np.frombuffer(value.to_bytes(width, "little"), np.uint8)

        def run() -> None:
            if pitch == width:
                to.reshape(rows, width)[...] = pattern
                return
            for row in range(rows):
                to[row * pitch : row * pitch + width] = pattern

        return run

    def do_cuMemsetD8Async(self, target: Any, value: int, count: int, stream: Any) -> tuple[()]:
        self._put(stream, self._fill(target, value, 1, count, 1))
        return ()

    def do_cuMemsetD16Async(self, target: Any, value: int, count: int, stream: Any) -> tuple[()]:
        self._put(stream, self._fill(target, value, 2, count, 2))
        return ()

    def do_cuMemsetD32Async(self, target: Any, value: int, count: int, stream: Any) -> tuple[()]:
        self._put(stream, self._fill(target, value, 4, count, 4)).fill = int(target), value, 4, count
        return ()

    def do_cuMemsetD2D32Async(
        self, target: Any, pitch: int, value: int, width: int, height: int, stream: Any
    ) -> tuple[()]:
        assert width == 1
        self._put(stream, self._fill(target, value, 4, height, pitch))
        return ()

    # Streams and events

    def do_cuStreamCreate(self, flags: int) -> Any:
        return self._new(Stream(), real.CUstream)

    def do_cuStreamDestroy(self, stream: Any) -> tuple[()]:
        # CUDA takes a busy one, whose work goes on; but what that uses is let go of, by a pool that waits for nothing.
        busy = self._get(stream, Stream)
        assert not busy.queue or self.fired, "a stream is destroyed while work waits in it"  # unless a wait has failed
        self._drain(busy)
        self._drop(stream, Stream)
        return ()

    def do_cuStreamSynchronize(self, stream: Any) -> tuple[()]:
        self._drain(self._get(stream, Stream))
        return ()

    def do_cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> tuple[()]:
        self._put(stream, lambda: None, after=self._get(event, Event).mark)
        return ()

    def do_cuEventCreate(self, flags: int) -> Any:
        return self._new(Event(), real.CUevent)

    def do_cuEventDestroy(self, event: Any) -> tuple[()]:
        self._drop(event, Event)
        return ()

    def do_cuEventRecord(self, event: Any, stream: Any) -> tuple[()]:
        self._get(event, Event).mark = self._put(stream, lambda: None)
        return ()

    def do_cuEventSynchronize(self, event: Any) -> tuple[()]:
        self._finish(self._get(event, Event).mark)
        return ()

    def do_cuEventQuery(self, event: Any) -> tuple[()]:
        return self._query(self._get(event, Event).mark)

    def do_cuStreamQuery(self, stream: Any) -> tuple[()]:
        queue = self._get(stream, Stream).queue
        return self._query(queue[-1] if queue else None)

    def _query(self, op: Op | None) -> tuple[()]:
        if op is not None and not op.done:
            if self.hung or not op.asked:
                op.asked = True
                raise Refused(NOT_READY)
            self._finish(op)
        return ()

    def do_cuEventElapsedTime(self, start: Any, end: Any) -> float:
        marks = [self._get(event, Event).mark for event in (start, end)]
        if not all(mark is not None and mark.done for mark in marks):
            raise Refused(NOT_READY)
        return float(marks[1].at - marks[0].at)

    # Code

    def do_cuModuleLoadData(self, image: bytes) -> Any:
        if image.startswith(b"\x7fELF"):
            arch = struct.unpack_from("<I", image, 48)[0] >> 8 & 0xFF
            if arch // 10 != self.capability[0] or arch % 10 > self.capability[1]:
                raise Refused(209)
        elif not image.startswith((b"//", b".version")) or not image.endswith(b"\0"):
            raise Refused(218)
        return self._new(Module(image), real.CUmodule)

    def do_cuModuleUnload(self, module: Any) -> tuple[()]:
        self._drop(module, Module)
        return ()

    def do_cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        found = self._get(module, Module)
        if name not in found.image or name.decode() not in self.kernels:
            raise Refused(NOT_FOUND)
        return self._new(Function(name.decode(), found), real.CUfunction)

    def do_cuFuncGetAttribute(self, attribute: Any, function: Any) -> int:
        assert attribute.name.endswith("MAX_THREADS_PER_BLOCK")
        return 1024

    def do_cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> tuple[()]:
        assert attribute.name.endswith("MAX_DYNAMIC_SHARED_SIZE_BYTES")
        if value > 232448:
            raise Refused(INVALID)
        self._get(function, Function).shared = value
        return ()

    def _count(self, name: str) -> int:
        if name in self.parameters:
            return self.parameters[name]
        return self.kernels[name].__code__.co_argcount - 3

    def _kernel(self, function: Any, grid: Any, block: Any, shared: int, params: int) -> Callable[[], None]:
        found = self._get(function, Function)
        if shared > found.shared or min(*grid, *block) < 1:
            raise Refused(INVALID)
        count = self._count(found.name)
        slots = [ctypes.c_uint64.from_address(params + 8 * i).value for i in range(count)]
        values = [ctypes.c_uint64.from_address(slot).value for slot in slots]
        do = self.kernels[found.name]
        return lambda: do(self, tuple(grid), tuple(block), *values)

    def do_cuLaunchKernel(self, f: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, *rest: Any) -> tuple[()]:
        shared, stream, params, _ = rest
        self._put(stream, self._kernel(f, (gx, gy, gz), (bx, by, bz), shared, params))
        return ()

    def do_cuLaunchCooperativeKernel(
        self, f: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: Any, params: Any
    ) -> tuple[()]:
        self.together += 1
        self._put(stream, self._kernel(f, (gx, gy, gz), (bx, by, bz), shared, params))
        return ()

    # Graphs

    def do_cuGraphCreate(self, flags: int) -> Any:
        return self._new({}, real.CUgraph)

    def do_cuGraphDestroy(self, graph: Any) -> tuple[()]:
        self._drop(graph, dict)
        return ()

    def _node(self, graph: Any, after: Any, count: int, run: Callable[[], None], kind: str) -> Any:
        nodes = self._get(graph, dict)
        before = tuple(int(n) for n in after)
        assert len(before) == count and all(n in nodes for n in before)
        handle = self._new(Node(run, before, kind), real.CUgraphNode)
        nodes[int(handle)] = self.objects[int(handle)]
        return handle

    def do_cuGraphAddKernelNode(self, graph: Any, after: Any, count: int, node: Any) -> Any:
        grid = (node.gridDimX, node.gridDimY, node.gridDimZ)
        block = (node.blockDimX, node.blockDimY, node.blockDimZ)
        run = self._kernel(node.func, grid, block, node.sharedMemBytes, node.kernelParams)
        return self._node(graph, after, count, run, "kernel")

    def do_cuGraphExecKernelNodeSetParams(self, executable: Any, number: Any, node: Any) -> tuple[()]:
        """Launches from now on differ, and not those that are on their way."""
        [nodes] = self._get(executable, tuple)
        before = nodes[int(number)]
        graphs = [each for each in self.objects.values() if isinstance(each, dict)]
        assert before.kind == "kernel" and any(int(number) in graph for graph in graphs)  # the driver finds it there
        grid = (node.gridDimX, node.gridDimY, node.gridDimZ)
        block = (node.blockDimX, node.blockDimY, node.blockDimZ)
        run = self._kernel(node.func, grid, block, node.sharedMemBytes, node.kernelParams)
        self.objects[int(executable)] = ({**nodes, int(number): replace(before, run=run)},)
        return ()

    def do_cuGraphKernelNodeSetAttribute(self, node: Any, attribute: Any, value: Any) -> tuple[()]:
        assert attribute == real.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE and value.cooperative == 1
        self.together += 1
        return ()

    def do_cuGraphAddDependencies(self, graph: Any, of: Any, to: Any, edges: Any, count: int) -> tuple[()]:
        nodes = self._get(graph, dict)
        [before], [node], [edge] = ([int(x) for x in of], [nodes[int(x)] for x in to], edges)
        assert count == 1 and before in nodes and nodes[before].kind == node.kind == "kernel"
        assert (int(edge.from_port), int(edge.type)) == (1, 1), (
            "when the blocks are over, for a kernel that waits by itself"
        )
        node.after = (*node.after, before)
        self.early += 1
        return ()

    def do_cuGraphAddMemcpyNode(self, graph: Any, after: Any, count: int, node: Any, context: Any) -> Any:
        assert int(node.srcMemoryType) == int(node.dstMemoryType) == 2 and node.Height == node.Depth == 1
        to, of = (self._device(p, node.WidthInBytes) for p in (node.dstDevice, node.srcDevice))
        return self._node(graph, after, count, lambda: np.copyto(to, of), "copy")

    def do_cuGraphAddMemsetNode(self, graph: Any, after: Any, count: int, node: Any, context: Any) -> Any:
        if node.height == 1:
            run = self._fill(node.dst, node.value, node.elementSize, node.width, node.elementSize)
        else:
            assert node.width == 1
            run = self._fill(node.dst, node.value, node.elementSize, node.height, node.pitch)
        return self._node(graph, after, count, run, "fill")

    def do_cuStreamBeginCapture(self, stream: Any, mode: Any) -> tuple[()]:
        assert mode.name.endswith("RELAXED")
        found = self._get(stream, Stream)
        if found.captured is not None or found.queue:
            raise Refused(INVALID)
        found.captured, found.disturbed = [], False
        return ()

    def wait_for_all(self) -> None:
        """As a library that opens: it waits for all work of the device, which ends all captures."""
        with self._lock:
            for stream in self.objects.values():
                if isinstance(stream, Stream):
                    stream.disturbed = stream.captured is not None

    def do_cuStreamEndCapture(self, stream: Any) -> Any:
        found = self._get(stream, Stream)
        if found.captured is None:
            raise Refused(INVALID)
        ops, found.captured = found.captured, None
        if found.disturbed:
            raise Refused(CAPTURE_INVALIDATED)
        graph = self._new({}, real.CUgraph)
        before: list[Any] = []
        for op in ops:
            before = [self._node(graph, before, len(before), op.run, "kernel" if op.fill is None else "fill")]
            self.objects[int(before[0])].fill = op.fill
        return graph

    def do_cuGraphGetRootNodes(self, graph: Any, most: int) -> tuple[Any, int]:
        roots = [n for n, node in self._get(graph, dict).items() if not node.after]
        return [real.CUgraphNode(n) for n in roots[:most]] or None, len(roots)

    def do_cuGraphNodeGetType(self, node: Any) -> Any:
        kinds = real.CUgraphNodeType
        return {
            "fill": kinds.CU_GRAPH_NODE_TYPE_MEMSET, "kernel": kinds.CU_GRAPH_NODE_TYPE_KERNEL
        }[self._get(node, Node).kind]  # fmt: skip

    def do_cuGraphMemsetNodeGetParams(self, node: Any) -> Any:
        found = real.CUDA_MEMSET_NODE_PARAMS()
        found.dst, found.value, found.elementSize, found.width = self._get(node, Node).fill
        found.height = 1
        return found

    def do_cuGraphDestroyNode(self, node: Any) -> tuple[()]:
        self._drop(node, Node)
        for nodes in self.objects.values():
            if isinstance(nodes, dict) and nodes.pop(int(node), None):
                for other in nodes.values():
                    other.after = tuple(n for n in other.after if n != int(node))
        return ()

    def do_cuGraphAddChildGraphNode(self, graph: Any, after: Any, count: int, child: Any) -> Any:
        nodes = dict(self._get(child, dict))
        return self._node(graph, after, count, lambda: self._play(nodes), "child")

    def enqueue(self, stream: int, run: Callable[[], None], counter: int = 0) -> None:
        """As a library does that launches a kernel. ``counter``: the address of 4 bytes that a persistent kernel needs
        to be 0, and in which it counts its tiles."""

        def counting() -> None:
            [count] = tiles = self.array(counter, "u4", (1,))
            assert count == 0, "nobody has set the counter of tiles to 0"
            tiles[0] = 7
            run()

        with self._lock:
            if counter:
                self.do_cuMemsetD32Async(counter, 0, 1, stream)
            self._put(stream, counting if counter else run)

    def do_cuGraphAddEventRecordNode(self, graph: Any, after: Any, count: int, event: Any) -> Any:
        handle = self._node(graph, after, count, lambda: None, "record")
        self._get(graph, dict)[int(handle)].event = self._get(event, Event)
        return handle

    def do_cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        return self._new((dict(self._get(graph, dict)),), real.CUgraphExec)

    def do_cuGraphExecDestroy(self, executable: Any) -> tuple[()]:
        self._drop(executable, tuple)
        return ()

    def do_cuGraphUpload(self, executable: Any, stream: Any) -> tuple[()]:
        self._get(executable, tuple)
        return ()

    def do_cuGraphLaunch(self, executable: Any, stream: Any) -> tuple[()]:
        [nodes] = self._get(executable, tuple)
        queue, done = self._get(stream, Stream).queue, set[int]()
        before = queue[-1] if queue else None
        self._put(stream, lambda: self._play(nodes, done))
        for number, node in nodes.items():
            if node.event is not None:  # who waits for it waits for no other nodes of the graph
                wanted, found = {number: node}, {number}
                while found:
                    found = {k for each in found for k in nodes[each].after} - wanted.keys()
                    wanted |= {k: nodes[k] for k in found}
                alone = Stream()
                node.event.mark = Op(partial(self._play, wanted, done), alone, after=before)
                alone.queue.append(node.event.mark)
        return ()

    def _play(self, nodes: Mapping[int, Node], done: set[int] | None = None) -> None:
        """Runs nodes but those that are ``done``, to which it adds them."""
        done = set() if done is None else done
        waiting = {k: n for k, n in nodes.items() if k not in done}
        while waiting:
            ready = [k for k, n in waiting.items() if done.issuperset(n.after)]
            chosen = self._random.choice(ready)
            waiting.pop(chosen).run()
            done.add(chosen)
