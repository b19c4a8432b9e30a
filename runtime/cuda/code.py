"""Parses GPU code without the driver: checks that a cubin or PTX is complete and reads its kernels' parameters.

The driver returns one parameter per call, and the call after the last one fails. So counting parameters by calls causes
an error that tools like compute-sanitizer report for a correct program. The files contain the count.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

from dslc.base.errors import ArtifactError

_CUDA_MACHINE: Final = 190  # EM_CUDA
_SECTION_HEADER: Final = 64
_NO_BITS: Final = 8  # SHT_NOBITS: a section without bytes in the file
_SIZED: Final = 4  # EIFMT_SVAL: an attribute of `.nv.info` that is followed by as many bytes as it states
_PARAMETER: Final = 0x17  # EIATTR_KPARAM_INFO: u32 0, u16 number, u16 offset, u32 of which the upper 14 bits are a size
_STACK: Final = 0x12  # EIATTR_MIN_STACK_SIZE: u32 of a symbol, u32 bytes of a thread's local memory
_PTX_PARAMETER: Final = re.compile(r"\.param(?:\s+\.align\s+\d+)?\s+\.[a-z]+(\d+)\b[^,\[]*(?:\[(\d+)\])?")


def check_cubin(data: bytes | memoryview, capability: tuple[int, int], place: str) -> None:
    """Raise ArtifactError R301 unless ``data`` is an ELF file for NVIDIA GPUs and this architecture, with all its
    sections inside the file. The driver gets only checked files."""
    if len(data) < 64 or bytes(data[:7]) != b"\x7fELF\x02\x01\x01":
        raise _refuse("that is not a 64-bit ELF file", place)
    _, machine, _, _, _, sections, flags, size, _, _, entry, count, _ = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)
    if machine != _CUDA_MACHINE or size != 64:
        raise _refuse("that is not for NVIDIA GPUs", place)
    # The architecture is the second byte of the flags since version 8 of the ABI, and the first byte in earlier
    # versions.
    architecture = flags >> 8 & 0xFF if data[8] >= 8 else flags & 0xFF
    if architecture != 10 * capability[0] + capability[1]:
        wanted = f"sm_{capability[0]}{capability[1]}"
        raise _refuse(f"for sm_{architecture}, not for {wanted}", place)
    if count and (entry != _SECTION_HEADER or sections + entry * count > len(data)):
        raise _refuse("whose table of sections extends past the end of the file", place)
    for index in range(count):
        _, kind, _, _, offset, length = struct.unpack_from("<IIQQQQ", data, sections + entry * index)
        if kind != _NO_BITS and offset + length > len(data):
            raise _refuse(f"whose section {index} extends past the end of the file", place)


def check_ptx(data: bytes | memoryview, place: str) -> None:
    """Raise ArtifactError R301 unless ``data`` is ASCII without NUL."""
    text = bytes(data)
    if not text.isascii() or b"\0" in text:
        raise ArtifactError("R301", "PTX that is not plain text", place=place, help="build the artifact again")


def _refuse(why: str, place: str) -> ArtifactError:
    return ArtifactError("R301", f"a cubin {why}", place=place, help="build the artifact again")


def cubin_code(data: bytes | memoryview, place: str) -> tuple[int, int]:
    """Of a cubin that was checked: bytes of its kernels' code, and the most bytes of local memory that a thread of them
    takes. ArtifactError R301 where they cannot be read."""
    code = stack = 0
    for name, content in _sections(data, place):
        if name.startswith(".text."):
            code += len(content)
        elif name == ".nv.info":
            stack = max((struct.unpack("<II", value)[1] for value in _attributes(content, _STACK, 8)), default=stack)
    return code, stack


def _attributes(content: bytes, wanted: int, least: int) -> Iterator[bytes]:
    """The values of so many bytes of an attribute in a section of facts."""
    at = 0
    while at + 4 <= len(content):
        form, attribute, length = struct.unpack_from("<BBH", content, at)
        at += 4
        if form != _SIZED:
            continue
        if attribute == wanted and length >= least and at + least <= len(content):
            yield content[at : at + least]
        at += length


def cubin_parameters(data: bytes | memoryview, symbol: str, place: str) -> list[int]:
    """The sizes of a kernel's parameters in bytes, from a checked cubin; [] for a kernel that it does not contain.
    ArtifactError R301 if they cannot be read."""
    found: dict[int, int] = {}
    for name, content in _sections(data, place):
        if name != f".nv.info.{symbol}":
            continue
        for value in _attributes(content, _PARAMETER, 12):
            _, number, _, bits = struct.unpack("<IHHI", value)
            found[number] = bits >> 18
    if sorted(found) != [*range(len(found))]:
        raise _refuse(f"whose kernel {symbol} lacks parameters", place)
    return [found[number] for number in range(len(found))]


def _sections(data: bytes | memoryview, place: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of each section that has bytes in the file."""
    [table] = struct.unpack_from("<Q", data, 40)
    count, of_names = struct.unpack_from("<HH", data, 60)
    if not count:
        return
    rows = [struct.unpack_from("<IIQQQQ", data, table + _SECTION_HEADER * index) for index in range(count)]
    if of_names >= count or rows[of_names][1] == _NO_BITS:
        raise _refuse("whose sections have no names", place)
    names = bytes(data[rows[of_names][4] : rows[of_names][4] + rows[of_names][5]])
    for start, kind, _, _, offset, length in rows:
        if kind != _NO_BITS:
            name = names[start:].partition(b"\0")[0]
            yield name.decode("latin-1"), bytes(data[offset : offset + length])


def ptx_parameters(data: bytes | memoryview, symbol: str) -> list[int]:
    """``cubin_parameters`` for PTX."""
    text = bytes(data).decode("ascii")
    entry = re.search(rf"\.entry\s+{re.escape(symbol)}\s*\(([^)]*)\)", text)
    if entry is None:
        return []
    return [int(bits) // 8 * int(count or 1) for bits, count in _PTX_PARAMETER.findall(entry[1])]
