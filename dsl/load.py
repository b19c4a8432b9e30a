"""Loads a model file and the files that it uses: each is searched under one root, read once, hashed, and parsed."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dslc.base.errors import DslcError
from dslc.base.words import meant_path
from dslc.dsl.diagnostics import CompileError, Diagnostic, Label, did_you_mean
from dslc.dsl.lexer import too_long
from dslc.dsl.limits import MAX_FILES, MAX_NAME_LENGTH, MAX_SOURCE_BYTES, MAX_TABLE_BYTES, MAX_USE_DEPTH
from dslc.dsl.parser import parse
from dslc.dsl.span import Source, Span
from dslc.dsl.syntax import PACKAGE, File, Use

_NAME: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME_LENGTH - 1}}}")


@dataclass(frozen=True, eq=False)
class Table:
    """A file of numbers: its name as shown, its bytes and their SHA-256 in hex."""

    path: str
    data: bytes = field(repr=False)
    sha256: str


@dataclass(frozen=True, eq=False)
class Module:
    """One file: its text and tree, the SHA-256 of its bytes in hex, and the module or the file of numbers of each of
    its `use`s."""

    source: Source
    file: File = field(repr=False)
    sha256: str
    uses: tuple[tuple[Use, Module], ...] = field(repr=False)
    tables: tuple[tuple[Use, Table], ...] = field(default=(), repr=False)


@dataclass(frozen=True, eq=False)
class Program:
    """A main file and every module that it reaches, each once; a module precedes its users (``main`` is the last)."""

    main: Module
    modules: tuple[Module, ...]


def load(path: str, *, root: str | None = None, search: Sequence[str] = ()) -> Program:
    """Read ``path`` and every file it uses.

    A `use` is searched next to the file that contains it, then in the folders ``search``. All files, after symbolic
    links are resolved, must be under ``root``, by default the folder of ``path``. At most 96 KiB, 256 files, 16 levels,
    and 64 MiB in files of numbers. Raises CompileError with the errors of all files (E0001 to E0008, E0106 to E0108,
    E0114, E0116), DslcError (E0106) if ``path`` itself cannot be read.
    """
    loader = _Loader(os.path.realpath(root or os.path.dirname(path) or "."), tuple(search))
    main = loader.visit(os.path.realpath(path), path, None, ())
    if main is None or loader.found:
        raise CompileError(loader.found)
    return Program(main, tuple(loader.modules))


def decode(path: str, data: bytes) -> Source:
    """The source in a file's bytes: UTF-8, without a byte order mark at the start; else CompileError (E0003)."""
    try:
        return Source(path, data.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        if b"\0" in data:
            raise _not_text(path) from error
        before = data[: error.start].decode("utf-8").removeprefix("\ufeff")
        source = Source(path, data.decode("utf-8", "replace").removeprefix("\ufeff"))
        label = Label(Span(source, len(before), len(before) + 1), f"byte 0x{data[error.start]:02x}")
        raise CompileError(
            [Diagnostic("E0003", "the file is not UTF-8", label, help="save the file as UTF-8")]
        ) from error


def read_source(path: str) -> Source:
    """A single file as `load` reads it, without the files that it uses; the same errors."""
    try:
        return decode(path, _read(os.path.realpath(path), path, MAX_SOURCE_BYTES))
    except _Unreadable as reason:
        raise _no_main_file(path, reason) from reason


class _Unreadable(Exception):
    """A file that cannot be read as a source; the text is the reason, to be printed after its name."""


def _no_main_file(path: str, reason: _Unreadable) -> DslcError:
    return DslcError("E0106", f"{path} {reason}", place=path, help=meant_path(path, "name a `.nn` file", suffix=".nn"))


class _Loader:
    def __init__(self, root: str, search: tuple[str, ...]) -> None:
        self.root = root
        self.search = search
        self.found: list[Diagnostic] = []
        self.modules: list[Module] = []
        self.seen: dict[str, Module | None] = {}
        self.tables: dict[str, Table | None] = {}
        self.bytes_left = MAX_SOURCE_BYTES
        self.table_bytes_left = MAX_TABLE_BYTES

    def visit(self, real: str, shown: str, use: Use | None, chain: tuple[tuple[str, str], ...]) -> Module | None:
        """The module of a file, None if an error was recorded; ``chain`` holds the files that lead to it."""
        if real in self.seen:
            return self.seen[real]
        if use is not None and self._too_many(use):
            return None
        self.seen[real] = None
        try:
            data = _read(real, shown, self.bytes_left)
        except _Unreadable as reason:
            if use is None:
                raise _no_main_file(shown, reason) from reason
            self._error("E0106", f"{shown} {reason}", use, "", "`use` reads plain text files only")
            return None
        except CompileError:
            if use is None:
                raise
            used = MAX_SOURCE_BYTES - self.bytes_left
            title = f"with {shown}, all files together are longer than {MAX_SOURCE_BYTES} bytes"
            note = f"{used} bytes were read before"
            self._error("E0002", title, use, note, "repeat parts with `for` and `block`; use fewer files")
            raise CompileError(self.found) from None
        self.bytes_left -= len(data)
        try:
            source = decode(shown, data)
            file = parse(source)
        except CompileError as error:
            self.found += error.diagnostics
            return None
        uses: list[tuple[Use, Module]] = []
        tables: list[tuple[Use, Table]] = []
        for item in file.items:
            if not isinstance(item, Use) or item.path.startswith(PACKAGE):
                continue
            found = self._find(item, real, shown)
            if found is None:
                continue
            if item.is_table:
                table = self._table(*found, item)
                if table is not None:
                    tables.append((item, table))
            else:
                module = self._follow(*found, item, (*chain, (real, shown)))
                if module is not None:
                    uses.append((item, module))
        module = Module(source, file, hashlib.sha256(data).hexdigest(), tuple(uses), tuple(tables))
        self.modules.append(module)
        self.seen[real] = module
        return module

    def _too_many(self, use: Use) -> bool:
        many = len(self.seen) + len(self.tables) >= MAX_FILES
        if many:
            self._error("E0114", f"more than {MAX_FILES} files are used", use, "", "put several blocks into one file")
        return many

    def _find(self, use: Use, real: str, shown: str) -> tuple[str, str] | None:
        """The file that a `use` in the file ``real`` denotes, and its name as shown; None if an error was recorded."""
        if use.is_table and (len(use.names) > 1 or not _NAME.fullmatch(use.table_name)):
            what = f"these are {len(use.names)}" if use.names else f"`{use.table_name}` is none"
            help = f'write `use "{use.path}" (NAME)`'
            self._error("E0116", f"a file of numbers is one tensor and has one name; {what}", use, "", help)
            return None
        relative = use.path if use.path.endswith((".nn", ".npy")) else use.path.replace(".", "/") + ".nn"
        if "://" in relative or os.path.isabs(relative):
            self._error("E0108", "`use` takes a path inside the project", use, "", "write it relative to this file")
            return None
        folders = [(os.path.dirname(real), os.path.dirname(shown)), *((folder, folder) for folder in self.search)]
        for folder, shown_folder in folders:
            target = os.path.realpath(os.path.join(folder, relative))
            # Reported before checking that the file exists: a program learns nothing about files outside.
            if os.path.commonpath([self.root, target]) != self.root:
                help = f"all files of a program must be below {self.root}: copy it there"
                self._error("E0108", f"{relative} leads out of the project", use, "", help)
                return None
            if not os.path.lexists(os.path.join(folder, relative)):
                continue
            return target, os.path.normpath(os.path.join(shown_folder, relative))
        self._not_found(use, relative, [folder for folder, _ in folders])
        return None

    def _follow(self, target: str, shown: str, use: Use, chain: tuple[tuple[str, str], ...]) -> Module | None:
        """The module of a file that the last file of ``chain`` uses."""
        if any(target == before for before, _ in chain):
            at = [before for before, _ in chain].index(target)
            circle = " -> ".join([*(name for _, name in chain[at:]), shown])
            help = "move the shared parts to a third file"
            self._error("E0107", f"files use each other in a cycle: {circle}", use, "closes the cycle", help)
            return None
        if len(chain) > MAX_USE_DEPTH:
            help = "use a file of the deeper levels directly"
            self._error("E0114", f"files use each other more than {MAX_USE_DEPTH} levels deep", use, "", help)
            return None
        return self.visit(target, shown, use, chain)

    def _table(self, real: str, shown: str, use: Use) -> Table | None:
        """A file of numbers, read once; the checker looks into it (compiler/ops/constants/npy.py)."""
        if real in self.tables:
            return self.tables[real]
        if self._too_many(use):
            return None
        self.tables[real] = None
        try:
            data = _read_bytes(real, self.table_bytes_left)
        except _Unreadable as reason:
            self._error("E0106", f"{shown} {reason}", use, "", "`use` reads plain files only")
            return None
        if len(data) > self.table_bytes_left:
            used = MAX_TABLE_BYTES - self.table_bytes_left
            title = f"with {shown}, all files of numbers together are longer than {MAX_TABLE_BYTES:,} bytes"
            note = f"{used:,} bytes were read before" if used else ""
            self._error("E0116", title, use, note, "a larger table is an input of the model, or a parameter")
            raise CompileError(self.found)  # before more of them are read
        self.table_bytes_left -= len(data)
        self.tables[real] = Table(shown, data, hashlib.sha256(data).hexdigest())
        return self.tables[real]

    def _not_found(self, use: Use, relative: str, folders: Sequence[str]) -> None:
        near = None
        for folder in folders:
            place = os.path.dirname(os.path.join(folder, relative))
            inside = os.path.commonpath([self.root, os.path.realpath(place)]) == self.root
            if near is None and inside and os.path.isdir(place):
                names = [n for n in os.listdir(place) if n.endswith(os.path.splitext(relative)[1])]
                near = did_you_mean(os.path.basename(relative), names)
        if near is not None:
            help = f"did you mean `{os.path.join(os.path.dirname(relative), near)}`?"
        else:
            help = "the path is relative to this file, and ends in `.nn` or `.npy` if it is quoted"
        self._error("E0106", f"there is no file {relative}", use, "", help)

    def _error(self, code: str, title: str, use: Use, label: str, help: str) -> None:
        self.found.append(Diagnostic(code, title, Label(use.span, label), help=help))


def _read(real: str, shown: str, limit: int) -> bytes:
    """The bytes of a source of at most ``limit`` bytes, CompileError (E0002) for a longer one."""
    data = _read_bytes(real, limit)
    if len(data) > limit:
        if b"\0" in data:
            raise _not_text(shown)
        raise too_long(Source(shown, ""), len(data))
    return data


def _not_text(path: str) -> CompileError:
    """The error for a binary file in the place of a source."""
    title, help = "this file is not text", "give the file of a model's source, `NAME.nn`"
    if path.endswith(".dslc"):
        title = "this file is an artifact, not a model's source"
        help += f"; `dslc info {os.path.basename(path)}` shows what the artifact holds"
    return CompileError([Diagnostic("E0003", title, Label(Span(Source(path, ""), 0, 0), ""), help=help)])


def _read_bytes(real: str, limit: int) -> bytes:
    """The bytes of a regular file, or its first ``limit + 1``. ``real`` has no symbolic links; a link that appears
    meanwhile is not followed, and opening a device or FIFO does not block."""
    try:
        if not stat.S_ISREG(os.lstat(real).st_mode):
            raise _Unreadable("is not a regular file")
        fd = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise _Unreadable(f"cannot be read: {(error.strerror or 'unknown reason').lower()}") from error
    with open(fd, "rb", closefd=True) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _Unreadable("is not a regular file")
        try:
            return file.read(limit + 1)
        except OSError as error:
            raise _Unreadable(f"cannot be read: {(error.strerror or 'unknown reason').lower()}") from error
