"""Declarations of inputs and names: the types that they declare, and names that callers from Python can use."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from dslc.compiler.check.calls.equal_sizes import to_equal
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.reports import Reports
from dslc.compiler.check.tensors import ParamInfo, StateInfo, Tensors, check_bytes
from dslc.compiler.check.values import BlockRef, Layer, Problem, Static
from dslc.compiler.ir.function import Function
from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.sizes import Size, bounds
from dslc.compiler.ir.types import DType, TensorType
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label
from dslc.dsl.other_names import short
from dslc.dsl.span import Span
from dslc.runtime.artifact.reserved import LOSS_SUM, OF_EPOCH, OF_STATE, SCALING

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander

#: float dtypes that a `cast` fixes, which a block's arguments and results may have
_FIXED: Final = ("f64", "f32", "f16", "bf16")

_OTHER_FLOATS: Final = ("tf32", "f8e4m3", "f8e5m2")


def declared_dtype(type: syntax.TensorTypeExpr, *, inside: bool) -> DType:
    """The dtype of a declared tensor. ``inside``: of a block; inputs and results of models and train sections are
    integers, or floats without a dtype."""
    if type.dtype is None:
        return DType.FLOAT
    if type.dtype in _OTHER_FLOATS or (type.dtype in _FIXED and not inside):
        one = f'`cast(x, "{type.dtype}")` one tensor' if type.dtype in _FIXED else "`@precision(...)` one block"
        help = f"remove it: `precision {{ compute = ... }}` sets it for the file, {one}"
        raise Problem(
            "E0202", "a float tensor is declared without a dtype", type.span, f"declared {type.dtype}", help=help
        )
    return DType(type.dtype)


def input_type(type: syntax.TensorTypeExpr, frame: Frame, expander: Expander) -> TensorType:
    """The type of an input of a model or train section; E0304 for a negative size, E0305 for one beyond MAX_BYTES."""
    for expr in type.shape:
        if inferred(expr):
            help = "declare it, `dim T in 1..512 = 64`, and write `T`; only a result's size is inferred"
            raise Problem("E0307", "an input's size cannot be inferred", expr.span, "not known", help=help)
    shape = tuple(expander.evaluate.shape_size(size, frame) for size in type.shape)
    for expr, size in zip(type.shape, shape):
        if bounds(size)[0] < 0:
            raise Problem("E0304", "a size is at least 0", expr.span, f"is {size}")
    found = TensorType(declared_dtype(type, inside=False), shape)
    check_bytes(found, type.span)
    return found


_KINDS: Final = {Kind.PARAM: "the parameter", Kind.BUFFER: "the buffer", Kind.STATE: "the state"}
#: keyword arguments of predict, train_step and evaluate
RESERVED_INPUTS: Final = ("self", "step", "row", "lr", "seed")


def check_input_name(name: str, span: Span) -> None:
    """E0112 for an input of a model or train section that callers could not pass by its name."""
    check_public_name(name, "an input", span)
    if name in RESERVED_INPUTS:
        raise Problem(
            "E0112",
            f"an input cannot be named `{name}`",
            span,
            "`predict` and `train_step` have an argument of this name",
            help="choose another name",
        )


def check_stored_names(tensors: Tensors, reports: Reports) -> None:
    """Reports E0103 for a parameter, buffer or state with the name of an input or of an argument of the train section,
    E0112 for one with the name of a number that each step has: a program knows its inputs by name."""
    found: dict[str, ParamInfo | StateInfo] = {**tensors.stored, **tensors.states}
    for name, info in found.items():
        what, help = f"{_KINDS[info.input.kind]} `{name}`", f"choose another name, such as `{name}_`"
        if name in tensors.data:
            place = tensors.data[name].span
            also = () if place is None else (Label(place, "the input"),)
            title = f"{what} has the name of an input"
            reports.add(Problem("E0103", title, info.span, "the same name", help=help, also=also))
        elif name in RESERVED_INPUTS:
            title = f"{what} has the name of a number of each step"
            reports.add(Problem("E0112", title, info.span, "`step`, `lr`, `row` and `seed` are taken", help=help))
        elif name in (*SCALING, LOSS_SUM) or name.startswith((OF_EPOCH, OF_STATE)):
            title, help = f"{what} has the name of a tensor of the training step", "choose another label than `train`"
            reports.add(Problem("E0112", title, info.span, "a training step keeps it", help=help))
        elif name in tensors.scalars:
            title = f"{what} has the name of an argument of the train section"
            reports.add(Problem("E0103", title, info.span, "the same name", help=help))


def check_public_name(name: str, what: str, span: Span) -> None:
    """E0112 if ``what`` (a model, a dim, ...) has a name that Python code cannot use: it is part of the interface."""
    if keyword.iskeyword(name) or name.startswith("__"):
        why = "is a Python keyword" if keyword.iskeyword(name) else "begins with two underscores"
        raise Problem("E0112", f"{what} cannot be named `{name}`", span, why, help="choose another name")


def inferred(expr: syntax.Expr) -> bool:
    """True for `_`: any size of an argument, the size that a result has."""
    return isinstance(expr, syntax.Name) and expr.name == "_"


def as_it_is(shape: Sequence[Size | None], actual: TensorType, differing: bool) -> str | None:
    """The help for a result whose declared sizes are ``shape``, None for `_`, and which is ``actual``."""
    if len(shape) == 2 < actual.rank:
        return "if each row should become a vector, put `flatten` before the last layer: `x |> flatten |> linear(10)`"
    if not differing:
        return None
    pairs = [(want, size) for want, size in zip(shape, actual.shape) if want is not None and want != size]
    return to_equal(pairs) or "write the size that it has, or `_` to have it inferred"


def leaves(values: Sequence[Static]) -> Iterator[Static]:
    """What lists and several results, and those in these, consist of; a list that occurs again counts once."""
    left, seen = [*reversed(values)], set[int]()
    while left:
        item = left.pop()
        if not isinstance(item, (list, tuple)):
            yield item
        elif id(item) not in seen:
            seen.add(id(item))
            left += reversed(item)


def as_tensor(item: Static, written: str) -> str | None:
    """The help for a result that is no tensor; ``written``: its text."""
    if isinstance(item, (Layer, BlockRef, Function)):
        return f"call it: `{short(written, 'f')}(x)`"
    is_list = isinstance(item, (list, tuple))
    return "take its tensors, as in `y[0]`; a block that declares no result returns lists, too" if is_list else None
