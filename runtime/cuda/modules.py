"""The GPU code of an artifact: checked, loaded when one of its kernels is first requested, unloaded together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import ArtifactError, DslcError, EnvironmentFault
from dslc.runtime.cuda.code import check_cubin, check_ptx, cubin_parameters, ptx_parameters
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.owned import let_go_of

if TYPE_CHECKING:
    from dslc.runtime.cuda.libraries.checked_calls import Noted

_SHARED_WITHOUT_ASKING: Final = 48 << 10  # bytes of dynamic shared memory that any kernel may use
_WAIT: Final = b"griddepcontrol.wait;"
_LOOKS: Final = b"ld.relaxed.gpu.", b"ld.acquire.gpu."


def _ptx_of(cubin: str) -> str:
    """The name of the PTX that belongs to a cubin."""
    return cubin.removesuffix(".cubin") + ".ptx"


class Modules:
    """The code of one target on one device, whose context must be current in every call but the constructor.

    ``blobs``: the artifact's blobs by name. Kernels name their cubins; with ``through_ptx``, the driver compiles the
    PTX of the same name instead. ``compilations`` counts these, and ``seconds`` is their time.
    """

    def __init__(
        self, device: Device, blobs: Mapping[str, memoryview], capability: tuple[int, int], through_ptx: bool
    ) -> None:
        self._device = device
        self._blobs = blobs
        self._capability = capability  # of the target
        self._through_ptx = through_ptx
        self._modules: dict[str, Any] = {}
        self._noted: Noted = []
        self._functions: dict[tuple[str, str], Any] = {}
        self._shared: dict[tuple[str, str], int] = {}
        self._said: dict[str, tuple[bool, bool]] = {}
        self.compilations = 0
        self.seconds = 0.0

    def function(
        self, blob: str, symbol: str, block: Sequence[int], shared: int, sizes: Sequence[int], where: str
    ) -> Any:
        """The kernel's handle, allowed to use ``shared`` bytes of dynamic shared memory.

        ``sizes``: the sizes of its arguments in bytes. ArtifactError R301 if the kernel differs from the plan's
        description.
        """
        key = (blob, symbol)
        driver = self._device.driver
        try:
            if key not in self._functions:
                function = driver.function(self._module(blob), symbol)
                self._match(function, blob, symbol, block, sizes, where)
                self._functions[key] = function
            if shared > self._shared.get(key, _SHARED_WITHOUT_ASKING):
                driver.allow_shared(self._functions[key], shared)
                self._shared[key] = shared
        except DslcError as error:
            error.place = f"{where} ({blob}): {error.place}"
            raise
        return self._functions[key]

    def waits(self, blob: str) -> bool:
        """True if a kernel's code waits by itself for the previously launched kernel, according to its PTX."""
        return self._says(blob)[0]

    def together(self, blob: str, blocks: int, where: str) -> bool:
        """True if blocks of a kernel wait for one another, so that all must be on the device at once, according to its
        PTX: they look at what others write meanwhile. EnvironmentFault R202 if the device has too few multiprocessors
        for so many ``blocks``, which have one each."""
        if not self._says(blob)[1]:
            return False
        if blocks > (count := self._device.multiprocessors):
            raise EnvironmentFault(
                "R202",
                f"a kernel of {blocks} blocks that wait for one another needs as many multiprocessors; this GPU has "
                f"{count}",
                place=where,
                help="use a whole GPU of the kind the artifact was built for, or build for sm_80, which has no such "
                "kernels",
            )
        return True

    def _says(self, blob: str) -> tuple[bool, bool]:
        """Whether the kernel's PTX has these two instructions."""
        if blob not in self._said:
            ptx = bytes(self._blobs.get(_ptx_of(blob)) or b"")
            self._said[blob] = _WAIT in ptx, any(look in ptx for look in _LOOKS)
        return self._said[blob]

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
            module = self._device.driver.load_module(bytes(data) + b"\0", self._noted)
            self.compilations += 1
            self.seconds += time.monotonic() - begun
        else:
            check_cubin(data, self._capability, name)
            module = self._device.driver.load_module(bytes(data), self._noted)
        self._modules[name] = module
        return module

    def _match(
        self, function: Any, blob: str, symbol: str, block: Sequence[int], sizes: Sequence[int], where: str
    ) -> None:
        most = self._device.driver.most_threads(function)
        if self._through_ptx:
            have = ptx_parameters(self._blobs[_ptx_of(blob)], symbol)
        else:
            have = cubin_parameters(self._blobs[blob], symbol, blob)
        wrong = None
        if have != list(sizes):
            wrong = f"takes arguments of {have} bytes, the plan gives {list(sizes)}"
        elif prod(block) > most:
            wrong = f"runs at most {most} threads a block, the plan asks for {prod(block)}"
        if wrong is not None:
            raise ArtifactError("R301", f"the kernel {symbol} {wrong}", place=where, help="build the artifact again")

    def close(self) -> None:
        """Unload all code; no stream may still use it."""
        self._functions.clear()
        self._modules.clear()
        let_go_of(self._device.driver, self._noted)
