"""The numbers of an ``.npy`` file that a `use` names, checked before any of them is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import DataError
from dslc.compiler.check.values import Problem
from dslc.compiler.ir.types import DType
from dslc.dsl.dtype_names import integer_for
from dslc.dsl.load import Table
from dslc.dsl.span import Span
from dslc.runtime.artifact.dtypes import name_of, numpy_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_AXES: Final = 32


def numbers_of(table: Table, span: Span) -> tuple[NDArray[Any], DType]:
    """The array, row-major, in native byte order, and the dtype of its tensor: FLOAT for floats of any width.

    Nothing is unpickled. Raises Problem E0116 for a damaged file, an object array, and dtypes that no tensor has.
    """
    from dslc.runtime.data.formats.arrays import array_of_bytes
    from dslc.runtime.data.source import Source

    def accept(shape: tuple[int, ...]) -> None:
        if len(shape) > _MOST_AXES:
            raise _refused(table, span, f"it has {len(shape)} axes, at most {_MOST_AXES} are possible", None)

    try:
        array = array_of_bytes(table.data, Source(Path(table.path), None, table.path), accept)
    except DataError as error:
        raise _refused(table, span, error.message, error.help) from error
    array = array.astype(array.dtype.newbyteorder("="), order="C")
    known = name_of(array.dtype)
    if known is None:
        wider = integer_for(array.dtype.name)
        help = f"save it as {numpy_name(wider)}: `array.astype(numpy.{numpy_name(wider)})`" if wider else None
        raise _refused(table, span, f"its values are {array.dtype.name}, which no tensor can hold", help)
    dtype = DType(known)
    return array, DType.FLOAT if dtype.is_float else dtype


def _refused(table: Table, span: Span, why: str, help: str | None) -> Problem:
    return Problem("E0116", f"{table.path} cannot be used: {why}", span, help=help)
