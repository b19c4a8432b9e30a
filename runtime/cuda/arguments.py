"""A kernel's arguments in the form that the driver reads."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Final

_PACK: Final = {"i32": "<i", "i64": "<q", "f32": "<f", "f64": "<d", "pointer": "<Q"}


class Arguments:
    """A kernel's arguments in the driver's form: an array of pointers, one to the 8 bytes of each value.

    ``values``: (i32 | i64 | f32 | f64 | pointer, value). Keep it until the launch, or the graph's node, is created.
    """

    __slots__ = ("_pointers", "_values", "address", "count")

    def __init__(self, values: Sequence[tuple[str, int | float]]) -> None:
        raw = b"".join(struct.pack(_PACK[kind], value).ljust(8, b"\0") for kind, value in values)
        self._values = ctypes.create_string_buffer(raw, len(raw) + 8)
        first = ctypes.addressof(self._values)
        self._pointers = (ctypes.c_void_p * (len(values) + 1))(*(first + 8 * i for i in range(len(values))))
        self.address = ctypes.addressof(self._pointers)
        self.count = len(values)
