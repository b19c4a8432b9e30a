"""Checks that an object of an artifact conforms to docs/artifact.md: one section of code without external calls.

An object is copied into the process that loads it. One with an undefined name, with data, or with code that runs on
loading is rejected first. Layout: System V ABI, chapter 4, https://gabi.xinuos.com.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from dslc.base.errors import ArtifactError

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELA: Final = struct.Struct("<QQq")
_IDENT: Final = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian
_RELOCATABLE: Final = 1  # type of file
X86_64, AARCH64 = 62, 183  # machines
_NULL, _PROGBITS, _SYMTAB, _STRTAB, _RELOCATIONS = range(5)  # types of sections
_ALLOC, _CODE = 2, 6  # flags: loaded; loaded, executable and read-only
_LOCAL: Final = 0  # binding of a symbol
_LARGEST_ALIGNMENT: Final = 4096  # bytes; memory is mapped in pages


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


@dataclass(frozen=True)
class Code:
    """The code of an object that obeys the rules. ``symbols``: the offset of each global name. ``relocations``: offset,
    type, the offset of what it names, addend."""

    machine: int
    text: bytes
    symbols: Mapping[str, int]
    relocations: tuple[tuple[int, int, int, int], ...]


def check_object(data: bytes | memoryview, place: str) -> Code:
    """The object's code. Raises ArtifactError R301 with the rule that the object violates."""
    return _Checker(memoryview(data), place).run()


class _Checker:
    def __init__(self, data: memoryview, place: str) -> None:
        self.data, self.place = data, place

    def refuse(self, rule: str) -> NoReturn:
        raise ArtifactError("R301", rule, place=self.place, help="build the artifact again")

    def run(self) -> Code:
        machine, sections = self._header()
        kinds = [section.type for section in sections]
        code = [n for n, s in enumerate(sections) if s.flags & _ALLOC]
        if len(code) != 1 or sections[code[0]].type != _PROGBITS or sections[code[0]].flags != _CODE:
            self.refuse("an object has exactly one loaded section: read-only code")
        if kinds.count(_SYMTAB) != 1:
            self.refuse("an object has exactly one symbol table")
        for number, section in enumerate(sections):
            self._section(machine, number, section, code[0])
        text, table = sections[code[0]], sections[kinds.index(_SYMTAB)]
        if text.align > _LARGEST_ALIGNMENT:
            self.refuse("the code of an object is aligned to at most a page")
        places = self._symbols(table, code[0], text.size)
        names = self._names(table, sections)
        relocations: list[tuple[int, int, int, int]] = []
        for section in sections:
            if section.type == _RELOCATIONS:
                relocations += self._relocations(section, text.size, places)
        return Code(machine, bytes(self._content(text)), names, tuple(relocations))

    def _content(self, section: _Section) -> memoryview:
        return self.data[section.offset : section.offset + section.size]

    def _header(self) -> tuple[int, list[_Section]]:
        if len(self.data) < _HEADER.size:
            self.refuse("this is not an object file: it is shorter than an ELF header")
        ident, type, machine, _, _, _, table, _, _, _, _, size, count, _ = _HEADER.unpack_from(self.data)
        if not ident.startswith(_IDENT) or type != _RELOCATABLE or machine not in (X86_64, AARCH64):
            self.refuse("this is not an ELF object for x86-64 or AArch64")
        if size != _SECTION.size or not count or table + count * size > len(self.data):
            self.refuse("the object's section table is outside the file")
        return machine, [_Section(*_SECTION.unpack_from(self.data, table + n * size)) for n in range(count)]

    def _section(self, machine: int, number: int, section: _Section, code: int) -> None:
        if section.type != _NULL and section.offset + section.size > len(self.data):
            self.refuse(f"section {number} of the object is outside the file")
        if section.type not in (_NULL, _PROGBITS, _SYMTAB, _STRTAB, _RELOCATIONS):
            self.refuse(f"section {number} of the object is of type {section.type}, which is not allowed")
        if section.type == _PROGBITS and number != code and section.size:
            self.refuse(f"section {number} of the object has bytes, but is not the code")
        if section.type == _RELOCATIONS and (machine == X86_64 or section.info != code):
            self.refuse("code for x86-64 must have no relocations, other code only its own")

    def _symbols(self, table: _Section, code: int, size: int) -> list[int]:
        """The offset of each symbol."""
        if table.size % _SYMBOL.size:
            self.refuse("the object's symbol table ends within an entry")
        found = []
        for number, (_, _, _, section, value, bytes) in enumerate(_SYMBOL.iter_unpack(self._content(table))):
            if number and section != code:
                self.refuse(f"symbol {number} of the object is not in its code: an object calls nothing outside itself")
            if value + bytes > size:
                self.refuse(f"symbol {number} of the object reaches beyond its code")
            found.append(value)
        return found

    def _names(self, table: _Section, sections: list[_Section]) -> dict[str, int]:
        """The offset of each global name."""
        if table.link >= len(sections) or sections[table.link].type != _STRTAB:
            self.refuse("the object's symbols have no table of names")
        strings = bytes(self._content(sections[table.link]))
        found: dict[str, int] = {}
        for number, (name, info, _, _, value, _) in enumerate(_SYMBOL.iter_unpack(self._content(table))):
            if info >> 4 == _LOCAL:
                continue
            end = strings.find(b"\0", name)
            text = strings[name:end].decode("ascii", "replace") if end >= 0 else ""
            if not text or text in found:
                self.refuse(f"symbol {number} of the object has no name of its own")
            found[text] = value
        return found

    def _relocations(self, table: _Section, size: int, places: list[int]) -> list[tuple[int, int, int, int]]:
        if table.size % _RELA.size:
            self.refuse("the object's relocations end within an entry")
        found = []
        for offset, info, addend in _RELA.iter_unpack(self._content(table)):
            if offset >= size or info >> 32 >= len(places):
                self.refuse("a relocation of the object is not in its code, or names no symbol")
            if not 0 <= places[info >> 32] + addend <= size:
                self.refuse("a relocation of the object names a place beyond its code")
            found.append((offset, info & 0xFFFFFFFF, places[info >> 32], addend))
        return found
