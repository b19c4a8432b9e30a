"""Names of dtypes: those of the language, and the replacements for names of numpy, PyTorch, C and others."""

from __future__ import annotations

from typing import Final

from dslc.dsl.diagnostics import did_you_mean

#: the dtypes of declared tensors; a float tensor is declared only by its shape
INTEGERS: Final = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "b1")
_FLOATS: Final = ("f64", "f32", "tf32", "f16", "bf16", "f8e4m3", "f8e5m2")
DTYPES: Final = (*_FLOATS, *INTEGERS)

#: the float types in which a model may compute
FLOAT_TYPES: Final = ("f64", "f32", "tf32", "f16", "bf16")

_SAME: Final = {
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b1", "bool_": "b1",
    "boolean": "b1", "long": "i64", "longlong": "i64", "int": "i32", "integer": "i32", "short": "i16", "char": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "ulong": "u64", "ulonglong": "u64", "uintp": "u64",
    "uintc": "u32", "uint": "u64", "ushort": "u16", "byte": "u8", "ubyte": "u8", "uchar": "u8", "s64": "i64",
    "s32": "i32", "s16": "i16", "s8": "i8", "i1": "b1",
    "u1": "b1", "intc": "i32", "int_": "i64", "intp": "i64",
    "bit": "b1", "mask": "b1", "LongTensor": "i64", "IntTensor": "i32", "BoolTensor": "b1",
}  # fmt: skip
_FLOATING: Final = frozenset(
    ["float", "float64", "float32", "float16", "bfloat16", "double", "half", "single", "longdouble", "float128", "fp64",
     "fp32", "fp16", "fp8", "bf8", "bfloat", "brain", "real", "float8", "float8_e4m3fn", "float8_e5m2", "FloatTensor",
     "f8", "f128", "tfloat32"]
)  # fmt: skip

_FLOAT_NAMES: Final = {
    "float": "f32", "single": "f32", "float32": "f32", "fp32": "f32", "double": "f64", "float64": "f64", "fp64": "f64",
    "half": "f16", "float16": "f16", "fp16": "f16", "bfloat16": "bf16", "bfloat": "bf16", "tfloat32": "tf32",
}  # fmt: skip


_KNOWN: Final = frozenset((*DTYPES, *_SAME, *_FLOATING))


def _meant(name: str) -> str:
    """The name itself if it is known, else the known name that it misspells."""
    return name if name in _KNOWN else did_you_mean(name, _KNOWN) or name


def is_float_name(name: str) -> bool:
    """True for the name of a float type in this or another language, also if slightly misspelt."""
    return _meant(name) in (*_FLOATS, *_FLOATING)


def integer_for(name: str) -> str | None:
    """The dtype that replaces an unknown name: the same type, or the misspelt type. None for float types and for
    anything else."""
    meant = _meant(name)
    return meant if meant in INTEGERS else _SAME.get(meant)


def float_for(name: str) -> str | None:
    """The float type of the language that another name denotes or misspells; None for anything else."""
    meant = _meant(name)
    return meant if meant in _FLOATS else _FLOAT_NAMES.get(meant)


def instead_of(name: str) -> str:
    """The help for a tensor declared with an invalid dtype."""
    if is_float_name(name):
        return f"a float tensor is declared without a dtype: remove `{name}`; `precision` sets it"
    near = integer_for(name)
    if near is None:
        return f"the dtypes are {', '.join(INTEGERS)}; a float tensor needs none"
    return f"write `{near}`" if name in _SAME else f"did you mean `{near}`?"
