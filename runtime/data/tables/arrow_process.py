"""A process, ``python -m dslc.runtime.data.tables.arrow_process PATH KIND``, that decodes a Parquet or Arrow file.

The decoders are C++ on untrusted bytes: if they crash or allocate too much, only this process ends. Each line of stdin
asks for columns of a group of rows; the answer is a line of JSON, then the bytes of the columns. The first answer
describes the file. The memory of the process is limited before the file is opened.
"""

from __future__ import annotations

import json
import os
import sys
from array import array
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, Final

from dslc.base.confine import confine
from dslc.base.words import reason

_MEMORY: Final = 2 << 30  # bytes of address space beyond what the process has at its start
_MOST_COLUMNS: Final = 10_000
_MOST_GROUPS: Final = 100_000
_MOST_ROWS: Final = 1 << 24  # of a group
_LARGEST: Final = 512 << 20  # bytes of a column in a group, as the file declares them, and decoded
_TEXT: Final = 64  # bytes that a Python text takes besides its characters
_AT_A_TIME: Final = 1 << 16  # rows that are decoded together
_SAMPLED: Final = 100  # rows of a group that tell the numbers of a list
_MOST_THRIFT: Final = 10_000_000  # texts and lists in a Parquet footer, each


class Refused(Exception):
    """The file is not a table that is read here; the texts say why and, if it is known, what helps."""


def main() -> None:
    path, kind = sys.argv[1:3]
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    import pyarrow

    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    confine(_MEMORY)
    errors = (pyarrow.ArrowException, OSError, ValueError, MemoryError, KeyError, IndexError, TypeError, OverflowError)
    try:
        opened = _Parquet(path) if kind == "parquet" else _Ipc(path)
        described = opened.described()
        _answer(described)
    except (Refused, *errors) as error:
        _answer({"error": reason(error)})
        return
    widths = dict(zip(described["names"], described["widths"]))
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            parts = [_bytes_of(opened.column(asked["group"], name), widths[name]) for name in asked["columns"]]
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
        nested = _is_list(self._schema.field(name).type)
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
        return _described(self._schema, self.groups, lambda at, name: self._reader(name).get_batch(at)[:_SAMPLED])

    def column(self, group: int, name: str) -> list[Any]:
        return _sound([self._reader(name).get_batch(group).column(0)], self.groups[group])


def _described(schema: Any, groups: list[int], first: Callable[[int, str], Any]) -> dict[str, Any]:
    """``first``: a batch of the first rows of a group, with one column."""
    for rows in groups:
        if not 0 <= rows <= _MOST_ROWS:
            raise Refused(f"a group has {rows} rows, more than {_MOST_ROWS}: write smaller row groups")
    forms = [_form(field.type) for field in schema]
    widths = [_width(field, groups, first) if form.startswith("list") else 1 for field, form in zip(schema, forms)]
    return {"names": schema.names, "forms": forms, "widths": widths, "groups": groups}


def _width(field: Any, groups: list[int], first: Callable[[int, str], Any]) -> int:
    """The numbers of a list of the column: those of its type, or of the first row that has one; 0 if none has."""
    from pyarrow import compute, types

    if types.is_fixed_size_list(field.type):
        return int(field.type.list_size)
    for group in (at for at, rows in enumerate(groups) if rows):
        part = first(group, field.name)
        part.validate(full=True)
        for each in compute.list_value_length(part.column(0)).drop_null():
            return int(each.as_py())
    return 0


def _form(dtype: Any) -> str:
    """How a column is sent: ``number``, ``f64``, ``date``, ``text``, or that of a list's numbers with ``list of ``
    before; else its type with a question mark before."""
    from pyarrow import types

    if _is_list(dtype):
        inner = _form(dtype.value_type)
        return f"list of {inner}" if inner in ("number", "f64") else f"?{str(dtype)[:60]}"
    if types.is_dictionary(dtype):
        dtype = dtype.value_type
    if types.is_float64(dtype) or types.is_decimal(dtype):
        return "f64"
    if types.is_integer(dtype) or types.is_floating(dtype) or types.is_boolean(dtype):
        return "number"
    if _is_text(dtype) or types.is_null(dtype):
        return "text"
    if types.is_date(dtype) or types.is_timestamp(dtype):
        return "date"
    return f"?{str(dtype)[:60]}"


def _is_list(dtype: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype))


def _is_text(dtype: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype))


