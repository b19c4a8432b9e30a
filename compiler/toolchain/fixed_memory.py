"""Gives a compiler library memory at fixed addresses, so that its output is a function of its input.

NVIDIA's compilers sort by address and iterate over tables whose order depends on addresses. So whether they recognise a
load as redundant depends on the location of their data. Address randomisation, the size of the environment and every
earlier allocation move the data. Here a loaded library gets an allocator of its own: the slots through which it calls
``malloc`` and related functions point to code whose memory has the same address in all processes.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from typing import Any, Final

import numpy as np

from dslc.compiler.toolchain.allocator import DEFINED, SPAN, allocator

#: It exists in 39-bit address spaces, and is far from programs, their heaps and their libraries.
_FIRST: Final = 1 << 37
_APART: Final = 4 << 30  # distance between the memories of two libraries, in bytes

_MAP_NORESERVE: Final = 0x4000
_MAP_FIXED_NOREPLACE: Final = 0x100000
_PROT_NONE: Final = 0
_RTLD_NOW: Final = 2
_RTLD_NOLOAD: Final = 4
_RTLD_DI_LINKMAP: Final = 2

# Tags of an ELF file's dynamic section.
_NULL, _PLTRELSZ, _STRTAB, _SYMTAB, _RELA, _RELASZ, _JMPREL = 0, 2, 5, 6, 7, 8, 23
_SYMBOL_BYTES: Final = 24
_RELOCATION: Final = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
#: Relocations that write a symbol's address: for a call, for a pointer in a table of pointers, for any other pointer.
_SLOTS: Final = {"x86_64": (7, 6, 1), "aarch64": (1026, 1025, 257)}

_kept: list[Any] = []  # the allocators' code, which must outlive the libraries that call it


class _LinkMap(ctypes.Structure):
    """The public part of the loader's record of a library."""

    _fields_ = (("address", ctypes.c_uint64), ("name", ctypes.c_char_p), ("dynamic", ctypes.c_uint64))


def fix_memory(path: str, number: int) -> None:
    """From now on, the loaded library at ``path`` allocates in memory ``number``, a small int.

    Raises OSError if the addresses are in use or the system forbids it, or if the library's calls of ``malloc`` are not
    found.
    """
    if platform.machine() not in _SLOTS:
        raise OSError(f"no memory at fixed addresses on {platform.machine()}")
    library = ctypes.CDLL(path, mode=_RTLD_NOW | _RTLD_NOLOAD)
    slots = _slots(library._handle)
    if not {"malloc", "free"} <= {name for name, _ in slots}:
        raise OSError(f"{path} does not call malloc")
    base = _FIRST + number * _APART
    _reserve(base)
    code = _code(base)
    for name, slot in slots:
        _write(slot, code[name])


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.dlinfo.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    return libc


def _address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None, f"{function} has an address"
    return found


def _reserve(base: int) -> None:
    """Reserves SPAN bytes of addresses, which the allocator makes accessible on demand."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE
    got = _libc().mmap(base, SPAN, _PROT_NONE, flags, -1, 0)
    if got != base:  # a kernel before 4.17 treats the address as a hint
        raise OSError(ctypes.get_errno(), f"{SPAN >> 30} GiB at {base:#x} are not free")


def _code(base: int) -> dict[str, int]:
    """The addresses of the allocator's functions, by the names of the functions that they replace."""
    from llvmlite import binding

    libc = _libc()
    text = allocator(base, _address(libc.free), _address(libc.realloc), _address(libc.mprotect))
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(jit=True)
    module = binding.parse_assembly(text)
    module.verify()
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _kept.append(engine)
    return {name: engine.get_function_address(f"arena_{name}") for name in DEFINED}


def _slots(handle: int) -> list[tuple[str, int]]:
    """The library's slots for functions that the allocator replaces: (name, address of the slot)."""
    found = ctypes.POINTER(_LinkMap)()
    if _libc().dlinfo(handle, _RTLD_DI_LINKMAP, ctypes.byref(found)):
        raise OSError("the loader does not know the library")
    base, at = found.contents.address, found.contents.dynamic
    tags: dict[int, int] = {}
    while (pair := struct.unpack("<QQ", ctypes.string_at(at, 16)))[0] != _NULL:
        tags[pair[0]] = pair[1]
        at += 16
    slots = []
    kinds = _SLOTS[platform.machine()]
    for table, size in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
        if table not in tags:
            continue
        rows = np.frombuffer(ctypes.string_at(tags[table], tags[size]), _RELOCATION)
        for row in rows[(rows["info"] >> 32 != 0) & np.isin(rows["info"] & 0xFFFFFFFF, kinds)]:
            symbol = tags[_SYMTAB] + _SYMBOL_BYTES * int(row["info"] >> 32)
            [name] = struct.unpack("<I", ctypes.string_at(symbol, 4))
            text = ctypes.string_at(tags[_STRTAB] + name).decode("ascii", "replace")
            if text in DEFINED:
                slots.append((text, base + int(row["offset"])))
    return slots


def _write(slot: int, value: int) -> None:
    """Set a slot, which may be on a page that the loader made read-only."""
    page = slot & -mmap.PAGESIZE
    if _libc().mprotect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE):
        raise OSError(ctypes.get_errno(), "a page of a library cannot be written")
    ctypes.c_uint64.from_address(slot).value = value
