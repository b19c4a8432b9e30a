"""Kernels on a real GPU through ``cuda.bindings.driver`` alone: memory, modules, launches, graphs, times."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dslc.runtime.cuda.code import cubin_parameters

#: The guard bytes after every block of memory; they reveal writes past its end.
GUARD = np.full(64, 0xA5, np.uint8)


def why_not() -> str | None:
    """Why no GPU can be used; None where one can."""
    try:
        import cuda.bindings.driver as driver
    except ImportError:
        return "no cuda.bindings"
    try:
        code, count = driver.cuInit(0)[0], 0
        if not int(code):
            code, count = driver.cuDeviceGetCount()
    except RuntimeError:  # no libcuda
        return "no NVIDIA driver"
    return None if not int(code) and count else "no NVIDIA GPU"


class Gpu:
    """The first GPU, its primary context current in this thread."""

    def __init__(self) -> None:
        import cuda.bindings.driver as driver

        self.driver = driver
        self.call("cuInit", 0)
        self.device = self.call("cuDeviceGet", 0)
        self.call("cuCtxSetCurrent", self.call("cuDevicePrimaryCtxRetain", self.device))
        self.stream = self.call("cuStreamCreate", 1)
        self.modules: dict[str, Any] = {}
        self.parameters: dict[int, int] = {}  # of each kernel

    def call(self, name: str, *args: Any) -> Any:
        answer = getattr(self.driver, name)(*args)
        assert not int(answer[0]), f"{name}: {answer[0]!r}"
        return answer[1] if len(answer) == 2 else answer[1:]

    @property
    def architecture(self) -> str:
        kinds = self.driver.CUdevice_attribute
        parts = (
            self.call("cuDeviceGetAttribute", kind, self.device)
            for kind in (
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        return "sm_" + "".join(str(part) for part in parts)

    def allocate(self, size: int) -> int:
        return int(self.call("cuMemAlloc", max(256, size)))

    def free(self, address: int) -> None:
        self.call("cuMemFree", address)

    def upload(self, address: int, data: np.ndarray) -> None:
        """The bytes are there when it returns: ``cuMemcpyHtoD`` promises that of pinned memory alone, and this stream
        does not wait for the default one."""
        if data.nbytes:
            whole = np.ascontiguousarray(data)
            self.call("cuMemcpyHtoDAsync", address, whole.ctypes.data, data.nbytes, self.stream)
            self.wait()

    def download(self, address: int, size: int) -> np.ndarray:
        """What stands there after all work so far."""
        data = np.empty(size, np.uint8)
        if size:
            self.call("cuMemcpyDtoHAsync", data.ctypes.data, address, size, self.stream)
            self.wait()
        return data

    def kernel(self, symbol: str, cubin: bytes) -> Any:
        """The function of that name; a module is loaded once."""
        if symbol not in self.modules:
            self.modules[symbol] = self.call("cuModuleLoadData", cubin)
        found = self.call("cuModuleGetFunction", self.modules[symbol], symbol.encode())
        if int(found) not in self.parameters:
            self.parameters[int(found)] = len(cubin_parameters(cubin, symbol, symbol))
        return found

    def launch(
        self,
        kernel: Any,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        addresses: Sequence[int],
        early: bool = False,
    ) -> None:
        """``early``: while the kernel before ends, for which this one waits by itself, as in a session."""
        wanted = self.parameters[int(kernel)]  # the driver reads as many, whatever there is
        assert len(addresses) == wanted, f"{len(addresses)} arguments for a kernel of {wanted}"
        values = (ctypes.c_uint64 * max(1, len(addresses)))(*addresses)
        first = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * max(1, len(addresses)))(*(first + 8 * i for i in range(len(addresses))))
        if shared > 48 << 10:
            limit = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call("cuFuncSetAttribute", kernel, limit, shared)
        if not early:
            self.call("cuLaunchKernel", kernel, *grid, *block, shared, self.stream, ctypes.addressof(pointers), 0)
            return
        attribute, config = self.driver.CUlaunchAttribute(), self.driver.CUlaunchConfig()
        attribute.id = self.driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes, config.hStream = shared, self.stream
        config.attrs, config.numAttrs = [attribute], 1
        self.call("cuLaunchKernelEx", config, kernel, ctypes.addressof(pointers), 0)

    def copy(self, target: int, source: int, size: int) -> None:
        self.call("cuMemcpyDtoDAsync", target, source, size, self.stream)

    def wait(self) -> None:
        self.call("cuStreamSynchronize", self.stream)

    def seconds(self, work: Callable[[], None], repeat: int, rounds: int) -> list[float]:
        """Times of ``work``, each from a graph that repeats it: ``rounds`` of them, sorted."""
        self.call("cuStreamBeginCapture", self.stream, self.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        for _ in range(repeat):
            work()
        graph = self.call("cuStreamEndCapture", self.stream)
        ready = self.call("cuGraphInstantiate", graph, 0)
        start, end = (self.call("cuEventCreate", 0) for _ in range(2))
        times = []
        for number in range(rounds + 2):  # two to warm up
            self.call("cuEventRecord", start, self.stream)
            self.call("cuGraphLaunch", ready, self.stream)
            self.call("cuEventRecord", end, self.stream)
            self.call("cuEventSynchronize", end)
            if number > 1:
                times.append(self.call("cuEventElapsedTime", start, end) / 1e3 / repeat)
        self.call("cuGraphExecDestroy", ready)
        self.call("cuGraphDestroy", graph)
        return sorted(times)
