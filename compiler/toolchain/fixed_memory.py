"""Memory of a compiler's library at fixed addresses, so that its output is a function of its input.

NVIDIA's compilers sort by addresses and walk tables whose order addresses decide: whether they see that a load is
redundant depends on where their data lies. Address randomisation, the environment's size and every allocation before
move the data. Here a library that is loaded gets an allocator of its own: the slots through which it calls ``malloc``
and its kin point to code whose memory lies at one address in all processes.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from typing import Any, Final

import numpy as np

from dslc.compiler.toolchain.allocator import DEFINED, SPAN, allocator

#: Address spaces of 39 bits have it, and neither programs, their heaps nor their libraries come near.
_FIRST: Final = 1 << 37
_APART: Final = 4 << 30  # bytes from one library's memory to the next one's

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
#: Relocations that write a symbol's address: of a call, of a pointer in a table of pointers, of any other pointer.
_SLOTS: Final = {"x86_64": (7, 6, 1), "aarch64": (1026, 1025, 257)}

_kept: list[Any] = []  # code of allocators, which must outlive the libraries that call it


class _LinkMap(ctypes.Structure):
    """The loader's record of a library, as far as it is public."""

    _fields_ = (("address", ctypes.c_uint64), ("name", ctypes.c_char_p), ("dynamic", ctypes.c_uint64))


def fix_memory(path: str, number: int) -> None:
    """The library at ``path``, which is loaded, allocates from now on in memory ``number``, a small int.

    Raises OSError where the addresses are taken or the system does not allow it, and for a library whose calls of
    ``malloc`` are not found.
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
    """SPAN bytes of addresses, of which the allocator opens as many as it needs."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE
    got = _libc().mmap(base, SPAN, _PROT_NONE, flags, -1, 0)
    if got != base:  # a kernel before 4.17 takes the address as a wish
        raise OSError(ctypes.get_errno(), f"{SPAN >> 30} GiB at {base:#x} are not free")


def _code(base: int) -> dict[str, int]:
    """Addresses of the allocator's functions, by the names that they stand for."""
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
    """Where the library keeps addresses of functions that the allocator stands for: names and places."""
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
    """Set a slot, which may lie on a page that the loader has closed for writing."""
    page = slot & -mmap.PAGESIZE
    if _libc().mprotect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE):
        raise OSError(ctypes.get_errno(), "a page of a library cannot be written")
    ctypes.c_uint64.from_address(slot).value = value
