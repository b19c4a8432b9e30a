"""Calls of built-in functions, blocks and layers; pipes, labels, and the parameters that calls create."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dslc.compiler.check import arithmetic
from dslc.compiler.check.calls.arguments import bind_function
from dslc.compiler.check.calls.call_site import CallSite
from dslc.compiler.check.calls.equal_sizes import of_tensors
from dslc.compiler.check.calls.given import Given, take_arguments
from dslc.compiler.check.calls.scales import warn_scale
from dslc.compiler.check.conversions import with_cast
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.lookup import lookup, resolve_callee
from dslc.compiler.check.training.parameters import PARAMETERS, of_patterns
from dslc.compiler.check.values import (
    BlockRef,
    Groups,
    Layer,
    Poison,
    Poisoned,
    Problem,
    Static,
    kind_of,
    require_finite,
)
from dslc.compiler.ir.fault import PackageFault
from dslc.compiler.ir.function import FUNCTIONS, Function, Init
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Poly
from dslc.compiler.ops.constants.known import number_or
from dslc.compiler.ops.random.init import INITIALISERS, MODES, initialiser
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label, did_you_mean
from dslc.dsl.other_calls import declaration, not_a_name
from dslc.dsl.other_names import function_hint
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


class Calls:
    """Evaluates Call and Pipe expressions."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander

    def site(self, frame: Frame, span: Span, path: str) -> CallSite:
        """The call site of an operator, which has no name of its own."""
        return CallSite(self.expander, frame, span, path, path, frame.groups)

    def call(self, expr: syntax.Call, frame: Frame) -> Static:
        return self._invoke(expr, expr.function, expr.args, expr.label, expr.label_span, None, expr.span, frame)

    def pipe(self, expr: syntax.Pipe, frame: Frame) -> Static:
        stages = [expr]
        while isinstance(stages[-1].value, syntax.Pipe):
            stages.append(stages[-1].value)
        evaluate = self.expander.evaluate
        first = stages[-1].value
        given = Given(None, evaluate(first, frame), first.span, first)
        for pipe in reversed(stages):
            given = Given(None, self._stage(pipe, given, frame), pipe.stage.span, pipe)
        return given.value

    def _stage(self, pipe: syntax.Pipe, given: Given, frame: Frame) -> Static:
        if pipe.attrs:
            frame = frame.inner()
            frame.groups = self.expander.with_attrs(frame.groups, pipe.attrs, frame)
        stage = pipe.stage
        if isinstance(stage, syntax.Call):
            label, label_span = stage.label or pipe.label, stage.label_span or pipe.label_span
            return self._invoke(pipe, stage.function, stage.args, label, label_span, given, stage.span, frame)
        return self._invoke(pipe, stage, (), pipe.label, pipe.label_span, given, stage.span, frame)

    def _invoke(
        self,
        site: syntax.Expr,
        function: syntax.Expr,
        args: tuple[syntax.Arg, ...],
        label: str | None,
        label_span: Span | None,
        first: Given | None,
        span: Span,
        frame: Frame,
    ) -> Static:
        if not isinstance(function, syntax.Name):
            raise not_callable(function, args)
        name = function.name
        given = ([] if first is None else [first]) + take_arguments(args, frame, self.expander)
        if name in INITIALISERS and name not in FUNCTIONS and not _declared(name, frame):
            return _initialiser(name, given, span)
        if _at_compile_time(name, given) and not _declared(name, frame):
            if label is not None:
                raise Problem("E0210", "only a call that makes operations can carry a label", label_span or span)
            self.expander.evaluate.spend(sum(len(g.value) for g in given if isinstance(g.value, list)) // 4, span)
            return arithmetic.apply_static(name, [number_or(_alive(g.value)) for g in given], span)
        if name == "sum" and label is None and _is_list(given) and not _declared(name, frame):
            return self._sum(given[0], span, frame)
        if name == PARAMETERS and label is None and frame.sees_parameters and not _declared(name, frame):
            return of_patterns(given, span, self.expander.tensors)
        callee = self._callee(name, function.span, frame, args)
        if isinstance(callee, Layer):
            if label is not None:
                raise Problem("E0207", f"the layer `{name}` already has a name", label_span or span, "a second label")
            return self._call_layer(callee, given, span, frame)
        base = frame.names.base(site, label or name, label_span or span, label=label is not None)
        param_path = frame.names.path(base, frame.suffix)
        node_path = frame.node_path(base)
        result = self.run(callee, given, span, frame, param_path, node_path, frame.groups)
        if base != (label or name) and label is None and self.expander.tensors.has_below(param_path):
            self.expander.warn_unlabelled(base, name, span)
        return result

    def _sum(self, given: Given, span: Span, frame: Frame) -> Static:
        """The sum of a list with tensors, added in its order."""
        assert isinstance(given.value, (list, tuple))
        step = syntax.Binary("+", given.expr, given.expr, span=span)
        total, *rest = given.value
        for value in rest:
            self.expander.evaluate.spend(1, span)
            total = self.expander.evaluate.apply(step, _alive(total), _alive(value), frame)
        return total

    def _callee(self, name: str, span: Span, frame: Frame, args: tuple[syntax.Arg, ...]) -> BlockRef | Function | Layer:
        if self.expander.reports.has("E0101", span):
            raise Poisoned
        try:
            value = lookup(name, span, frame, self.expander.reports)
        except Problem as problem:
            if problem.code != "E0102" or name in frame.scope.dims:
                raise
            blocks = [n for n, v in frame.scope.values.items() if isinstance(v, BlockRef)]
            raise unknown_function(name, span, did_you_mean(name, [*FUNCTIONS, *blocks]), args) from None
        if not isinstance(value, (BlockRef, Function, Layer)):  # what cannot be called hides no block and no function
            block = frame.scope.values.get(name)
            value = block if isinstance(block, (BlockRef, Function)) else FUNCTIONS.get(name, value)
        return resolve_callee(value, name, span)

    def run(
        self,
        callee: BlockRef | Function,
        given: list[Given],
        span: Span,
        frame: Frame,
        param_path: str,
        node_path: str,
        groups: Groups,
    ) -> Static:
        """Calls a block or function after its name is determined."""
        if isinstance(callee, BlockRef):
            return self.expander.expand_block(callee, given, span, frame, param_path, node_path, groups)
        return self._call_function(callee, given, CallSite(self.expander, frame, span, node_path, param_path, groups))

    def _call_function(self, function: Function, given: list[Given], site: CallSite) -> Static:
        positional, named = bind_function(function, given, site.span, site.frame, self.expander)
        self.expander.functions[site.node_path, site.span] = function.name
        try:
            result: Any = function.build(site, *positional, **named)
        except Mismatch as wrong:
            raise self._mismatch(function.name, given, wrong, site) from None
        except PackageFault as fault:
            raise Problem("E0115", fault.message, site.span, "this call", help=fault.help) from fault
        warn_scale(function, named, given, site.span, self.expander)
        return result  # type: ignore[no-any-return]

    def _mismatch(self, name: str, given: list[Given], wrong: Mismatch, site: CallSite) -> Problem:
        titles = {
            "E0203": f"`{name}` does not fit its arguments",
            "E0301": f"`{name}` cannot broadcast these shapes: {wrong.why}",
        }
        named = wrong.why if wrong.why.startswith(f"`{name}`") else f"`{name}`: {wrong.why}"
        title = titles.get(wrong.code, named)
        text = wrong.why if wrong.code == "E0203" else ""
        also = tuple(
            Label(g.span, self.expander.evaluate.describe(g.expr, g.value, site.frame))
            for g in given
            if isinstance(g.value, Value) and not isinstance(g.expr, syntax.Pipe)
        )
        if not also and given and isinstance(given[0].value, Value):
            also = (Label(given[0].span, str(given[0].value.type)),)
        help = of_tensors([g.value for g in given]) if wrong.code in ("E0301", "E0302") else None
        help = help or with_cast(wrong.help, [(g.expr, g.value) for g in given])
        return Problem(wrong.code, title, site.span, text, help=help, also=also)

    def _call_layer(self, layer: Layer, given: list[Given], span: Span, frame: Frame) -> Static:
        layer.calls += 1
        positional = [g for g in given if g.name is None]
        named = [g for g in given if g.name is not None]
        for name, value, place in layer.args:
            (positional if name is None else named).append(Given(name, value, place, layer.call))
        path = layer.node_path if layer.calls == 1 else f"{layer.node_path}#{layer.calls}"
        return self.run(layer.callee, positional + named, span, frame, layer.path, path, layer.groups)


def _declared(name: str, frame: Frame) -> bool:
    """True if the program itself declares something under this name that can be called."""
    callable = (BlockRef, Function, Layer)
    return isinstance(frame.locals.get(name), callable) or isinstance(frame.scope.values.get(name), callable)


def _at_compile_time(name: str, given: list[Given]) -> bool:
    """True for a call of a compile-time function by position without tensors; `len` also counts a list of tensors."""
    if not arithmetic.is_static_function(name) or not given or any(g.name is not None for g in given):
        return False
    values = [v for g in given for v in (g.value if isinstance(g.value, (list, tuple)) else (g.value,))]
    return name not in FUNCTIONS or not any(isinstance(v, Value) for v in values)


def _is_list(given: list[Given]) -> bool:
    """True for one argument by position: a list of tensors and numbers."""
    if len(given) != 1 or given[0].name is not None or not isinstance(given[0].value, (list, tuple)):
        return False
    return bool(given[0].value) and all(isinstance(v, (Value, int, float, Poly, Poison)) for v in given[0].value)


def _alive(value: Static) -> Static:
    """The value; Poisoned for one, or for a list of one, whose statement failed."""
    if isinstance(value, Poison) or (isinstance(value, (list, tuple)) and any(isinstance(v, Poison) for v in value)):
        raise Poisoned
    return value


def unknown_function(name: str, span: Span, near: str | None, args: tuple[syntax.Arg, ...]) -> Problem:
    """E0101, with the declaration that was meant, what another framework's name is here, or the most similar name."""
    hint = declaration(name, args, span) or function_hint(name)
    title = f"unknown function `{name}`" + (f"; did you mean `{near}`?" if near and hint is None else "")
    help = hint or ("`dslc ops` lists the built-in functions" if near is None else None)
    return Problem("E0101", title, span, "not a function or block", help=help)


def not_callable(function: syntax.Expr, args: tuple[syntax.Arg, ...]) -> Problem:
    """E0101 for a call of something that is no name: a method, a function of a library, the result of a call."""
    known = {name: tuple(p.name for p in each.parameters) for name, each in FUNCTIONS.items()}
    title, help = not_a_name(function, args, known)
    return Problem("E0101", title, function.span, "not a function or block", help=help)


def _initialiser(name: str, given: list[Given], span: Span) -> Init:
    """``normal(0.02)``: an initialiser with its arguments. ``mode="fan_out"`` is text, all others are numbers."""
    mode = next((g for g in given if g.name == "mode"), None)
    if mode is not None and mode.value not in MODES:
        raise Problem("E0209", "a fan is chosen by its name", mode.span, "", help='mode="fan_in" or mode="fan_out"')
    given = [replace(g, value=MODES[str(g.value)] if g is mode else number_or(g.value)) for g in given]
    for arg in given:
        if isinstance(arg.value, bool) or not isinstance(arg.value, (int, float)):
            random = "an initialiser is for `param`; `rand` and `randn` make random tensors"
            help = random if isinstance(arg.value, (list, tuple)) else None
            title = f"`{name}` takes numbers, this is {kind_of(arg.value)}"
            raise Problem("E0202", title, arg.span, "not a number", help=help)
        require_finite(arg.value, f"an argument of `{name}`", arg.span)
    try:
        return initialiser(
            name,
            [float(g.value) for g in given if g.name is None],  # type: ignore[arg-type]
            {g.name: float(g.value) for g in given if g.name is not None},  # type: ignore[arg-type]
        )
    except Mismatch as wrong:
        raise Problem(wrong.code, wrong.why, span, help=wrong.help) from None
