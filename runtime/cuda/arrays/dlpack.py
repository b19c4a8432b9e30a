"""DLPack tensors in their C layout, through ctypes: imports those of other libraries and exports ours.

Follows dlpack.h, version 0 of the protocol (``DLManagedTensor`` in a capsule called ``dltensor``), which every library
that exchanges GPU arrays supports.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

CPU: Final = 1  # kDLCPU
CUDA: Final = 2  # kDLCUDA
_UNUSED: Final = b"dltensor"
_USED: Final = b"used_dltensor"

#: Our names of dtypes -> (code, bits) of dlpack.h.
_CODES: Final = {
    "f64": (2, 64), "f32": (2, 32), "f16": (2, 16), "bf16": (4, 16), "i64": (0, 64), "i32": (0, 32), "i16": (0, 16),
    "i8": (0, 8), "u64": (1, 64), "u32": (1, 32), "u16": (1, 16), "u8": (1, 8), "b1": (6, 8),
}  # fmt: skip
_NAMES: Final = {code: name for name, code in _CODES.items()}

_DELETER: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api: Final = ctypes.pythonapi
_capsule_new: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)
_capsule_pointer: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_capsule_is_valid: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_capsule_rename: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
# In a capsule's destructor the object is being destroyed: it is passed as an address, so that its reference count does
# not change.
_dying_is_valid: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_dying_pointer: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


@dataclass(frozen=True, slots=True)
class Description:
    """The address and layout of a dense or strided tensor. ``strides`` are in elements; ``owner`` keeps the memory
    alive."""

    address: int
    device: tuple[int, int]
    dtype: str | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: object


class _Owner:
    """Calls a foreign tensor's deleter when our last reference is dropped."""

    def __init__(self, managed: _Managed) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.deleter:
            self._managed.deleter(ctypes.addressof(self._managed))


def take(capsule: Any) -> Description:
    """Imports and consumes the tensor of a capsule. ValueError for anything else."""
    if not _capsule_is_valid(capsule, _UNUSED):
        raise ValueError("not a DLPack capsule, or it was used before")
    managed = _Managed.from_address(_capsule_pointer(capsule, _UNUSED))
    _capsule_rename(capsule, _USED)
    tensor = managed.tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else dense_strides(shape)
    name = _NAMES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    address = (tensor.data or 0) + tensor.byte_offset
    return Description(address, (tensor.device_type, tensor.device_id), name, shape, strides, _Owner(managed))


#: Our tensors in use by other libraries: the address of the structure -> the objects that must live as long.
_given: dict[int, tuple[object, ...]] = {}


def _let_go(address: int) -> None:
    _given.pop(address, None)


def _capsule_dies(capsule: int) -> None:
    if _dying_is_valid(capsule, _UNUSED):  # no consumer has taken it
        _let_go(_dying_pointer(capsule, _UNUSED))


_delete: Final = _DELETER(_let_go)
_destroy: Final = _DELETER(_capsule_dies)


def give(address: int, device: int, dtype: str, shape: Sequence[int], owner: object) -> Any:
    """A capsule for dense GPU memory; ``owner`` is kept until the consumer releases it."""
    sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    steps = (ctypes.c_int64 * max(1, len(shape)))(*dense_strides(shape))
    code, bits = _CODES[dtype]
    managed = _Managed(_Tensor(address, CUDA, device, len(shape), code, bits, 1, sizes, steps, 0), None, _delete)
    place = ctypes.addressof(managed)
    _given[place] = (managed, sizes, steps, owner)
    return _capsule_new(place, _UNUSED, ctypes.cast(_destroy, ctypes.c_void_p))


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
