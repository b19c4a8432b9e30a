"""How the columns of Arrow become bytes: their forms, the shapes of lists, missing values. Only the decoding process
(``arrow_process.py``) imports this module."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate
from math import prod
from typing import Any, Final

_AT_A_TIME: Final = 1 << 16  # rows that are decoded together


class Refused(Exception):
    """The file is not a table that is read here; the texts say why and, if it is known, what helps."""


def form_of(dtype: Any) -> str:
    """How a column is sent: ``number``, ``f64``, ``date``, ``text``, or that of a list's numbers with ``list of ``
    before; else its type with a question mark before."""
    from pyarrow import types

    dtype = stored(dtype)
    if is_list(dtype):
        inner = form_of(dtype.value_type).removeprefix("list of ")
        return f"list of {inner}" if inner in ("number", "f64") else f"?{str(dtype)[:60]}"
    if types.is_dictionary(dtype):
        dtype = dtype.value_type
    if types.is_float64(dtype) or types.is_decimal(dtype):
        return "f64"
    if types.is_integer(dtype) or types.is_floating(dtype) or types.is_boolean(dtype):
        return "number"
    if is_text(dtype) or types.is_null(dtype):
        return "text"
    if types.is_date(dtype) or types.is_timestamp(dtype):
        return "date"
    return f"?{str(dtype)[:60]}"


def stored(dtype: Any) -> Any:
    """The type as which a tensor of one shape, of Arrow's extension types, is stored: a list in row-major order. Others
    stay as they are."""
    import pyarrow

    is_tensor = isinstance(dtype, pyarrow.FixedShapeTensorType) and dtype.permutation is None
    return dtype.storage_type if is_tensor else dtype


def is_list(dtype: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype))


def is_text(dtype: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype))


def shape_of(dtype: Any, samples: Iterable[Any]) -> tuple[int, ...]:
    """The sizes of a list and of the lists in it: those of its type, or of the first ones that ``samples``, columns of
    this type, have; (0,) if none has any."""
    from pyarrow import compute, types

    sizes, inner = [], dtype
    while types.is_fixed_size_list(inner):
        sizes.append(int(inner.list_size))
        inner = inner.value_type
    if not is_list(inner):
        return tuple(sizes)
    for column in samples:
        sizes = []
        while is_list(column.type):
            lengths = compute.list_value_length(column).drop_null()
            if not len(lengths):
                break
            sizes.append(int(lengths[0].as_py()))
            column = column.flatten()
        else:
            return tuple(sizes)
    return (0,)


def bytes_of(column: list[Any], shape: tuple[int, ...]) -> tuple[str, list[bytes]]:
    """The dtype for numpy, or ``text``, and the bytes: missing, then values, or ends and UTF-8. ``shape``: of
    lists."""
    parts = [_list_part(part, shape) if is_list(part.type) else _part_of(part) for part in column]
    missing = b"".join(part[1] for part in parts)
    form = parts[0][0] if parts else "text"
    values = [value for part in parts for value in part[2]]
    if form == "text":
        return form, [missing, array("q", accumulate(map(len, values))).tobytes(), b"".join(values)]
    return form, [missing, b"".join(values)]


def _list_part(column: Any, shape: tuple[int, ...]) -> tuple[str, bytes, list[bytes]]:
    """As ``_part_of``, of the numbers of lists; those of a list that is missing are missing."""
    import numpy as np
    from pyarrow import compute, types

    lengths = compute.list_value_length(column).drop_null().to_numpy(zero_copy_only=False)
    if not (lengths == shape[0]).all():
        other, what = int(lengths[lengths != shape[0]][0]), "numbers" if len(shape) == 1 else "lists"
        raise Refused(f"a list has {other} {what}, the first one {shape[0]}", "pad the lists to one length")
    child = column.flatten()
    if is_list(child.type):
        form, lacking, values = _list_part(child, shape[1:])
    else:
        form, lacking, values = _part_of(child.dictionary_decode() if types.is_dictionary(child.type) else child)
    if not column.null_count:
        return form, lacking, values
    there, width = compute.is_valid(column).to_numpy(zero_copy_only=False), prod(shape)
    missing, found = np.ones((len(column), width), np.uint8), np.zeros((len(column), width), np.dtype(form))
    missing[there] = np.frombuffer(lacking, np.uint8).reshape(-1, width)
    found[there] = np.frombuffer(b"".join(values), np.dtype(form)).reshape(-1, width)
    return form, missing.tobytes(), [found.tobytes()]


def _part_of(column: Any) -> tuple[str, bytes, list[bytes]]:
    """The dtype, the bytes of missing, and the texts or the bytes of all values."""
    import pyarrow
    from pyarrow import compute, types

    missing = compute.is_null(column).cast(pyarrow.uint8()).to_numpy(zero_copy_only=False).tobytes()
    form = form_of(column.type)
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
