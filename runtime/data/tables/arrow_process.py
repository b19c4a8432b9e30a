"""A process, ``python -m dslc.runtime.data.tables.arrow_process PATH KIND``, that decodes a Parquet or Arrow file.

The decoders are C++ on untrusted bytes: if they crash or allocate too much, only this process ends. Each line of stdin
asks for columns of a group of rows; the answer is a line of JSON, then the bytes of the columns. The first answer
describes the file. The memory of the process is limited before the file is opened.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from dslc.base.confine import confine
from dslc.base.words import reason
from dslc.runtime.data.tables.arrow_values import Refused, bytes_of, form_of, is_list, is_text, shape_of, stored

_MEMORY: Final = 2 << 30  # bytes of address space beyond what the process has at its start
_MOST_COLUMNS: Final = 10_000
_MOST_GROUPS: Final = 100_000
_MOST_ROWS: Final = 1 << 24  # of a group
_LARGEST: Final = 512 << 20  # bytes of a column in a group, as the file declares them, and decoded
_TEXT: Final = 64  # bytes that a Python text takes besides its characters
_AT_A_TIME: Final = 1 << 16  # rows that are decoded together
_SAMPLED: Final = 100  # rows of a group that tell the numbers of a list
_MOST_THRIFT: Final = 10_000_000  # texts and lists in a Parquet footer, each


def main() -> None:
    path, kind = sys.argv[1:3]
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    import pyarrow

    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    confine(_MEMORY)
    errors = (pyarrow.ArrowException, OSError, ValueError, MemoryError, KeyError, IndexError, TypeError, OverflowError)
    try:
        ipc = _IpcStream if kind == "stream" else _Ipc
        opened = _Parquet(path) if kind == "parquet" else ipc(path)
        described = opened.described()
        _answer(described)
    except (Refused, *errors) as error:
        _answer({"error": reason(error)})
        return
    shapes = dict(zip(described["names"], described["shapes"]))
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            parts = [bytes_of(opened.column(asked["group"], name), shapes[name]) for name in asked["columns"]]
        except Refused as error:
            _answer({"error": error.args[0], "help": error.args[1] if len(error.args) > 1 else None})
            continue
        except errors as error:
            _answer({"error": reason(error)})
            continue
        _answer({"columns": [[form, [len(part) for part in inner]] for form, inner in parts]})
        for _, inner in parts:
            for part in inner:
                sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()


def _answer(data: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(data).encode() + b"\n")
    sys.stdout.buffer.flush()


class _Parquet:
    def __init__(self, path: str) -> None:
        from pyarrow import parquet

        self._file = parquet.ParquetFile(
            path,
            memory_map=True,
            pre_buffer=False,
            thrift_string_size_limit=_MOST_THRIFT,
            thrift_container_size_limit=_MOST_THRIFT,
            page_checksum_verification=True,
        )
        meta = self._file.metadata
        if meta.num_columns > _MOST_COLUMNS or meta.num_row_groups > _MOST_GROUPS:
            raise Refused(f"it has {meta.num_columns} columns in {meta.num_row_groups} row groups")
        self._schema = self._file.schema_arrow
        self.groups = [meta.row_group(at).num_rows for at in range(meta.num_row_groups)]
        self._leaves = [meta.schema.column(at).path for at in range(meta.num_columns)]

    def described(self) -> dict[str, Any]:
        return _described(self._schema, self.groups, self._first)

    def _first(self, group: int, name: str) -> Any:
        self._check(group, name)
        return next(self._file.iter_batches(_SAMPLED, row_groups=[group], columns=[name], use_threads=False))

    def _check(self, group: int, name: str) -> None:
        """Refuse a column that unpacks to too much. The path of a list's leaf begins with its name."""
        nested = is_list(stored(self._schema.field(name).type))
        for at, path in enumerate(self._leaves):
            if path != name and not (nested and path.startswith(f"{name}.")):
                continue
            chunk = self._file.metadata.row_group(group).column(at)
            if chunk.total_uncompressed_size > _LARGEST:
                raise Refused(f"a row group holds {chunk.total_uncompressed_size} bytes of `{name[:60]}`")

    def column(self, group: int, name: str) -> list[Any]:
        self._check(group, name)
        parts = self._file.iter_batches(_AT_A_TIME, row_groups=[group], columns=[name], use_threads=False)
        return _sound((part.column(0) for part in parts), self.groups[group])


