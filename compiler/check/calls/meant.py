"""What was probably meant by an argument of a wrong kind, or by one too many."""

from __future__ import annotations

import inspect
from typing import Final

from dslc.compiler.check.calls.convert import is_int
from dslc.compiler.check.calls.given import Given
from dslc.compiler.ir.function import Function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import Poly
from dslc.compiler.ops.random.init import INITIALISERS
from dslc.dsl import syntax
from dslc.dsl.diagnostics import did_you_mean
from dslc.dsl.other_calls import assigned_name
from dslc.dsl.other_names import short
from dslc.dsl.span import Span

#: Layers whose result is as large as their input, and whose numbers are no sizes.
_KNOW_THEIR_SIZE: Final = ("batchnorm", "groupnorm", "instancenorm", "layernorm", "rmsnorm")


def meant(function: Function, parameter: inspect.Parameter, arg: Given, given: list[Given]) -> str:
    """The help for an argument of a wrong kind: what was probably meant, else how the function is called."""
    if _kind(parameter) == "Value" and isinstance(arg.value, tuple):
        names = ", ".join("abcdefgh"[: len(arg.value)])
        return f"give each of them a name, as `{names} = ...`, and pass on the one that is meant"
    takes_tensor = bool(function.parameters) and str(function.parameters[0].annotation) in ("Value", "Operand")
    if takes_tensor and arg is given[0] and not isinstance(arg.value, (list, tuple)):
        known = _makes(function) and len(given) > 1 and all(is_int(g.value) for g in given[:2])
        rest = ", ".join(each.span.text for each in given[known:])
        here = f"{function.name}(x, {rest})"
        shown = here if len(here) <= 60 and "\n" not in here else f"{function.name}(x, ...)"
        later = (
            f"; `layer name = {function.name}({rest})` makes a layer that is called later" if _makes(function) else ""
        )
        return f"the tensor comes first: write `{shown}`, or pipe it: `x |> {function.name}(...)`{later}"
    return _of_text(parameter, arg) or known_size(function, given) or listed(function, given) or usage(function)


def _of_text(parameter: inspect.Parameter, arg: Given) -> str | None:
    """The help for a text in the place of a number or an initialiser."""
    if not isinstance(arg.value, str):
        return None
    text, kind = arg.value[:40], _kind(parameter)
    if kind == "Init":
        first = [each for each in INITIALISERS if each.startswith(f"{text.lower()}_")]
        near = text if text in INITIALISERS else did_you_mean(text, INITIALISERS) or min(first, default="normal")
        example = "normal(0.02)" if near == "normal" else near
        return f"an initialiser stands without quotes: write `{parameter.name}={example}`"
    if kind == "Ints" and text in ("same", "valid"):
        return f"write a number: `{parameter.name}=1` keeps the sizes under a window of 3, 0 adds nothing"
    return number_in_quotes(text)


def number_in_quotes(text: str) -> str | None:
    """The help for a text that is a number."""
    try:
        float(text)
    except ValueError:
        return None
    return f"write it without quotes: `{text.strip()}`"


def listed(function: Function, given: list[Given]) -> str | None:
    """The help if the numbers of a list are given one by one: `reshape(x, B, 4)`, `transpose(x, 1, 2)`."""
    place = next((i for i, p in enumerate(function.parameters) if _kind(p) in ("Shape", "Ints")), None)
    rest = [] if place is None else [g for g in given[place:] if g.name is None]
    sizes = place is not None and _kind(function.parameters[place]) == "Shape"
    if len(rest) < 2 or not all(is_int(g.value) or (sizes and isinstance(g.value, Poly)) for g in rest):
        return None
    texts, tensor = [str(g.span.text) for g in rest], given[0].value if place else None
    if place and isinstance(tensor, Value) and not sizes and len(rest) > _most(function.parameters[place], tensor):
        return None
    if function.name == "transpose" and isinstance(tensor, Value) and len(rest) == 2:
        order = list(range(tensor.type.rank))
        axes = [int(g.value) for g in rest if isinstance(g.value, int) and -len(order) <= g.value < len(order)]
        if len(axes) < 2:
            return None
        order[axes[0]], order[axes[1]] = order[axes[1]], order[axes[0]]
        texts = [str(axis) for axis in order]
    before = [_written(g) for g in given[:place]]
    return f"write `{function.name}({', '.join([*before, '[' + ', '.join(texts) + ']'])})`"


def _most(parameter: inspect.Parameter, x: Value) -> int:
    """The most numbers that such a list has: one for each axis, of a window one for each spatial axis."""
    return x.type.rank - 2 if parameter.name == "k" else x.type.rank


def known_size(function: Function, given: list[Given]) -> str | None:
    """The help if the size of the input is given to a layer, which knows it: `linear(x, 12, 4)`, `layernorm(x, 12)`."""
    x = given[0].value
    if not isinstance(x, Value):
        return None
    ints = [i for i, each in enumerate(given) if i > 0 and each.name is None and is_int(each.value)]
    if function.name in _KNOW_THEIR_SIZE:
        ints = ints[-1:]
    elif not _makes(function) or ints[:2] != [1, 2]:
        return None
    if not ints or given[ints[0]].value not in x.type.shape[1:]:
        return None
    left_out = given[ints[0]]
    rest = ", ".join(_written(each) if i == 0 else each.span.text for i, each in enumerate(given) if i != ints[0])
    return f"leave out `{left_out.span.text}`, the size of the input, which is known: write `{function.name}({rest})`"


def _makes(function: Function) -> bool:
    """True for a layer whose first number is the size of its result."""
    return [p.name for p in function.parameters][1:2] in (["out"], ["hidden"])


def as_layer(block: syntax.Block, given: list[Given], span: Span) -> str | None:
    """The help for a call of a block without its tensors, as a module of another framework is made."""
    tensors = [p.name for p in block.params if isinstance(p.type, syntax.TensorTypeExpr) and p.default is None]
    made = not any(isinstance(g.value, Value) for g in given) and span.text.startswith(f"{block.name}(")
    if not tensors or not made:
        return None
    name = assigned_name(span, "name")
    rest = short(", ".join(g.span.text for g in given), "...")
    return f"write `layer {name} = {block.name}({rest})` to call it later, as `{name}({', '.join(tensors)})`"


def usage(function: Function) -> str:
    """``conv(x, out, k, stride=1, ...)``"""
    parts = []
    for p in function.parameters:
        if p.kind is inspect.Parameter.VAR_KEYWORD:
            parts.append("NAME=SIZE, ...")
        elif p.default is inspect.Parameter.empty:
            parts.append(p.name)
        else:
            parts.append(f"{p.name}={_shown(p.default)}")
    return f"{function.name}({', '.join(parts)})"


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, tuple) and len(default) == 1:
        return str(default[0])
    return "none" if default is None else f'"{default}"' if isinstance(default, str) else str(default)


def _written(arg: Given) -> str:
    """An argument's text; `x` if it is long, or comes out of a pipe, of which the span holds the last stage alone."""
    text = arg.span.text
    return text if len(text) <= 40 and "\n" not in text and not isinstance(arg.expr, syntax.Pipe) else "x"


def _kind(parameter: inspect.Parameter) -> str:
    return str(parameter.annotation).replace(" | None", "")
