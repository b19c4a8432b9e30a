"""Dtypes by the names of numpy, PyTorch and C: each works, or the help names what does."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.dsl.diagnostics import CompileError, Diagnostic
from dslc.dsl.dtype_names import INTEGERS

OURS = ["f64", "f32", "tf32", "f16", "bf16", *INTEGERS]
PYTORCH = [
    "float32",
    "float",
    "float64",
    "double",
    "float16",
    "half",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "short",
    "int32",
    "int",
    "int64",
    "long",
    "bool",
]
OTHERS = [
    "u16",
    "u32",
    "u64",
    "fp16",
    "fp32",
    "fp64",
    "single",
    "byte",
    "ubyte",
    "ushort",
    "uint",
    "ulong",
    "bool_",
    "s32",
    "i1",
    "in32",
    "I32",
    "U8",
    "Int64",
    "flaot32",
]
ABSTRACT = (np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, np.floating)
NUMPY = [
    name
    for name, found in vars(np).items()
    if isinstance(found, type)
    and issubclass(found, (np.integer, np.floating, np.bool_))
    and found not in (*ABSTRACT, np.timedelta64)
]
NAMES = sorted({*OURS, *PYTORCH, *OTHERS, *NUMPY})


def refused(text: str) -> Diagnostic | None:
    try:
        check_program(files(text))
    except CompileError as error:
        return error.diagnostics[0]
    return None


def declared(dtype: str) -> str:
    return f"nn 1\nmodel Net(x: {dtype}[4, 8]) -> {dtype}[4, 8] {{\n  return x\n}}\n"


def cast(dtype: str) -> str:
    value = f'cast(x, "{dtype}")'
    result, value = (dtype, value) if dtype in INTEGERS else ("", f'cast({value}, "float")')
    return f"nn 1\nmodel Net(x: [4, 8]) -> {result}[4, 8] {{\n  return {value}\n}}\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_dtype_works_or_the_help_does(name: str) -> None:
    found = refused(declared(name))
    if found is None:
        assert name in INTEGERS
        return
    assert found.code == "E0202" and found.help
    if "float tensor is declared without a dtype" in f"{found.title} {found.help}":
        assert re.search("f|real|double|half|single", name) and refused(declared("")) is None
        return
    named = re.findall("`(.+?)`", found.help)
    assert len(named) == 1 and refused(declared(named[0])) is None, found.help
    if name in NUMPY and np.dtype(name).kind in "iu" and name != "byte":  # which is unsigned in PyTorch
        ours, theirs = (np.iinfo(np.dtype(n)) for n in (_numpy(named[0]), name))
        assert (ours.min, ours.max) == (theirs.min, theirs.max)


def _numpy(name: str) -> str:
    return {"i": "int", "u": "uint"}[name[0]] + name[1:]


@pytest.mark.parametrize("name", NAMES)
def test_a_cast_works_or_the_help_does(name: str) -> None:
    found = refused(cast(name))
    if found is None:
        assert name in (*INTEGERS, "float", "f64", "f32", "f16", "bf16")
        return
    assert found.code == "E0209" and found.help
    first = re.findall('"(.+?)"', found.help)[0]
    assert refused(cast(first)) is None


@pytest.mark.parametrize("name", [n for n in NAMES if n not in OURS])
def test_the_type_of_an_argument_is_explained(name: str) -> None:
    found = refused(f"nn 1\nmodel Net(x: [4, 8], n: {name} = 1) -> [4, 8] {{\n  return n * x\n}}\n")
    if name in ("int", "float"):
        assert found is None
    elif name != "bool":
        assert found is not None and found.code == "E0202" and re.search("int|bool|float", str(found.help))


@pytest.mark.parametrize(
    ("name", "meant"), [("float32", "f32"), ("half", "f16"), ("bfloat16", "bf16"), ("fp64", "f64")]
)
def test_a_precision_names_its_own(name: str, meant: str) -> None:
    found = refused(declared("") + f"precision {{ compute = {name} }}\n")
    assert found is not None and found.code == "E0601" and found.help == f"did you mean `{meant}`?"
