"""The CUDA driver's calls that the runtime uses, each under its own name.

A call that makes something notes it in a list of the caller's, in the same step; ``let_go`` takes it from there.

The one place that imports ``cuda.bindings.driver``, when the first GPU is asked for. Handles are the bindings' own
objects and are only passed on; device memory is ints. How a call is checked: ``checked_calls.py``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from dslc.base.errors import DslcError, EnvironmentFault
from dslc.base.turns import unbroken
from dslc.runtime.cuda import faults
from dslc.runtime.cuda.arguments import Arguments
from dslc.runtime.cuda.graphs.graph_calls import GraphCalls
from dslc.runtime.cuda.libraries.checked_calls import Noted
from dslc.runtime.cuda.waiting import patience

_NON_BLOCKING: Final = 1  # CU_STREAM_NON_BLOCKING: independent of the legacy default stream
_TIMING_OFF: Final = 2  # CU_EVENT_DISABLE_TIMING
_UNIFIED_MEMORY: Final = 4  # CU_MEMORYTYPE_UNIFIED
_AT_LEAST: Final = 0  # CU_STREAM_WAIT_VALUE_GEQ
SHARED_BYTES: Final = 64  # CU_IPC_HANDLE_SIZE


class Driver(GraphCalls):
    """All driver calls of the runtime."""

    # Devices and contexts

    def init(self) -> None:
        self._call("cuInit", 0)

    def version(self) -> int:
        """The CUDA version that the driver supports: 13000 is 13.0."""
        return int(self._call("cuDriverGetVersion"))

    def device_count(self) -> int:
        return int(self._call("cuDeviceGetCount"))

    def device(self, ordinal: int) -> Any:
        return self._call("cuDeviceGet", ordinal)

    def device_name(self, device: Any) -> str:
        name: bytes = self._call("cuDeviceGetName", 256, device)
        return name.split(b"\0")[0].decode("utf-8", "replace")

    def capability(self, device: Any) -> tuple[int, int]:
        attribute = self._binding.CUdevice_attribute
        return (
            int(self._call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)),
            int(self._call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)),
        )

    def multiprocessors(self, device: Any) -> int:
        attribute = self._binding.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        return int(self._call("cuDeviceGetAttribute", attribute, device))

    def clock_rate(self, device: Any) -> int:
        """The highest clock of the multiprocessors, in Hz."""
        attribute = self._binding.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE
        return 1000 * int(self._call("cuDeviceGetAttribute", attribute, device))

    def cache_bytes(self, device: Any) -> int:
        """Bytes of the second-level cache."""
        attribute = self._binding.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
        return int(self._call("cuDeviceGetAttribute", attribute, device))

    def bus_id(self, device: Any) -> str:
        """The place of the device on the machine's bus, the same for all processes: ``0000:19:00.0``."""
        name: bytes = self._call("cuDeviceGetPCIBusId", 32, device)
        return name.split(b"\0")[0].decode("ascii", "replace")

    def total_memory(self, device: Any) -> int:
        """Bytes of the device; no context is needed."""
        return int(self._call("cuDeviceTotalMem", device))

    def retain(self, device: Any, retained: Noted) -> Any:
        """The device's primary context, which is noted. It is retained once, where an interrupt came before too."""
        if not retained or retained[-1][1][0]:
            self._made(retained, "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRetain", device)
        return retained[-1][1][1]

    def release(self, device: Any, retained: Noted) -> None:
        if self.lost is None and retained:
            self._last_call(retained.pop, "cuDevicePrimaryCtxRelease", device)

    def push(self, context: Any, pushed: list[Any]) -> None:
        """Make a context current on this thread, and record that in the same step."""
        if self.lost is not None:
            raise faults.again(self.lost, "cuCtxPushCurrent")
        pushed.extend(map(self._binding.cuCtxPushCurrent, (context,)))
        code = pushed[-1][0]
        if code:
            pushed.pop()
            raise self._fault("cuCtxPushCurrent", int(code))

    def pop(self, pushed: list[Any]) -> None:
        """Undo the last recorded push."""
        if self.lost is not None:
            pushed.clear()
            return
        _, answer = unbroken((pushed.pop, self._binding.cuCtxPopCurrent))
        if answer[0]:
            raise self._fault("cuCtxPopCurrent", int(answer[0]))

    # Memory, on the current context

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the device."""
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def allocate(self, size: int, noted: Noted) -> int:
        return int(self._made(noted, "cuMemFree", "cuMemAlloc", size))

    def free(self, addresses: list[int]) -> None:
        """Free the last of some addresses, and take it off the list in the same step; where it is refused, it stays."""
        if self.lost is not None:
            addresses.pop()
            return
        address = addresses[-1]
        try:
            self._last_call(addresses.pop, "cuMemFree", address)
        except DslcError:
            addresses.append(address)
            raise

    def allocate_host(self, size: int, noted: Noted) -> int:
        """Pinned host memory."""
        return int(self._made(noted, "cuMemFreeHost", "cuMemHostAlloc", size, 0))

    def copy_in(self, device: int, host: int, size: int, stream: Any) -> None:
        self._call("cuMemcpyHtoDAsync", device, host, size, stream)

    def copy_out(self, host: int, device: int, size: int, stream: Any) -> None:
        self._call("cuMemcpyDtoHAsync", host, device, size, stream)

    def copy_rows(
        self, target: int, target_pitch: int, source: int, pitch: int, width: int, rows: int, stream: Any
    ) -> None:
        """Copies ``rows`` of ``width`` bytes with the given pitches in bytes. Each side is device memory or pinned host
        memory; the driver recognises which by the address."""
        copy = self._binding.CUDA_MEMCPY2D()
        copy.srcMemoryType = copy.dstMemoryType = self._binding.CUmemorytype(_UNIFIED_MEMORY)
        copy.srcDevice, copy.srcPitch = source, pitch
        copy.dstDevice, copy.dstPitch = target, target_pitch
        copy.WidthInBytes, copy.Height = width, rows
        self._call("cuMemcpy2DAsync", copy, stream)

    def copy(self, target: int, source: int, size: int, stream: Any) -> None:
        self._call("cuMemcpyDtoDAsync", target, source, size, stream)

    def fill(self, target: int, value: int, width: int, count: int, stream: Any) -> None:
        """Sets ``count`` elements of ``width`` bytes (1, 2 or 4) to ``value``."""
        self._call(f"cuMemsetD{8 * width}Async", target, value, count, stream)

    def fill_strided(self, target: int, pitch: int, value: int, count: int, stream: Any) -> None:
        """Sets ``count`` 4-byte elements, ``pitch`` bytes apart, to ``value``."""
        self._call("cuMemsetD2D32Async", target, pitch, value, 1, count, stream)

    def device_of(self, address: int) -> int:
        """The index of the device that owns this memory."""
        attribute = self._binding.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self._call("cuPointerGetAttribute", attribute, address))

    # Streams and events

    def stream(self, noted: Noted) -> Any:
        return self._made(noted, "cuStreamDestroy", "cuStreamCreate", _NON_BLOCKING)

    def synchronise(self, stream: Any) -> None:
        self._await("cuStreamSynchronize", "cuStreamQuery", stream)

    def wait(self, stream: Any, event: Any) -> None:
        """Later work on the stream waits for the event; the host does not."""
        self._call("cuStreamWaitEvent", stream, event, 0)

    def event(self, noted: Noted, timing: bool = False) -> Any:
        return self._made(noted, "cuEventDestroy", "cuEventCreate", 0 if timing else _TIMING_OFF)

    def record(self, event: Any, stream: Any) -> None:
        self._call("cuEventRecord", event, stream)

    def wait_host(self, event: Any) -> None:
        self._await("cuEventSynchronize", "cuEventQuery", event)

    def done(self, event: Any) -> bool:
        return self._ready("cuEventQuery", event)

    def elapsed(self, start: Any, end: Any) -> float:
        """Milliseconds between two events with timing."""
        return float(self._call("cuEventElapsedTime", start, end))

    # Memory of other processes' devices

    def shared(self, address: int) -> tuple[bytes, int]:
        """What another process of this host needs to open the allocation at an address; and the address's offset."""
        base, _ = self._call("cuMemGetAddressRange", address)
        handle = self._call("cuIpcGetMemHandle", base)
        return ctypes.string_at(handle.getPtr(), SHARED_BYTES), address - int(base)

    def open_shared(self, shared: bytes, noted: Noted) -> int:
        """The address here of another process's allocation. Each is opened once."""
        handle = self._binding.CUipcMemHandle()
        ctypes.memmove(handle.getPtr(), shared, SHARED_BYTES)
        flags = int(self._binding.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return int(self._made(noted, "cuIpcCloseMemHandle", "cuIpcOpenMemHandle", handle, flags))

    def write_number(self, address: int, number: int, stream: Any) -> None:
        """Writes 32 bits, here or on another device, when all that comes before is done and seen there."""
        self._call("cuStreamWriteValue32", stream, address, number, 0)

    def wait_for_number(self, address: int, number: int, stream: Any) -> None:
        """Later work on the stream waits until the 32 bits there are at least ``number``, counted round."""
        self._call("cuStreamWaitValue32", stream, address, number, _AT_LEAST)

    # Code and launches

    def load_module(self, image: bytes, noted: Noted) -> Any:
        """A cubin, or PTX with its final NUL."""
        return self._made(noted, "cuModuleUnload", "cuModuleLoadData", image)

    def function(self, module: Any, name: str) -> Any:
        return self._call("cuModuleGetFunction", module, name.encode("ascii"))

    def most_threads(self, function: Any) -> int:
        attribute = self._binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        return int(self._call("cuFuncGetAttribute", attribute, function))

    def allow_shared(self, function: Any, size: int) -> None:
        """Allow the function to use ``size`` bytes of dynamic shared memory."""
        attribute = self._binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._call("cuFuncSetAttribute", function, attribute, size)

    def launch(
        self, function: Any, grid: Sequence[int], block: Sequence[int], shared: int, args: Arguments, stream: Any
    ) -> None:
        self._call("cuLaunchKernel", function, *grid, *block, shared, stream, args.address, 0)

    def launch_together(
        self, function: Any, grid: Sequence[int], block: Sequence[int], shared: int, args: Arguments, stream: Any
    ) -> None:
        """A kernel whose blocks wait for one another: all are on the device at once, or the launch fails."""
        self._call("cuLaunchCooperativeKernel", function, *grid, *block, shared, stream, args.address)


def load_driver() -> Driver:
    """The machine's driver, initialised. EnvironmentFault R201 if there is none."""
    try:
        from cuda.bindings import driver as binding
    except ImportError as error:
        raise EnvironmentFault(
            "R201",
            f"the package cuda-bindings cannot be imported: {error}",
            help='pip install "cuda-bindings>=13,<14", or take the CPU: device="cpu", or --device cpu',
        ) from error
    driver = Driver(binding, patience())
    try:
        driver.init()
    except RuntimeError as error:  # raised by the bindings if libcuda cannot be opened
        raise EnvironmentFault(
            "R201",
            f"no NVIDIA driver was found (libcuda): {error}",
            help='install the driver, or take the CPU: device="cpu", or --device cpu',
        ) from error
    return driver
