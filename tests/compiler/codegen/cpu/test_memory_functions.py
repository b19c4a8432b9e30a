"""An object's own memcpy and memset: every length and alignment, nothing written outside."""

from __future__ import annotations

import ctypes

import numpy as np

from dslc.compiler.codegen.cpu.object.compile import object_of
from dslc.runtime.cpu.levels import machine_level
from dslc.runtime.cpu.objects import Objects


def test_every_length_and_alignment() -> None:
    level = machine_level(("x86_64_v3", "x86_64_v4", "armv8_2"))
    loaded = Objects(object_of({}, level), ["memcpy", "memset"])
    pointer = ctypes.c_void_p
    copy = ctypes.CFUNCTYPE(pointer, pointer, pointer, ctypes.c_int64)(loaded.address("memcpy"))
    fill = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_int32, ctypes.c_int64)(loaded.address("memset"))
    rng = np.random.default_rng(0)
    source = rng.integers(0, 256, 512, np.uint8)
    for count in (*range(0, 140), 191, 192, 193, 256, 300):
        for shift in (0, 1, 7, 33):
            target = rng.integers(0, 256, 512, np.uint8)
            wanted = target.copy()
            wanted[shift : shift + count] = source[3 : 3 + count]
            place = target.ctypes.data + shift
            assert copy(place, source.ctypes.data + 3, count) == place and (target == wanted).all()
            wanted[shift : shift + count] = 0xAB
            assert fill(place, 0x1AB, count) == place and (target == wanted).all()
