"""The GPU code of an artifact: checked, loaded when a kernel of it is first asked for, unloaded together."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

from dslc.base.errors import ArtifactError, DslcError
from dslc.runtime.cuda.device import Device

_SHARED_WITHOUT_ASKING: Final = 48 << 10  # bytes of dynamic shared memory that any kernel may take
_CUDA_MACHINE: Final = 190  # EM_CUDA
_SECTION_HEADER: Final = 64
_WAIT: Final = b"griddepcontrol.wait;"
_NO_BITS: Final = 8  # SHT_NOBITS: a section without bytes in the file


def check_cubin(data: bytes | memoryview, capability: tuple[int, int], place: str) -> None:
    """Raise ArtifactError R301 unless ``data`` is an ELF file for NVIDIA GPUs, of this architecture, with all its
    sections within. The driver is given nothing else."""

    def refuse(why: str) -> ArtifactError:
        return ArtifactError("R301", f"a cubin {why}", place=place, help="build the artifact again")

    if len(data) < 64 or bytes(data[:7]) != b"\x7fELF\x02\x01\x01":
        raise refuse("that is no ELF file of 64 bits")
    _, machine, _, _, _, sections, flags, size, _, _, entry, count, _ = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)
    if machine != _CUDA_MACHINE or size != 64:
        raise refuse("that is not for NVIDIA GPUs")
    # The architecture is the second byte of the flags since version 8 of the ABI, the first before.
    architecture = flags >> 8 & 0xFF if data[8] >= 8 else flags & 0xFF
    if architecture != 10 * capability[0] + capability[1]:
        raise refuse(f"for sm_{architecture}, where one for sm_{capability[0]}{capability[1]} was expected")
    if count and (entry != _SECTION_HEADER or sections + entry * count > len(data)):
        raise refuse("whose table of sections ends behind the file")
    for index in range(count):
        _, kind, _, _, offset, length = struct.unpack_from("<IIQQQQ", data, sections + entry * index)
        if kind != _NO_BITS and offset + length > len(data):
            raise refuse(f"whose section {index} ends behind the file")


def check_ptx(data: bytes | memoryview, place: str) -> None:
    """Raise ArtifactError R301 unless ``data`` is ASCII without NUL."""
    text = bytes(data)
    if not text.isascii() or b"\0" in text:
        raise ArtifactError("R301", "PTX that is no plain text", place=place, help="build the artifact again")


def _ptx_of(cubin: str) -> str:
    """The name of the PTX beside a cubin."""
    return cubin.removesuffix(".cubin") + ".ptx"


class Modules:
    """The code of one target on one device, whose context is current in every call but the constructor.

    ``blobs``: the artifact's blobs by name. Kernels name their cubins; with ``through_ptx`` the PTX of the same name is
    taken, which the driver compiles: ``compilations`` counts those and ``seconds`` is the time they took.
    """

    def __init__(
        self, device: Device, blobs: Mapping[str, memoryview], capability: tuple[int, int], through_ptx: bool
    ) -> None:
        self._device = device
        self._blobs = blobs
        self._capability = capability  # of the target
        self._through_ptx = through_ptx
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        self._shared: dict[tuple[str, str], int] = {}
        self._waits: dict[str, bool] = {}
        self.compilations = 0
        self.seconds = 0.0

    def function(
        self, blob: str, symbol: str, block: Sequence[int], shared: int, sizes: Sequence[int], where: str
    ) -> Any:
        """The kernel's handle, allowed to take ``shared`` bytes of dynamic shared memory.

        ``sizes``: bytes of its arguments. ArtifactError R301 where the kernel is another than the plan says.
        """
        key = (blob, symbol)
        driver = self._device.driver
        try:
            if key not in self._functions:
                function = driver.function(self._module(blob), symbol)
                self._match(function, symbol, block, sizes, where)
                self._functions[key] = function
            if shared > self._shared.get(key, _SHARED_WITHOUT_ASKING):
                driver.allow_shared(self._functions[key], shared)
                self._shared[key] = shared
        except DslcError as error:
            error.place = f"{where} ({blob}): {error.place}"
            raise
        return self._functions[key]

    def waits(self, blob: str) -> bool:
        """Whether a kernel's code waits by itself for the kernel that was launched before it, as its PTX says."""
        if blob not in self._waits:
            ptx = self._blobs.get(_ptx_of(blob))
            self._waits[blob] = ptx is not None and _WAIT in bytes(ptx)
        return self._waits[blob]

    def _module(self, blob: str) -> Any:
        name = _ptx_of(blob) if self._through_ptx else blob
        if name in self._modules:
            return self._modules[name]
        if name not in self._blobs:
            raise ArtifactError("R301", f"there is no blob {name!r}", place=name, help="build the artifact again")
        data = self._blobs[name]
        if self._through_ptx:
            check_ptx(data, name)
            begun = time.monotonic()
            module = self._device.driver.load_module(bytes(data) + b"\0")
            self.compilations += 1
            self.seconds += time.monotonic() - begun
        else:
            check_cubin(data, self._capability, name)
            module = self._device.driver.load_module(bytes(data))
        self._modules[name] = module
        return module

    def _match(self, function: Any, symbol: str, block: Sequence[int], sizes: Sequence[int], where: str) -> None:
        have, most = self._device.driver.parameter_sizes(function), self._device.driver.most_threads(function)
        wrong = None
        if have != list(sizes):
            wrong = f"takes arguments of {have} bytes, the plan gives {list(sizes)}"
        elif prod(block) > most:
            wrong = f"runs at most {most} threads a block, the plan asks for {prod(block)}"
        if wrong is not None:
            raise ArtifactError("R301", f"the kernel {symbol} {wrong}", place=where, help="build the artifact again")

    def close(self) -> None:
        """Unload all of it; no stream may still use it."""
        self._functions.clear()
        while self._modules:
            self._device.driver.unload(self._modules.popitem()[1])
