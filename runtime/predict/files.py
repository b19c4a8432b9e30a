"""The files that take the results of a prediction: ``.npy``, ``.npz``, ``.csv``, ``.jsonl``, ``.parquet``.

Each is written batch by batch and gets its name when it is complete; an error leaves an earlier file as it was. Only
``.npy`` and ``.npz`` hold all results in memory.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import EnvironmentFault, InputError
from dslc.base.publish import publish_bytes
from dslc.runtime.predict.layout import Layout, flat_columns, row_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.base.publish import Sink
    from dslc.runtime.artifact.interface import Interface
    from dslc.runtime.predict.rows import Predicted

_Write = Callable[["Iterable[Predicted]", Layout, "Sink"], None]


def write(
    target: Path, parts: Iterable[Predicted], layout: Callable[[], Layout], interface: Interface
) -> dict[str, list[int]]:
    """Write all results into one file; returns the shape of each. ``layout`` is called if the format has columns.

    Raises InputError R105 for results that the format cannot hold, ResourceError R402, EnvironmentFault R205 without
    pyarrow, and the errors of the batches.
    """
    shapes: dict[str, list[int]] = {}

    def seen() -> Iterator[Predicted]:
        for part in parts:
            for result in interface.results:
                shape = part.results[result.name].shape
                rows = interface.rows_of(result)
                if result.name in shapes and rows:
                    shapes[result.name][0] += shape[0]
                else:
                    shapes.setdefault(result.name, list(shape))
            yield part

    suffix = target.suffix
    if suffix in TABLES:
        columns = layout()
        _require(suffix)
        publish_bytes(target, lambda sink: TABLES[suffix](seen(), columns, sink))
    else:
        publish_bytes(target, lambda sink: _arrays(seen(), layout, interface, suffix, sink))
    return shapes


def check_folder(target: Path) -> None:
    """Raises InputError R105 if the folder of the file does not exist."""
    if not target.parent.is_dir():
        raise InputError("R105", f"there is no folder {str(target.parent)[:200]}", place="-o", help="make it first")


def check_target(target: Path, interface: Interface) -> None:
    """Raises InputError R105 for a file that cannot hold the results."""
    if target.suffix == ".npy" and len(interface.results) != 1:
        names = ", ".join(tensor.name for tensor in interface.results)
        raise InputError("R105", f"the model has several results ({names})", place="-o", help="write an .npz")


def _require(suffix: str) -> None:
    if suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise EnvironmentFault(
                "R205", "Parquet files need pyarrow", place="-o", help="pip install 'dslc[parquet]'"
            ) from error


def _arrays(
    parts: Iterable[Predicted], layout: Callable[[], Layout], interface: Interface, suffix: str, sink: Sink
) -> None:
    """An ``.npy`` of the only result; or an ``.npz`` of all, with the names of rows and classes if there are any."""
    held: dict[str, list[NDArray[Any]]] = {result.name: [] for result in interface.results}
    names: list[str] = []
    for part in parts:
        names += part.names or []
        for result in interface.results:
            if interface.rows_of(result) or not held[result.name]:
                held[result.name].append(part.results[result.name])
    whole = {name: np.concatenate(arrays) if arrays[0].ndim else arrays[0] for name, arrays in held.items()}
    buffer = io.BytesIO()
    if suffix == ".npy":
        np.save(buffer, next(iter(whole.values())), allow_pickle=False)
    else:
        extra: dict[str, NDArray[Any]] = {}
        if any(map(interface.rows_of, interface.results)):
            columns = layout()
            extra = dict(columns.classified(whole)) if any(known for _, known in columns.classes.values()) else {}
            if names:
                extra[columns.row] = np.asarray(names, np.str_)
        _npz({**extra, **whole}, buffer)
    sink.write(buffer.getbuffer())


def _npz(arrays: Mapping[str, NDArray[Any]], out: io.BytesIO) -> None:
    """As ``numpy.savez`` writes it, for arrays of any names: those are keyword arguments there, and ``file`` is taken.
    Equal arrays give equal bytes."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # of 1980-01-01, whatever the clock says
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def _csv(parts: Iterable[Predicted], layout: Layout, sink: Sink) -> None:
    """A header, then one line per row. Numbers have the fewest digits that give the same value in their dtype."""
    start, columns = 0, None
    for part in parts:
        shapes = {result.name: part.results[result.name].shape[1:] for result in layout.results}
        lines = io.StringIO(newline="")
        out = csv.writer(lines, lineterminator="\n")
        if columns is None:
            columns = flat_columns(layout, shapes)
            classes = [column for column, _ in layout.classes.values()]
            out.writerow([layout.row, *classes, *(name for names in columns.values() for name in names)])
        count = len(part.results[layout.results[0].name])
        classified = [values.tolist() for _, values in layout.classified(part.results)]
        texts = [_texts(part.results[name]).reshape(count, -1).tolist() for name in columns]
        for at, row in enumerate(row_values(part, start, count)):
            out.writerow([row, *(values[at] for values in classified), *(x for each in texts for x in each[at])])
        sink.write(lines.getvalue().encode())
        start += count


