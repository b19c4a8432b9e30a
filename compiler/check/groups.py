"""Attributes of parameter groups, @lr, @decay, @freeze and @ema, and of calls, @mirror and @precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dslc.base.words import of_percentage
from dslc.compiler.check.values import Average, Groups, Layer, Problem, Static, require_finite
from dslc.dsl import syntax
from dslc.dsl.diagnostics import did_you_mean

KNOWN: Final = ("lr", "decay", "freeze", "ema", "mirror", "precision")
_WORDS: Final = {"mirror": ("auto", "always", "never"), "precision": ("f64", "f32", "tf32", "f16", "bf16")}


def with_attrs(groups: Groups, attrs: tuple[syntax.Attr, ...], evaluate: Callable[[syntax.Expr], Static]) -> Groups:
    """The groups in force inside these attributes; E0109 for an unknown one, E0210 for wrong arguments."""
    for attr in attrs:
        if attr.name not in KNOWN:
            near = did_you_mean(attr.name, KNOWN)
            help = f"did you mean `@{near}`?" if near else "known are " + ", ".join(f"@{k}" for k in KNOWN)
            raise Problem("E0109", f"unknown attribute `@{attr.name}`", attr.span, "not known", help=help)
        args = attr.args
        if attr.name == "freeze":
            if args:
                raise Problem("E0210", "`@freeze` takes no argument", attr.span)
            groups = replace(groups, freeze=True)
            continue
        if attr.name == "ema":
            groups = replace(groups, average=_average(attr, evaluate))
            continue
        if len(args) != 1 or args[0].name is not None:
            raise Problem("E0210", f"`@{attr.name}` takes one argument", attr.span)
        if attr.name in _WORDS:
            groups = _word(groups, attr)
            continue
        value = evaluate(args[0].value)
        require_finite(value, f"`@{attr.name}`", args[0].span)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise Problem("E0210", f"`@{attr.name}` takes a number of at least 0", args[0].span)
        if attr.name == "lr":
            groups = replace(groups, lr=groups.lr * float(value))
        else:
            groups = replace(groups, decay=float(value))
    return groups


def _word(groups: Groups, attr: syntax.Attr) -> Groups:
    words = _WORDS[attr.name]
    expr = attr.args[0].value
    if not isinstance(expr, syntax.Name) or expr.name not in words:
        raise Problem("E0210", f"`@{attr.name}` takes {', '.join(words)}", attr.span, help=f"@{attr.name}({words[0]})")
    if attr.name == "mirror":
        return replace(groups, mirror=expr.name)
    return replace(groups, precision=expr.name)


def _average(attr: syntax.Attr, evaluate: Callable[[syntax.Expr], Static]) -> Average:
    help = "@ema(online, 0.99) before `layer target = ...`: target is a running average of the layer online"
    if len(attr.args) != 2 or any(arg.name is not None for arg in attr.args):
        raise Problem("E0210", "`@ema` takes a layer and a decay", attr.span, help=help)
    source, decay = (evaluate(arg.value) for arg in attr.args)
    if not isinstance(source, Layer):
        raise Problem("E0210", "`@ema` averages a layer", attr.args[0].span, "no layer", help=help)
    if isinstance(decay, bool) or not isinstance(decay, (int, float)) or not 0 <= decay < 1:
        percent = of_percentage(decay, below=True) if isinstance(decay, (int, float)) else None
        raise Problem("E0210", "the decay of `@ema` is at least 0 and below 1", attr.args[1].span, help=percent or help)
    return Average(source.path, float(decay), attr.span)
