"""Applies an AArch64 object's relocations: references from its code to places in the same code.

Numbers and formulas: ELF for the Arm 64-bit Architecture, section 5.7, https://github.com/ARM-software/abi-aa. S is the
address of the symbol, A the addend, P the address of the instruction.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NoReturn

from dslc.base.errors import ArtifactError
from dslc.runtime.cpu.object_check import Code

_ADRP: Final = (275, 276)  # the page of S + A, relative to that of P, in pages: immediate of 21 bits
_BRANCH: Final = (282, 283)  # S + A - P in words: immediate of 26 bits
#: S + A within its page, for an access of so many bytes, in units of these bytes: immediate of 12 bits at bit 10.
_WITHIN_PAGE: Final[Mapping[int, int]] = {277: 1, 278: 1, 284: 2, 285: 4, 286: 8, 299: 16}
_PAGE: Final = 4096  # of ADRP, whatever the system's pages are
_WORD: Final = struct.Struct("<I")


def relocated(code: Code, base: int) -> bytes:
    """The code as it must stand at the address ``base``. ArtifactError R301 for a relocation that this module does not
    know, or whose place is too far away."""
    text = bytearray(code.text)
    for offset, kind, place, addend in code.relocations:
        if offset % _WORD.size or offset + _WORD.size > len(text):
            _refuse(offset, "is not at an instruction")
        [word] = _WORD.unpack_from(text, offset)
        _WORD.pack_into(text, offset, word | _immediate(kind, base + place + addend, base + offset, offset))
    return bytes(text)


def _immediate(kind: int, target: int, address: int, offset: int) -> int:
    """The bits of the instruction at ``address`` that name ``target``."""
    if kind in _ADRP:
        pages = _fitting(target // _PAGE - address // _PAGE, 21, offset)
        return (pages & 3) << 29 | (pages >> 2) << 5
    if kind in _BRANCH:
        if (target - address) % _WORD.size:
            _refuse(offset, "names no instruction")
        return _fitting((target - address) // _WORD.size, 26, offset)
    if kind in _WITHIN_PAGE:
        within, unit = target % _PAGE, _WITHIN_PAGE[kind]
        if within % unit:
            _refuse(offset, "names a place that is not aligned")
        return within // unit << 10
    _refuse(offset, f"is of type {kind}, which is not allowed")


def _fitting(value: int, bits: int, offset: int) -> int:
    """The value in two's complement."""
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        _refuse(offset, "reaches too far")
    return value & (1 << bits) - 1


def _refuse(offset: int, rule: str) -> NoReturn:
    cause = f"the relocation of the object at {offset} {rule}"
    raise ArtifactError("R301", cause, place="code", help="build the artifact again")