def _json_lines(parts: Iterable[Predicted], layout: Layout, sink: Sink) -> None:
    """One JSON object per row; a number that is not finite becomes null, because JSON has none."""
    start = 0
    for part in parts:
        count = len(part.results[layout.results[0].name])
        classified = {column: values.tolist() for column, values in layout.classified(part.results)}
        lists = {result.name: _plain(part.results[result.name]) for result in layout.results}
        lines = [
            json.dumps({layout.row: row, **{k: v[at] for k, v in (classified | lists).items()}}, ensure_ascii=False)
            for at, row in enumerate(row_values(part, start, count))
        ]
        sink.write("".join(line + "\n" for line in lines).encode())
        start += count


def _parquet(parts: Iterable[Predicted], layout: Layout, sink: Sink) -> None:
    """One row group per batch; a row of a result is a list if it has several values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer, start = None, 0
    target = pa.PythonFile(_Bytes(sink), mode="w")
    try:
        for part in parts:
            count = len(part.results[layout.results[0].name])
            table = pa.table(
                {
                    layout.row: row_values(part, start, count),
                    **{column: pa.array(values) for column, values in layout.classified(part.results)},
                    **{result.name: _nested(pa, part.results[result.name]) for result in layout.results},
                }
            )
            if writer is None:
                writer = pq.ParquetWriter(target, table.schema)
            writer.write_table(table)
            start += count
    finally:
        if writer is not None:
            writer.close()  # also after an error: else it writes when nobody has it any more


class _Bytes:
    """A Sink as a Python file, which pyarrow writes to."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._at = 0

    def write(self, data: Any) -> int:
        self._at += self._sink.write(data)
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Does nothing: the sink has no buffer."""

    def close(self) -> None:
        """Does nothing: the sink's owner closes it."""


def _nested(pa: Any, array: NDArray[Any]) -> Any:
    found = pa.array(np.ascontiguousarray(array).reshape(-1))
    for size in reversed(array.shape[1:]):
        found = pa.FixedSizeListArray.from_arrays(found, size)
    return found


def _texts(array: NDArray[Any]) -> NDArray[np.str_]:
    return array.astype(np.str_)


def _plain(array: NDArray[Any]) -> list[Any]:
    """Nested lists of Python numbers; a float has the value of its shortest text."""
    if array.dtype.kind != "f":
        return list(array.tolist())
    wide = _texts(array).astype(np.float64)
    if np.isfinite(wide).all():
        return list(wide.tolist())
    return list(np.where(np.isfinite(wide), wide.astype(object), np.array(None, object)).tolist())


TABLES: Final[Mapping[str, _Write]] = {".csv": _csv, ".jsonl": _json_lines, ".parquet": _parquet}
#: Suffixes of the files.
FORMATS: Final = (*TABLES, ".npz", ".npy")
