"""Merges the objects of single kernels into one, like ``ld -r``, but with code and constants in one section.

A loader may place an object's sections anywhere. In a process that has mapped much memory (as a GPU's driver does),
they may be too far apart for 32-bit references from code to constants. References within one section always fit: on
x86-64 all addresses are known here, and no relocation is left.

Kernels are compiled and cached one by one; an artifact holds one object per level, which loads as one piece. LLVM emits
few things for a kernel: code, constants, relocations with addends. Anything else is refused here. Layout and constants:
System V ABI, chapter 4, https://gabi.xinuos.com.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELA: Final = struct.Struct("<QQq")
_WORD: Final = 8  # bytes; also the alignment of tables
_IDENT: Final = b"\x7fELF\x02\x01\x01" + bytes(9)  # 64 bits, little endian
_REL: Final = 1  # file type
_NULL, _PROGBITS, _SYMTAB, _STRTAB, _RELOCATIONS = range(5)  # section types
_INFO_LINK: Final = 0x40  # sh_info is a section index
_WRITABLE: Final = 1
_ALLOC: Final = 2
_UNDEFINED: Final = 0
_LOCAL: Final = 0  # binding
_OF_SECTION, _OF_FILE = 3, 4  # symbol types
_EXECUTABLE: Final = 4
_TEXT: Final = ".text"  # the one section
_X86_64: Final = 62  # machine
_RELATIVE: Final = (2, 4)  # R_X86_64_PC32 and R_X86_64_PLT32: 32 bits, relative to their own address
_STACK: Final = ".note.GNU-stack"  # declares that the stack need not be executable
_UNWIND: Final = ".eh_frame"  # unwind tables; nothing here throws
_RESERVED: Final = 0xFF00  # section indices from here on are reserved


class _Header(NamedTuple):
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


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


@dataclass
class _Section:
    """A section of the result. ``rela``: offset, type, symbol (its name or a section's), addend."""

    flags: int
    entry: int
    align: int = 1
    data: bytearray = field(default_factory=bytearray)
    rela: list[tuple[int, int, str, int]] = field(default_factory=list)


def merge(objects: Sequence[bytes]) -> bytes:
    """One relocatable object with all global symbols, in the order of the objects, which must be for one machine."""
    merged = _Merged()
    for data in objects:
        merged.add(_Object(data))
    return merged.finish()


class _Object:
    """A parsed relocatable object."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        (ident, type, self.machine, _, _, _, table, self.flags, _, _, _, size, count, names) = _HEADER.unpack_from(data)
        assert ident[:7] == _IDENT[:7] and type == _REL and size == _SECTION.size, "not a relocatable object"
        self.sections = [_Header(*_SECTION.unpack_from(data, table + i * _SECTION.size)) for i in range(count)]
        self.names = [self._text(self.sections[names], s.name) for s in self.sections]
        [symtab] = [s for s in self.sections if s.type == _SYMTAB]
        self.symbols = [_Symbol(*x) for x in _SYMBOL.iter_unpack(self.content(symtab))]
        self.symbol_names = [self._text(self.sections[symtab.link], s.name) for s in self.symbols]

    def content(self, section: _Header) -> bytes:
        return self.data[section.offset : section.offset + section.size]

    def _text(self, table: _Header, at: int) -> str:
        start = table.offset + at
        return self.data[start : self.data.index(b"\0", start)].decode()


class _Merged:
    def __init__(self) -> None:
        self.machine: tuple[int, int] | None = None
        self.sections: dict[str, _Section] = {}
        self.defined: dict[str, tuple[str, int, _Symbol]] = {}  # name -> section, value, symbol
        self.undefined: dict[str, _Symbol] = {}

    def add(self, source: _Object) -> None:
        assert self.machine in (None, (source.machine, source.flags)), "objects for different machines"
        self.machine = source.machine, source.flags
        bases: dict[int, int] = {}
        for number, (name, header) in enumerate(zip(source.names, source.sections)):
            if name == _UNWIND:
                continue
            if header.flags & _ALLOC:
                bases[number] = self._append(name, header, source.content(header))
            else:
                known = header.type in (_NULL, _SYMTAB, _STRTAB, _RELOCATIONS) or name == _STACK
                assert known, f"a section {name} of type {header.type}"
        for name, symbol in zip(source.symbol_names, source.symbols):
            if symbol.info >> 4 == _LOCAL:
                continue
            if symbol.section == _UNDEFINED:
                self.undefined.setdefault(name, symbol)
            else:
                assert name not in self.defined, f"{name} stands twice"
                value = bases[symbol.section] + symbol.value
                self.defined[name] = _TEXT, value, symbol
        for header in source.sections:
            if header.type == _RELOCATIONS and header.info in bases:
                self.sections[_TEXT].rela += self._relocations(source, header, bases)

    def _append(self, name: str, header: _Header, data: bytes) -> int:
        """Appends a section's data; returns its new start."""
        assert header.type == _PROGBITS, f"a section {name} of type {header.type}"
        assert not header.flags & _WRITABLE, f"a writable section {name}"
        section = self.sections.setdefault(_TEXT, _Section(_ALLOC | _EXECUTABLE, 0))
        section.align = max(section.align, header.align)
        section.data += bytes(-len(section.data) % header.align)
        start = len(section.data)
        section.data += data
        return start

    def _relocations(
        self, source: _Object, header: _Header, bases: dict[int, int]
    ) -> Iterator[tuple[int, int, str, int]]:
        for offset, info, addend in _RELA.iter_unpack(source.content(header)):
            number, kind = info >> 32, info & 0xFFFFFFFF
            symbol, name = source.symbols[number], source.symbol_names[number]
            if symbol.info >> 4 == _LOCAL:  # refer to the section plus an offset instead
                assert 0 < symbol.section < _RESERVED, f"a local symbol {name} without a section"
                name, addend = _TEXT, addend + bases[symbol.section] + symbol.value
            yield offset + bases[header.info], kind, name, addend

    def _resolve(self) -> None:
        """Resolves references from code to symbols in the same section."""
        text, left = self.sections[_TEXT], []
        for offset, kind, name, addend in text.rela:
            place = 0 if name == _TEXT else self.defined[name][1] if name in self.defined else None
            if kind in _RELATIVE and place is not None:
                struct.pack_into("<i", text.data, offset, place + addend - offset)
            else:
                left.append((offset, kind, name, addend))
        text.rela = left

    def finish(self) -> bytes:
        assert self.machine is not None, "no objects to merge"
        if self.machine[0] == _X86_64:
            self._resolve()
        strings = _Strings()
        contents = sorted(self.sections)
        numbers = {name: 1 + i for i, name in enumerate(contents)}
        places = {name: 1 + i for i, name in enumerate(contents)}  # symbol indices: sections first, then globals
        symbols = [_SYMBOL.pack(*[0] * 6)]
        symbols += [_SYMBOL.pack(0, _OF_SECTION, 0, numbers[name], 0, 0) for name in contents]
        first_global = len(symbols)
        for name, (section, value, symbol) in sorted(self.defined.items()):
            places[name] = len(symbols)
            symbols.append(
                _SYMBOL.pack(strings.add(name), symbol.info, symbol.other, numbers[section], value, symbol.size)
            )
        for name, symbol in sorted(self.undefined.items()):
            if name not in self.defined:
                places[name] = len(symbols)
                symbols.append(_SYMBOL.pack(strings.add(name), symbol.info, symbol.other, _UNDEFINED, 0, 0))
        rows: list[tuple[str, _Header, bytes]] = []
        for name in contents:
            made = self.sections[name]
            header = _Header(0, _PROGBITS, made.flags, 0, 0, 0, 0, 0, made.align, made.entry)
            rows.append((name, header, bytes(made.data)))
        symtab = 1 + len(contents) + sum(bool(self.sections[name].rela) for name in contents) + 1
        for name in contents:
            if rela := self.sections[name].rela:
                packed = b"".join(_RELA.pack(at, places[to] << 32 | kind, add) for at, kind, to, add in rela)
                link = _Header(
                    0, _RELOCATIONS, _INFO_LINK, 0, 0, 0, symtab, numbers[name], _WORD, _RELA.size
                )  # fmt: skip
                rows.append((f".rela{name}", link, packed))
        rows.append((_STACK, _Header(0, _PROGBITS, 0, 0, 0, 0, 0, 0, 1, 0), b""))
        table = _Header(0, _SYMTAB, 0, 0, 0, 0, symtab + 1, first_global, _WORD, _SYMBOL.size)
        rows.append((".symtab", table, b"".join(symbols)))
        return _written(self.machine, rows, strings)


class _Strings:
    """A string table; names are referenced by offset."""

    def __init__(self) -> None:
        self.data = bytearray(1)

    def add(self, name: str) -> int:
        at = len(self.data)
        self.data += name.encode() + b"\0"
        return at


def _written(machine: tuple[int, int], rows: list[tuple[str, _Header, bytes]], strings: _Strings) -> bytes:
    """The file: header, the sections' contents, the section table. The string table is the last section."""
    named = [(strings.add(name), header, data) for name, header, data in rows]
    named.append((strings.add(".strtab"), _Header(0, _STRTAB, 0, 0, 0, 0, 0, 0, 1, 0), b""))
    out = bytearray(_HEADER.size)
    table = [_SECTION.pack(*[0] * 10)]
    for number, (name, header, data) in enumerate(named):
        content = bytes(strings.data) if number == len(named) - 1 else data
        out += bytes(-len(out) % header.align)
        table.append(_SECTION.pack(*header._replace(name=name, offset=len(out), size=len(content))))
        out += content
    out += bytes(-len(out) % _WORD)
    number_of, flags = machine
    out[: _HEADER.size] = _HEADER.pack(
        _IDENT, _REL, number_of, 1, 0, 0, len(out), flags, _HEADER.size, 0, 0, _SECTION.size, len(table), len(table) - 1
    )
    return bytes(out + b"".join(table))
