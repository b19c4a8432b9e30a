"""The numbers of an ``.npy`` file that a `use` names, checked before any of them is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import DataError
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.types import DType
from dslc.runtime.artifact.dtypes import name_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_AXES: Final = 32


def numbers_of(path: str, data: bytes) -> tuple[NDArray[Any], DType]:
    """The array, row-major, in native byte order, and the dtype of its tensor: FLOAT for floats of any width.

    Nothing is unpickled. Raises Mismatch E0116 for a damaged file, an object array, and dtypes that no tensor has.
    """
    from dslc.runtime.data.formats.arrays import array_of_bytes
    from dslc.runtime.data.source import Source

    def accept(shape: tuple[int, ...]) -> None:
        if len(shape) > _MOST_AXES:
            raise _refused(path, f"it has {len(shape)} axes, at most {_MOST_AXES} are possible", None)

    try:
        array = array_of_bytes(data, Source(Path(path), None, path), accept)
    except DataError as error:
        raise _refused(path, error.message, error.help) from error
    array = array.astype(array.dtype.newbyteorder("="), order="C")
    known = name_of(array.dtype)
    assert known is not None, "array_of_bytes accepts no other dtypes"
    dtype = DType(known)
    return array, DType.FLOAT if dtype.is_float else dtype


def _refused(path: str, why: str, help: str | None) -> Mismatch:
    return Mismatch(f"{path} cannot be used: {why}", help, "E0116")