def _sound(parts: Iterable[Any], rows: int) -> list[Any]:
    """The parts of a column, checked in full: a file may hold offsets that lead out of its buffers, and little data
    that unpacks to much."""
    from pyarrow import compute, types

    found, size = [], 0
    for part in parts:
        part.validate(full=True)
        if types.is_dictionary(part.type):
            if _is_text(part.type.value_type):
                lengths = compute.take(compute.binary_length(part.dictionary), part.indices)
                size += compute.sum(lengths).as_py() or 0
            _bound(size)
            part = part.dictionary_decode()
        size += part.nbytes + (_TEXT * len(part) if _form(part.type) == "text" else 0)
        _bound(size)
        found.append(part)
    if sum(map(len, found)) != rows:
        raise Refused(f"a column has {sum(map(len, found))} of {rows} values")
    return found


def _bound(size: int) -> None:
    if size > _LARGEST:
        raise Refused(f"a column unpacks to more than {_LARGEST} bytes in one row group: write smaller row groups")


def _bytes_of(column: list[Any], width: int) -> tuple[str, list[bytes]]:
    """The dtype for numpy, or ``text``, and the bytes: missing, then values, or ends and UTF-8. ``width``: the numbers
    of a list."""
    parts = [_list_part(part, width) if _is_list(part.type) else _part_of(part) for part in column]
    missing = b"".join(part[1] for part in parts)
    form = parts[0][0] if parts else "text"
    values = [value for part in parts for value in part[2]]
    if form == "text":
        return form, [missing, array("q", accumulate(map(len, values))).tobytes(), b"".join(values)]
    return form, [missing, b"".join(values)]


def _list_part(column: Any, width: int) -> tuple[str, bytes, list[bytes]]:
    """As ``_part_of``, of the numbers of lists; those of a list that is missing are missing."""
    import numpy as np
    from pyarrow import compute, types

    lengths = compute.list_value_length(column).drop_null().to_numpy(zero_copy_only=False)
    if not (lengths == width).all():
        other = int(lengths[lengths != width][0])
        raise Refused(f"a list has {other} numbers, the first one {width}", "pad the lists to one length")
    child = column.flatten()
    form, lacking, values = _part_of(child.dictionary_decode() if types.is_dictionary(child.type) else child)
    if not column.null_count:
        return form, lacking, values
    there = compute.is_valid(column).to_numpy(zero_copy_only=False)
    missing, found = np.ones((len(column), width), np.uint8), np.zeros((len(column), width), np.dtype(form))
    missing[there] = np.frombuffer(lacking, np.uint8).reshape(-1, width)
    found[there] = np.frombuffer(b"".join(values), np.dtype(form)).reshape(-1, width)
    return form, missing.tobytes(), [found.tobytes()]


def _part_of(column: Any) -> tuple[str, bytes, list[bytes]]:
    """The dtype, the bytes of missing, and the texts or the bytes of all values."""
    import pyarrow
    from pyarrow import compute, types

    missing = compute.is_null(column).cast(pyarrow.uint8()).to_numpy(zero_copy_only=False).tobytes()
    form = _form(column.type)
    if form == "text":
        texts = compute.fill_null(column.cast(pyarrow.large_string()), "").to_pylist()
        return form, missing, [text.encode() for text in texts]
    if form == "date":
        zone = getattr(column.type, "tz", None)
        column = column.cast(pyarrow.timestamp("us", zone), safe=False).cast(pyarrow.int64())
        values = compute.fill_null(column, 0).to_numpy(zero_copy_only=False)
        return "<M8[us]", missing, [values.astype("<i8").tobytes()]
    if types.is_decimal(column.type):
        return "<f8", missing, [_floats(column)]
    truth = types.is_boolean(column.type)
    if truth:
        column = column.cast(pyarrow.uint8())
    if types.is_float16(column.type):
        column = column.cast(pyarrow.float32())
    values = compute.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return "|b1" if truth else values.dtype.newbyteorder("<").str, missing, [values.tobytes()]


def _floats(column: Any) -> bytes:
    """The f64 next to each decimal number, as from a CSV; 0 for a gap."""
    found = array("d")
    for start in range(0, len(column), _AT_A_TIME):
        found.extend(float(value or 0) for value in column[start : start + _AT_A_TIME].to_pylist())
    return found.tobytes()


if __name__ == "__main__":
    main()
