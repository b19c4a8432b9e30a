"""Arrays in a GPU's memory, ours and those of other libraries, exchanged by DLPack and the CUDA array interface.

The producer of an array states the stream on which it becomes ready; the consumer here waits for that stream on the
device. Our exported arrays are ready: the run that made them is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import DslcError, InputError
from dslc.runtime.artifact.dtypes import ITEMSIZE, name_of, numpy_dtype
from dslc.runtime.cuda.arrays import dlpack
from dslc.runtime.cuda.owned import Owned
from dslc.runtime.session.backend import OnDevice
from dslc.runtime.session.inputs.arrays import foreign

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.device import Device

_DEFAULT_STREAM: Final = 1  # the legacy default stream, as both protocols and the driver number it


class DeviceArray(OnDevice):
    """A dense row-major array in a GPU's memory. ``dtype`` is our name, also bf16.

    Pass it to another library with ``torch.from_dlpack(a)`` or ``cupy.asarray(a)``; ``numpy()`` copies it to the host.
    The memory lives as long as the array and all views of it.
    """

    def __init__(
        self, device: Device, address: int, dtype: str, shape: Sequence[int], owner: object, ready: Any = None
    ) -> None:
        self.device, self.address, self.dtype, self.shape = device, address, dtype, tuple(shape)
        self.owner, self.ready = owner, ready

    @property
    def nbytes(self) -> int:
        return ITEMSIZE[self.dtype] * prod(self.shape)

    def __getitem__(self, rows: slice) -> DeviceArray:
        """Rows of the first axis, sharing memory."""
        start, stop, stride = rows.indices(self.shape[0])
        if stride != 1:
            raise IndexError("only consecutive rows share memory")
        step = ITEMSIZE[self.dtype] * prod(self.shape[1:])
        address = self.address + start * step
        return DeviceArray(self.device, address, self.dtype, (max(0, stop - start), *self.shape[1:]), self, self.ready)

    def at(self, index: int) -> DeviceArray:
        address = self.address + index * ITEMSIZE[self.dtype] * prod(self.shape[1:])
        return DeviceArray(self.device, address, self.dtype, self.shape[1:], self, self.ready)

    def numpy(self) -> NDArray[Any]:
        """A copy on the host; bf16 as raw bits in uint16."""
        out = np.empty(self.shape, numpy_dtype(self.dtype))
        if out.nbytes:
            with self.device as device:
                stream = device.inbox
                if self.ready is not None:
                    device.driver.wait_host(self.ready)
                device.driver.copy_out(out.ctypes.data, self.address, out.nbytes, stream)
                device.driver.synchronise(stream)
        return out

    def __array__(self, *args: object, **kwargs: object) -> NDArray[Any]:
        """TypeError: nothing is copied to the host unasked."""
        raise TypeError(f"{self!r} is not in the host's memory; `.numpy()` copies it there")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CUDA, self.device.index)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """``stream`` need not wait, because the array is ready. BufferError for a copy or another device."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a GPU array of dslc is shared without a copy, on its own device")
        return dlpack.give(self.address, self.device.index, self.dtype, self.shape, self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bf16":
            raise AttributeError("bf16 has no type string; use DLPack")
        typestr = numpy_dtype(self.dtype).str
        return {"shape": self.shape, "typestr": typestr, "data": (self.address, False), "strides": None,
                "version": 3, "stream": None}  # fmt: skip

    def __repr__(self) -> str:
        return f"<dslc array {self.dtype}[{', '.join(map(str, self.shape))}] on {self.device}>"


def new_array(device: Device, dtype: str, shape: Sequence[int]) -> DeviceArray:
    """An array in memory of the pool, which is returned when the array has no more references. OutOfMemory R401."""
    size = ITEMSIZE[dtype] * prod(shape)
    owned = Owned(device)
    return DeviceArray(device, device.pool.allocate(max(1, size), owned.noted).address, dtype, shape, owned)


def lies_on_gpu(value: object) -> bool:
    """True if an input is an array in a GPU's memory, by either protocol. Does not call the driver."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    try:
        if hasattr(value, "__dlpack_device__"):
            return int(value.__dlpack_device__()[0]) == dlpack.CUDA
        return getattr(value, "__cuda_array_interface__", None) is not None
    except DslcError:
        raise
    except Exception:  # noqa: BLE001  (code of the caller's, which raises what it likes; it is reported when it is read)
        return False


def foreign_array(device: Device, value: Any, name: str, place: str) -> DeviceArray:
    """An array of another library on this GPU, shared, not copied. It must not be read before its ``ready`` event.

    InputError R105 for an array that is on another device, has an unsupported dtype, or is not dense.
    """
    if isinstance(value, DeviceArray):
        found, ready = value, value.ready
        described = dlpack.Description(
            found.address, found.__dlpack_device__(), found.dtype, found.shape, dlpack.dense_strides(found.shape), found
        )
    else:
        with device:
            described, stream = _described(device, value, name, place)
            ready = None
            if stream is not None:
                ready = _Ready(device)
                device.driver.record(ready.event, stream)
    if described.device != (dlpack.CUDA, device.index):
        raise InputError(
            "R105",
            f"`{name}` lies on the GPU {described.device[1]}, the session runs on {device}",
            place=place,
            help=f"copy it there first, for instance x.to('cuda:{device.index}')",
        )
    dense = dlpack.dense_strides(described.shape)
    strided = any(a != b for a, b, n in zip(described.strides, dense, described.shape) if n > 1)
    if strided and 0 not in described.shape:
        raise InputError(
            "R105", f"`{name}` is not contiguous", place=place, help="pass x.contiguous(): nothing is copied silently"
        )
    if described.dtype is None:
        raise InputError("R105", f"`{name}` has a dtype that no model supports", place=place, help="convert it first")
    event = ready.event if isinstance(ready, _Ready) else ready
    return DeviceArray(device, described.address, described.dtype, described.shape, (described.owner, ready), event)


class _Ready:
    """An event that is destroyed when it has no more references."""

    def __init__(self, device: Device) -> None:
        self._owned = Owned(device)
        self.event = device.driver.event(self._owned.noted)


def _described(device: Device, value: Any, name: str, place: str) -> tuple[dlpack.Description, Any]:
    """The array, and the stream on which it becomes ready; None if it is ready now."""
    help = "pass it as a numpy array, for instance x.detach().cpu().numpy()"
    with foreign(f"`{name}` cannot be read on its device", place, help):
        if hasattr(value, "__dlpack__"):
            # The producer makes our stream wait for the work that writes the array.
            return dlpack.take(value.__dlpack__(stream=int(device.inbox))), device.inbox
        return _of_interface(device, value)


def _of_interface(device: Device, value: Any) -> tuple[dlpack.Description, Any]:
    found = value.__cuda_array_interface__
    if found.get("mask") is not None:
        raise ValueError("it has a mask")
    shape = tuple(int(n) for n in found["shape"])
    dtype = np.dtype(found["typestr"])
    strides = found.get("strides")
    steps = dlpack.dense_strides(shape) if strides is None else tuple(s // dtype.itemsize for s in strides)
    address, _ = found["data"]
    index = device.driver.device_of(int(address)) if address else device.index
    described = dlpack.Description(int(address or 0), (dlpack.CUDA, index), name_of(dtype), shape, steps, value)
    stream = found.get("stream", _DEFAULT_STREAM if found.get("version", 3) < 3 else None)
    if stream == 0:
        raise ValueError("its stream is 0, which the interface does not allow")
    return described, stream
