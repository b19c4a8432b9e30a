"""Parquet and Arrow files as tables, decoded in a process of their own (``arrow_process``)."""

from __future__ import annotations

import json
import os
import sys
from collections import OrderedDict
from collections.abc import Sequence
from math import prod
from typing import Any, Final, NoReturn
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from dslc.base.confine import bare_environment
from dslc.base.errors import DataError, EnvironmentFault, ResourceError
from dslc.runtime.data.columns.raw import Raw, raw_objects
from dslc.runtime.data.file import open_file
from dslc.runtime.data.kinds import refuse_other_kind
from dslc.runtime.data.library_process import LibraryProcess
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.table import MOST_COLUMNS, place_of
from dslc.runtime.session.host_memory import ensure_free

_LONGEST_FOOTER: Final = 16 << 20  # bytes; those of published files have some MiB
_STREAM: Final = b"\xff\xff\xff\xff"  # begins each message of a stream
_CACHED: Final = 256 << 20  # bytes of decoded columns
_ROW: Final = 16  # bytes that a run needs for the order of the rows, for each; a file may declare any number of them
_TEXT: Final = 64  # bytes that a Python text takes besides its characters


def require_pyarrow() -> None:
    """Raises EnvironmentFault R205 if pyarrow is not installed."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise EnvironmentFault(
            "R205", "Parquet and Arrow files need pyarrow", place="data", help="pip install 'dslc[parquet]'"
        )


class ArrowTable:
    """Columns are decoded a group of rows at a time; the groups used last are kept, up to 256 MiB."""

    large = False  # only the chosen columns are read, so the size of the file says nothing

    def __init__(self, source: Source, kind: str) -> None:
        """``kind``: parquet or arrow. Raises DataError R101 for another file, OutOfMemory R401 for too many rows."""
        require_pyarrow()
        self._source = source
        kind = _check_ends(source, kind)
        self._process: _Process | None = _process_of(source, kind)
        found = self._process.described
        self._fields: list[str] = found["names"]
        self._forms: list[str] = found["forms"]
        self._widths = [prod(shape) for shape in found["shapes"]]
        self.names: Sequence[str] = self._named()
        doubles = (column for column, (field, _) in zip(self.names, self._places) if self._forms[field].endswith("f64"))
        self.doubles = frozenset(doubles)
        self._starts = np.cumsum([0, *found["groups"]], dtype=np.int64)
        self.count = int(self._starts[-1])
        ensure_free(self.count * _ROW, [(source.name, self.count * _ROW)])
        self._cache: OrderedDict[tuple[int, int], Raw] = OrderedDict()
        self._cached = 0

    def _named(self) -> list[str]:
        """The names of the columns: of a list those of its numbers. ``_places``: the field of each, and the number in
        a list."""
        self._places: list[tuple[int, int | None]] = []
        names = []
        for field, (name, form, width) in enumerate(zip(self._fields, self._forms, self._widths)):
            if form.startswith("list") and not 0 < width <= MOST_COLUMNS:
                self._forms[field] = form = f"?{form} ({width} numbers)"
            listed = form.startswith("list")
            names += [f"{name}[{at}]" for at in range(width)] if listed else [name]
            self._places += [(field, at if listed else None) for at in range(width if listed else 1)]
        return names

    def close(self) -> None:
        self._process = None  # it ends if no other table uses it
        self._cache.clear()

    def place(self, row: int) -> str:
        return f"{self._source.path}: row {row}"

    def read(self, rows: NDArray[np.int64], columns: Sequence[int]) -> tuple[list[Raw], dict[int, str]]:
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(groups, kind="stable")
        places = [self._places[column] for column in columns]
        fields = [*dict.fromkeys(field for field, _ in places)]
        parts: list[list[Raw]] = [[] for _ in columns]
        for group in np.unique(groups).tolist():
            inside = rows[groups == group] - int(self._starts[group])
            raws = dict(zip(fields, self._decoded(group, fields)))
            for found, (field, at) in zip(parts, places):
                found.append(raws[field].take(inside if at is None else inside * self._widths[field] + at))
        back = np.argsort(order, kind="stable")
        return [_joined(found).take(back) for found in parts], {}

    def _decoded(self, group: int, fields: Sequence[int]) -> list[Raw]:
        lacking = [field for field in fields if (group, field) not in self._cache]
        for field in lacking:
            if self._forms[field].startswith("?"):
                name, form = self._fields[field], self._forms[field][1:]
                cause = f"the column `{name[:60]}` is {form}: not numbers, texts, truth values or dates"
                lists = "list" in form
                help = "write a column for each element of a list" if lists else "convert it, or name other columns"
                raise DataError("R102", cause, place=place_of(self._source), help=help)
        if lacking:
            assert self._process is not None, "the table is closed"
            fresh = self._process.read(group, [self._fields[field] for field in lacking])
            for field, raw in zip(lacking, fresh):
                self._cache[group, field] = raw
                self._cached += _bytes(raw)
        found = []
        for field in fields:
            self._cache.move_to_end((group, field))
            found.append(self._cache[group, field])
        while self._cached > _CACHED and len(self._cache) > len(fields):
            self._cached -= _bytes(self._cache.popitem(last=False)[1])
        return found


class _Process(LibraryProcess):
    """The decoding process of one file. It ends with this object."""

    def __init__(self, source: Source, kind: str) -> None:
        super().__init__()
        self._source = source
        self._kind = kind
        self.sound = True
        self.described: dict[str, Any] = self.begin()

    def launch(self) -> None:
        path = str(self._source.path)
        command = [sys.executable, "-P", "-m", "dslc.runtime.data.tables.arrow_process", path, self._kind]
        try:
            self.start(command, env=bare_environment(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1"))
        except OSError as error:
            cause = f"no process to decode the file: {error}"
            raise ResourceError("R401", cause, place=place_of(self._source), help="free some memory") from error

    def read(self, group: int, names: Sequence[str]) -> list[Raw]:
        """Columns of a group of rows. DataError R101 if they cannot be decoded."""
        with self.turn.hold() as scope, scope:
            self.ready()
            self.send(json.dumps({"group": group, "columns": list(names)}))
            found = [self._raw(form, sizes) for form, sizes in self.head()["columns"]]
            self.answered()
            return found

    def _raw(self, form: str, sizes: Sequence[int]) -> Raw:
        missing = np.frombuffer(self.take(sizes[0]), np.uint8).astype(bool)
        if form != "text":
            return Raw(np.frombuffer(self.take(sizes[1]), np.dtype(form)), missing)
        ends = np.frombuffer(self.take(sizes[1]), "<i8").tolist()
        blob = self.take(sizes[2])
        texts = [blob[start:end].decode() for start, end in zip([0, *ends], ends)]
        raw = raw_objects(texts)
        return Raw(raw.values, raw.missing | missing)

    def head(self) -> dict[str, Any]:
        found = super().head()
        if "error" in found:
            self._damaged(found["error"], found.get("help"))
        return found

    def failed(self, why: str) -> NoReturn:
        self._damaged(f"the process that decodes it {why}")

    def _damaged(self, why: str, help: str | None = None) -> NoReturn:
        self.sound = False
        self.end(0.05)
        raise DataError(
            "R101",
            f"it cannot be read: {why[:300]}",
            place=place_of(self._source),
            help=help or "write it again, in row groups of at most a million rows",
        )

    def __del__(self) -> None:
        self.end(0.05)


#: The processes of open tables, by file.
_RUNNING: Final[WeakValueDictionary[tuple[object, ...], _Process]] = WeakValueDictionary()


def _process_of(source: Source, kind: str) -> _Process:
    """The process that decodes a file: that of another open table of the same file, if there is one."""
    status = source.path.stat()
    key = (source.path, kind, os.getpid(), status.st_ino, status.st_size, status.st_mtime_ns)
    found = _RUNNING.get(key)
    if found is None or not found.sound:
        found = _RUNNING[key] = _Process(source, kind)
    return found


def _check_ends(source: Source, kind: str) -> str:
    """The kind; ``stream`` for a stream of Arrow, which programs also call ``.arrow``. Refuse what cannot be such a
    file, and a directory of the file that is too long, before a decoder reads it."""
    magic = b"PAR1" if kind == "parquet" else b"ARROW1"
    refuse_other_kind(source.path, place_of(source), magic, *([_STREAM] if kind == "arrow" else []))
    with open_file(source.path) as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(len(magic))
        file.seek(max(0, size - len(magic) - 4))
        last = file.read()
    why = None
    length = int.from_bytes(last[:4], "little")
    stream = kind == "arrow" and first.startswith(_STREAM)
    if stream:
        # The mark at the end alone tells that no batch is missing.
        if last[-8:] != _STREAM + bytes(4):
            why = "the mark at the end of a stream is missing, so rows may be lost"
    elif first != magic or last[4:] != magic:
        why = f"a file of this kind begins and ends with {magic.decode()}"
        if first[:4] == b"FEA1":
            why = "Feather version 1; write version 2"
    elif length > min(size, _LONGEST_FOOTER):
        why = f"its directory would be {length} bytes long"
    if why is not None:
        cause = f"it is damaged, or of another kind: {why}" if size else "the file is empty"
        raise DataError("R101", cause, place=place_of(source), help="write it again")
    return "stream" if stream else kind


def _joined(parts: Sequence[Raw]) -> Raw:
    if not parts:
        return Raw(np.zeros(0), np.zeros(0, bool))
    if len(parts) == 1:
        return parts[0]
    return Raw(np.concatenate([part.values for part in parts]), np.concatenate([part.missing for part in parts]))


def _bytes(raw: Raw) -> int:
    if raw.values.dtype.kind != "O":
        return raw.values.nbytes + raw.missing.nbytes
    return sum(_TEXT + len(text) for text in raw.values.tolist())