class _Ipc:
    def __init__(self, path: str) -> None:
        import pyarrow

        self._source = pyarrow.memory_map(path)
        reader = pyarrow.ipc.open_file(self._source)
        if len(reader.schema) > _MOST_COLUMNS or reader.num_record_batches > _MOST_GROUPS:
            raise Refused(f"it has {len(reader.schema)} columns in {reader.num_record_batches} batches")
        self._schema = reader.schema
        self._readers: dict[str, Any] = {}
        self.groups: list[int] = []
        if len(reader.schema):
            first = self._reader(reader.schema.names[0])
            self.groups = [first.get_batch(at).num_rows for at in range(reader.num_record_batches)]

    def _reader(self, name: str) -> Any:
        """A reader of one column alone: compressed columns are not unpacked for another."""
        if name not in self._readers:
            import pyarrow

            options = pyarrow.ipc.IpcReadOptions(included_fields=[self._schema.names.index(name)], use_threads=False)
            self._readers[name] = pyarrow.ipc.open_file(self._source, options=options)
        return self._readers[name]

    def described(self) -> dict[str, Any]:
        return _described(self._schema, self.groups, lambda at, name: self._batch(at, name)[:_SAMPLED])

    def column(self, group: int, name: str) -> list[Any]:
        return _sound([self._batch(group, name).column(0)], self.groups[group])

    def _batch(self, group: int, name: str) -> Any:
        return self._reader(name).get_batch(group)


class _IpcStream(_Ipc):
    """A stream has no directory, so the batches of a column are kept when it is first read. Those that are not
    compressed stay in the mapped file."""

    def __init__(self, path: str) -> None:
        import pyarrow

        self._source = pyarrow.memory_map(path)
        self._schema = pyarrow.ipc.open_stream(self._source).schema
        if len(self._schema) > _MOST_COLUMNS:
            raise Refused(f"it has {len(self._schema)} columns")
        self._readers = {}
        self.groups = []
        if len(self._schema):
            self.groups = [batch.num_rows for batch in self._reader(self._schema.names[0])]

    def _reader(self, name: str) -> Any:
        """The batches of one column alone."""
        if name not in self._readers:
            import pyarrow

            options = pyarrow.ipc.IpcReadOptions(included_fields=[self._schema.names.index(name)], use_threads=False)
            self._source.seek(0)
            found = [*islice(pyarrow.ipc.open_stream(self._source, options=options), _MOST_GROUPS + 1)]
            if len(found) > _MOST_GROUPS:
                raise Refused(f"it has more than {_MOST_GROUPS} batches")
            if self._source.tell() != self._source.size():
                raise Refused("other bytes follow its end")
            self._readers[name] = found
        return self._readers[name]

    def _batch(self, group: int, name: str) -> Any:
        return self._reader(name)[group]


def _described(schema: Any, groups: list[int], first: Callable[[int, str], Any]) -> dict[str, Any]:
    """``first``: a batch of the first rows of a group, with one column."""
    for rows in groups:
        if not 0 <= rows <= _MOST_ROWS:
            raise Refused(f"a group has {rows} rows, more than {_MOST_ROWS}: write smaller row groups")
    forms = [form_of(field.type) for field in schema]
    listed = [form.startswith("list") for form in forms]
    shapes = [_shape(field, groups, first) if each else () for field, each in zip(schema, listed)]
    return {"names": schema.names, "forms": forms, "shapes": shapes, "groups": groups}


def _shape(field: Any, groups: list[int], first: Callable[[int, str], Any]) -> tuple[int, ...]:
    """The sizes of the lists of a column."""

    def samples() -> Iterator[Any]:
        for group in (at for at, rows in enumerate(groups) if rows):
            part = first(group, field.name)
            part.validate(full=True)
            yield part.column(0)

    return shape_of(stored(field.type), samples())


def _sound(parts: Iterable[Any], rows: int) -> list[Any]:
    """The parts of a column, checked in full: a file may hold offsets that lead out of its buffers, and little data
    that unpacks to much."""
    from pyarrow import compute, types

    found, size = [], 0
    for part in parts:
        part.validate(full=True)
        part = part.storage if stored(part.type) is not part.type else part
        if types.is_dictionary(part.type):
            if is_text(part.type.value_type):
                lengths = compute.take(compute.binary_length(part.dictionary), part.indices)
                size += compute.sum(lengths).as_py() or 0
            _bound(size)
            part = part.dictionary_decode()
        size += part.nbytes + (_TEXT * len(part) if form_of(part.type) == "text" else 0)
        _bound(size)
        found.append(part)
    if sum(map(len, found)) != rows:
        raise Refused(f"a column has {sum(map(len, found))} of {rows} values")
    return found


def _bound(size: int) -> None:
    if size > _LARGEST:
        raise Refused(f"a column unpacks to more than {_LARGEST} bytes in one row group: write smaller row groups")


if __name__ == "__main__":
    main()
