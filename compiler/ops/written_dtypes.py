"""The dtypes that the language names in arguments such as ``dtype="i32"``."""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.types import DType
from dslc.dsl.dtype_names import float_for, integer_for, is_float_name

# The dtypes that the language may name; "float" is the one that `precision` selects.
_FLOATS: Final = (DType.F64, DType.F32, DType.F16, DType.BF16)
_WRITTEN: Final = (DType.FLOAT, *_FLOATS, *(d for d in DType if d.is_int), DType.B1)


def dtype_named(function: str, name: str) -> DType:
    """The dtype with this name in the language. Raises Mismatch E0209 with the name that may be meant."""
    for known in _WRITTEN:
        if known.value == name:
            return known
    near = integer_for(name) or next((d.value for d in _FLOATS if d.value == float_for(name)), None)
    if near is not None:
        help = f'write "{near}"'
    elif is_float_name(name):
        help = 'write "float"; `precision { compute = ... }` selects the float dtype'
    else:
        help = "write one of " + ", ".join(f'"{d}"' for d in _WRITTEN)
    raise Mismatch(f"`{function}` has no dtype {name!r}", help, "E0209")


def float_named(name: str, dtype: str) -> DType:
    """The float dtype with this name. Raises Mismatch E0209."""
    known = dtype_named(name, dtype)
    if known in (DType.FLOAT, DType.F32, DType.F64):
        return known
    if known.is_float:
        raise Mismatch(f'`{name}` has no dtype "{dtype}"', f'`cast({name}(...), "{dtype}")` rounds it', "E0209")
    raise Mismatch(f'`{name}` gives floats, not "{dtype}"', f'`cast({name}(...), "{dtype}")` truncates them', "E0209")
