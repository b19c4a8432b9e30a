"""Checks on the GPU whether arrays there hold values outside their ranges, such as labels that are no class.

The artifact has the kernels. A check runs on the device's stream for arrays of other libraries, so it waits for the
arrays, and not for the steps that run on other streams. The kernel writes to the host's memory only if it finds a value
outside; the host waits for its end. All this comes before the run of the call, so a refused call changes nothing. A
check within the step's graph would be too late: kernels would read and write outside their buffers before it could have
the update skipped, and the error would belong to a step that is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import DslcError
from dslc.runtime.artifact.reserved import CHECK_ARGUMENTS, CHECK_THREADS, check_blob, check_symbol
from dslc.runtime.cuda.arrays.arrays import DeviceArray
from dslc.runtime.cuda.arrays.pinned import pinned
from dslc.runtime.cuda.graphs.lone_kernel import LoneKernel
from dslc.runtime.session.context_pool import Pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.driver import Driver
    from dslc.runtime.cuda.modules import Modules
    from dslc.runtime.cuda.owned import Owned
    from dslc.runtime.session.backend import OnDevice

_APART: Final = 64  # bytes between the flags of two threads
_EACH: Final = 4  # values of a thread, before there are more blocks
_MOST_BLOCKS: Final = 1024
_LARGEST: Final = (1 << 63) - 1  # of an i64
_KINDS: Final = ("pointer", "pointer", "i64", "i64", "i64")  # of the kernel's arguments


class _Place:
    """What a thread checks with: the kernel of each dtype, a flag in pinned memory, u32[1], and the event of the end.
    ``busy``: a kernel may still write the flag, since an interrupt or an error came before its end."""

    def __init__(self, kernels: Mapping[str, LoneKernel], memory: NDArray[np.uint8], address: int, done: Any) -> None:
        self.kernels, self.flag, self.address, self.done = kernels, memory[:4].view(np.uint32), address, done
        self.busy = False


class RangeChecks:
    """``listed``: the names of the artifact's cubins for ``target``; one of an older dslc has none for checks.
    ``dtypes``: of the inputs whose values have a range. ``threads``: how many check at a time; others wait. The
    device's context is current. ArtifactError R301 for a kernel that takes other arguments."""

    def __init__(
        self,
        device: Device,
        modules: Modules,
        listed: Iterable[str],
        target: str,
        dtypes: Iterable[str],
        threads: int,
        owned: Owned,
    ) -> None:
        self._device = device
        blobs = {dtype: blob for dtype in dtypes if (blob := check_blob(dtype, target)) in {*listed}}
        self._functions = {
            dtype: modules.function(
                blob, check_symbol(dtype), (CHECK_THREADS, 1, 1), 0, CHECK_ARGUMENTS, f"the check of {dtype} inputs"
            )
            for dtype, blob in blobs.items()
        }
        self.waits = 0
        count = threads if self._functions else 0
        memory, address = pinned(device, _APART * count, owned.noted)
        self._places = [
            _Place(
                {dtype: LoneKernel(device, f, _KINDS, CHECK_THREADS, owned) for dtype, f in self._functions.items()},
                memory[at : at + _APART],
                address + at,
                device.driver.event(owned.noted),
            )
            for at in range(0, _APART * count, _APART)
        ]
        self._pool = Pool(self._places)
        owned.on_close(self._close)

    def may_be_outside(self, ranged: Sequence[tuple[OnDevice, tuple[int, int]]]) -> bool:
        """``Backend.may_be_outside``. For any thread."""
        found: list[tuple[DeviceArray, int, int]] = []
        for array, (low, high) in ranged:
            assert isinstance(array, DeviceArray)
            if not prod(array.shape):
                continue
            last = min(high - 1, _LARGEST)
            if array.dtype not in self._functions or last < low:
                return True
            found.append((array, low, last))
        if not found:
            return False
        with self._pool.shared() as scope, scope as place, self._device as device:
            try:
                return self._look(place, found, device.driver, device.inbox)
            except DslcError as error:
                error.place = f"the check of inputs: {error.place}"
                raise

    def _look(self, place: _Place, arrays: Sequence[tuple[DeviceArray, int, int]], driver: Driver, stream: Any) -> bool:
        if place.busy:
            driver.synchronise(stream)
        place.flag[0] = 0
        place.busy = True
        for array, low, last in arrays:
            if array.ready is not None:
                driver.wait(stream, array.ready)
            count = prod(array.shape)
            blocks = min(-(-count // (CHECK_THREADS * _EACH)), _MOST_BLOCKS)
            values = (array.address, place.address, count, low, last)
            place.kernels[array.dtype].launch(blocks, [*zip(_KINDS, values)], stream)
        driver.record(place.done, stream)
        self.waits += 1
        driver.wait_host(place.done)
        place.busy = False
        return bool(place.flag[0])

    def _close(self) -> None:
        """Wait for checks that run, and refuse later ones."""
        if not self._places:
            return
        with self._pool.closing() as scope, scope:
            if self._device.driver.lost is None and any(place.busy for place in self._places):
                self._device.driver.synchronise(self._device.inbox)
