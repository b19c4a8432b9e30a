"""What a name stands for: local names, then those of the file, then built-in ones."""

from __future__ import annotations

from dslc.compiler.check.frame import Frame
from dslc.compiler.check.reports import Reports
from dslc.compiler.check.values import (
    NAMED_NUMBERS,
    BlockRef,
    Layer,
    Poison,
    Poisoned,
    Problem,
    Static,
    declare_hint,
    kind_of,
    label_hint,
)
from dslc.compiler.ir.function import FUNCTIONS, OPTIMIZERS, Function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ops.random.init import INITIALISERS, complete, initialiser
from dslc.dsl.other_names import begins_like, function_hint, nearest_hint, word_hint
from dslc.dsl.span import Span


def lookup(name: str, span: Span, frame: Frame, reports: Reports) -> Static:
    """Searches local names, then dims, the file's constants and blocks, then built-in functions; E0102."""
    value: Static | None = frame.locals.get(name)
    if value is None:
        value = frame.dims.get(name)
    if value is None and frame.file_dims:
        value = frame.scope.dim(name)
    if value is None:
        value = frame.scope.values.get(name)
    if value is None:
        value = FUNCTIONS.get(name)
    if value is None and complete(name):
        value = initialiser(name)
    if value is None:
        value = NAMED_NUMBERS.get(name)
    if isinstance(value, Poison):
        raise Poisoned
    if value is None:
        if reports.has("E0102", span):
            raise Poisoned
        raise _unknown(name, span, frame)
    return value


def _unknown(name: str, span: Span, frame: Frame) -> Problem:
    if name in frame.scope.dims:
        return Problem(
            "E0102",
            f"dim `{name}` of the file is not visible inside a block",
            span,
            "a block's dims come from its own arguments",
            help=f"give it an argument with this size, `{name}: int` or a tensor such as `like: [{name}]`",
        )
    if name in frame.unseen:
        return _unseen(name, frame.unseen[name], span)
    if name in OPTIMIZERS:
        return Problem("E0207", f"`{name}` is an optimizer", span, "belongs to `optimizer =` in `train`")
    if name in INITIALISERS:
        forms = " or ".join(f"{name}({', '.join(form)})" for form in INITIALISERS[name].forms)
        return Problem("E0201", f"`{name}` needs its arguments", span, "an initialiser", help=f"write {forms}")
    known = [*frame.locals, *frame.dims, *frame.scope.values, *FUNCTIONS]
    known += frame.scope.dims if frame.file_dims else []
    help = label_hint(name) if name in frame.names else word_hint(name) or function_hint(name)
    help = help or nearest_hint(name, known)
    help = help or begins_like(name, INITIALISERS) or declare_hint(name)
    return Problem("E0102", f"unknown name `{name}`", span, "not declared here", help=help)


def _unseen(name: str, value: Static, span: Span) -> Problem:
    """E0102 for a name of the model's body in its train section."""
    result = f"{name}: [...]"
    if isinstance(value, Value):
        result = f"{name}: [{', '.join(map(str, value.type.shape))}]"
    return Problem(
        "E0102",
        f"`{name}` of the model is not visible in its train section",
        span,
        "the section sees the model's inputs, arguments, results and parameters",
        help=f"return `{name}` from the model and name the results: `-> (output: [...], {result})`",
    )


def resolve_callee(value: Static, name: str, span: Span) -> BlockRef | Function | Layer:
    """A value that can be called; E0101 otherwise."""
    if isinstance(value, (BlockRef, Function, Layer)):
        return value
    raise Problem("E0101", f"`{name}` is {kind_of(value)} and cannot be called", span, "not a function or block")
