"""The `cast` that a hint suggests, written with the text of the argument that needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dslc.compiler.check.values import Static
from dslc.compiler.ir.graph import Input, Kind, Value
from dslc.compiler.ir.types import DType
from dslc.dsl import syntax

#: Constants that are float tensors if their ``dtype`` says so.
_COUNTS: Final = ("arange", "tensor")
_LONGEST: Final = 40  # characters of an argument in a hint


def with_cast(help: str | None, parts: Sequence[tuple[syntax.Expr, Static]]) -> str | None:
    """The hint of a mismatch, for the arguments ``parts`` of an operator or function: `x` in its `cast` becomes the
    argument meant, if its text is short."""
    if help is None:
        return None
    found = _argument(parts, floats=False)
    if found is not None and any(isinstance(v, float) or _is_tensor(v, floats=True) for _, v in parts):
        number = next((v for _, v in parts if isinstance(v, float)), None)
        if help == "write an int, or `cast` the tensor":
            exact = f"write {int(number)}, or " if number is not None and number.is_integer() else ""
            return f"{exact}convert the tensor: `{_as_float(found)}`"
        if help == "convert one side with `cast`":
            return f"convert it: `{_as_float(found)}`"
    if found is not None and 'cast(x, "float")' in help:
        return help.replace('cast(x, "float")', _as_float(found))
    if help == "convert one side with `cast`":
        return _of_one_kind(parts) or help
    whole = _argument(parts, floats=True)
    if whole is not None and 'cast(x, "i32")' in help:
        given = next(v for e, v in parts if e is whole)
        if isinstance(given, Value) and isinstance(given.producer, Input) and given.producer.kind is Kind.DATA:
            sizes = ", ".join(map(str, given.type.shape))
            return f"declare the input as integers: `{given.producer.name}: i32[{sizes}]`"
        return help.replace("cast(x,", f"cast({whole.span.text},")
    return help


def mixed(left: Static, right: Static) -> str:
    """What an operator does not combine: "i32 and i64", or "integers and floats"."""
    dtypes = [x.type.dtype for x in (left, right) if isinstance(x, Value)]
    alike = len(dtypes) == 2 and dtypes[0].is_float == dtypes[1].is_float
    return f"{dtypes[0]} and {dtypes[1]}" if alike else "integers and floats"


def _of_one_kind(parts: Sequence[tuple[syntax.Expr, Static]]) -> str | None:
    """Of two tensors of integers, or of floats: the narrower one as the other; None if its text is long."""
    tensors = [(e, v.type.dtype) for e, v in parts if isinstance(v, Value)]
    if len(tensors) != 2 or tensors[0][1].is_float != tensors[1][1].is_float:
        return None
    (expr, narrow), (_, wide) = sorted(tensors, key=lambda each: (each[1] is not DType.B1, each[1].itemsize))
    if narrow.is_float:  # of one dtype that is written, and the file's own
        expr, narrow = next((e, d) for e, d in tensors if d is not DType.FLOAT)
        wide = DType.FLOAT
    if isinstance(expr, syntax.Pipe) or len(expr.span.text) > _LONGEST or "\n" in expr.span.text:
        return None
    return f'convert it: `cast({expr.span.text}, "{wide}")`'


def _is_tensor(value: Static, floats: bool) -> bool:
    return isinstance(value, Value) and value.type.dtype.is_float is floats


def _argument(parts: Sequence[tuple[syntax.Expr, Static]], floats: bool) -> syntax.Expr | None:
    """The first tensor of floats, or of others, of which integers go before b1; None if its text is long."""
    fits = [(e, v) for e, v in parts if isinstance(v, Value) and v.type.dtype.is_float is floats]
    expr = next((e for e, v in sorted(fits, key=lambda each: each[1].type.dtype is DType.B1)), None)
    if expr is None or isinstance(expr, syntax.Pipe):
        return None
    return expr if len(expr.span.text) <= _LONGEST and "\n" not in expr.span.text else None


def _as_float(expr: syntax.Expr) -> str:
    text = expr.span.text
    match expr:
        case syntax.Call(function=syntax.Name(name=name), args=args) if name in _COUNTS:
            if all(arg.name != "dtype" for arg in args):
                return f'{text[:-1]}, dtype="float")'
    return f'cast({text}, "float")'
