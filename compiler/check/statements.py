"""Runs statements: assignments, layers, parameters, loops, `if`, `return`, `check`. A failure poisons the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dslc.compiler.check.calls.convert import init_of
from dslc.compiler.check.calls.given import take_arguments
from dslc.compiler.check.calls.naming import Names
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.lookup import lookup, resolve_callee
from dslc.compiler.check.over_time import states
from dslc.compiler.check.over_time.scans import run_scan, run_yield
from dslc.compiler.check.values import BlockRef, Layer, Poison, Poisoned, Problem, Static, kind_of
from dslc.compiler.ir.function import Function, Init
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import OPS
from dslc.dsl import syntax
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


class Statements:
    """Runs bodies for an Expander, which holds nodes, parameters and reports."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander

    def run(self, body: tuple[syntax.Stmt, ...], frame: Frame) -> tuple[Static, Span] | None:
        """Runs statements in order; returns the value of `return`. A statement that fails poisons its names."""
        for stmt in body:
            try:
                returned = self._statement(stmt, frame)
            except Problem as problem:
                self.expander.reports.add(problem, frame.context)
            except Poisoned:
                pass
            else:
                if returned is not None:
                    return returned
                continue
            if isinstance(stmt, syntax.Return):
                return Poison(), stmt.span
            for name in targets_of(stmt):
                frame.locals[name] = Poison()
                frame.params.pop(name, None)
            if isinstance(stmt, syntax.If) and any(isinstance(s, syntax.Return) for s in (*stmt.then, *stmt.other)):
                return Poison(), stmt.span
            self.expander.reports.stop_if_full()
        return None

    def _statement(self, stmt: syntax.Stmt, frame: Frame) -> tuple[Static, Span] | None:
        if stmt.attrs and not isinstance(stmt, syntax.For):
            of_layer = isinstance(stmt, syntax.LayerStmt)
            outer, frame.groups = frame.groups, self.expander.with_attrs(frame.groups, stmt.attrs, frame, of_layer)
            try:
                return self._plain(stmt, frame)
            finally:
                frame.groups = outer
        return self._plain(stmt, frame)

    def _plain(self, stmt: syntax.Stmt, frame: Frame) -> tuple[Static, Span] | None:
        match stmt:
            case syntax.Assign():
                self._assign(stmt, frame)
            case syntax.LayerStmt():
                self._layer(stmt, frame)
            case syntax.ParamStmt():
                self._param(stmt, frame)
            case syntax.For():
                self._for(stmt, frame)
            case syntax.If():
                return self.run(stmt.then if self.expander.evaluate.truth(stmt.condition, frame) else stmt.other, frame)
            case syntax.Return():
                return self.expander.evaluate(stmt.value, frame), stmt.value.span
            case syntax.Check():
                if not self.expander.evaluate.truth(stmt.condition, frame):
                    raise Problem("E0206", stmt.message or "a check failed", stmt.condition.span, "is false")
            case syntax.StateStmt():
                states.declare(stmt, self._init(stmt.init, frame), frame, self.expander)
            case syntax.BufferStmt():
                states.declare_buffer(stmt, self._init(stmt.init, frame), frame, self.expander)
            case syntax.Scan():
                run_scan(stmt, frame, self.expander)
            case syntax.Yield():
                run_yield(stmt, frame, self.expander)
        return None

    def bind(self, name: str, value: Static, span: Span, frame: Frame) -> None:
        """Assigns a value to a local name; E0112 if it would hide a dim or constant, or a callable value a block. A
        call of a name skips values that cannot be called."""
        self.check_free(name, value, span, frame)
        if name in frame.states:
            value = states.assign(name, value, span, frame, self.expander)
        frame.locals[name] = value
        frame.params.pop(name, None)

    def check_free(self, name: str, value: Static, span: Span, frame: Frame) -> None:
        """E0112 if a value of this kind cannot have the name."""
        in_file = name in frame.scope.values or (name in frame.scope.dims and frame.file_dims)
        if not isinstance(value, (BlockRef, Function, Layer)):
            in_file = in_file and not isinstance(frame.scope.values.get(name), (BlockRef, Function))
        if name in frame.dims or in_file:
            what = "a dim" if name in frame.dims else "declared in the file"
            raise Problem("E0112", f"`{name}` is {what}", span, "would hide it", help="choose another name")

    def _assign(self, stmt: syntax.Assign, frame: Frame) -> None:
        value = self.expander.evaluate(stmt.value, frame)
        if len(stmt.targets) == 1:
            values: Sequence[Static] = [value]
        elif isinstance(value, (tuple, list)):
            values = value
        elif isinstance(value, Value):
            values = self._unpack(value, len(stmt.targets), stmt, frame)
        else:
            raise Problem("E0208", f"{len(stmt.targets)} names for {kind_of(value)}", stmt.span, "cannot be split")
        if len(values) != len(stmt.targets):
            raise Problem(
                "E0208", f"{len(stmt.targets)} names for {len(values)} values", stmt.value.span, f"gives {len(values)}"
            )
        for target, item in zip(stmt.targets, values):
            if isinstance(target, syntax.Name):
                self.bind(target.name, item, target.span, frame)
                frame.origins[target.name] = (self._origin(stmt, target.name), stmt.span.line)
            else:
                self._assign_item(target, item, frame)

    def _assign_item(self, target: syntax.Expr, item: Static, frame: Frame) -> None:
        assert isinstance(target, syntax.Index)
        if isinstance(target.value, syntax.Name) and target.value.name in frame.states:
            name = target.value.name
            self.bind(name, states.put(target, name, item, frame, self.expander), target.span, frame)
            return
        holder = self.expander.evaluate(target.value, frame)
        at = self.expander.evaluate(target.items[0], frame) if len(target.items) == 1 else None
        if not isinstance(holder, list) or type(at) is not int or not isinstance(target.value, syntax.Name):
            raise Problem(
                "E0207",
                f"an element of {kind_of(holder)} cannot be assigned",
                target.span,
                "not a list",
                help="tensors are values: make a new one with `concat`, `where` or `scatter`",
            )
        if not -len(holder) <= at < len(holder):
            raise Problem("E0209", f"index {at} of a list of {len(holder)}", target.items[0].span, "out of range")
        self.expander.evaluate.spend(len(holder) // 4, target.span)
        changed = list(holder)
        changed[at] = item
        frame.locals[target.value.name] = changed

    def _unpack(self, value: Value, count: int, stmt: syntax.Assign, frame: Frame) -> list[Value]:
        if value.type.rank == 0 or value.type.shape[0] != count:
            raise Problem(
                "E0208",
                f"{count} names for {value.type}: axis 0 must be {count}",
                stmt.value.span,
                str(value.type),
                help="`split(x, n)` cuts the last axis",
            )
        rest = value.type.shape[1:]
        found = []
        for i in range(count):
            starts, stops = (i, *(0 for _ in rest)), (i + 1, *rest)
            piece = self.expander.emit(frame, stmt.value.span, OPS["slice"], value, starts=starts, stops=stops,
                              steps=(1,) * len(starts))  # fmt: skip
            found.append(self.expander.emit(frame, stmt.value.span, OPS["reshape"], piece, shape=rest))
        return found

    def _origin(self, stmt: syntax.Assign, name: str) -> str:
        """The text that defined a name: the last stage of a pipe, or the branch that was chosen."""
        expr = stmt.value
        if isinstance(expr, syntax.Choose):
            chosen = self.expander.chosen.get(id(expr), expr)
            text = f"{name} = {chosen.span.text}"
        elif isinstance(expr, syntax.Pipe):
            end = max(expr.span.end, expr.label_span.end if expr.label_span else 0)
            text = expr.span.source.text[expr.stage.span.start : end]
        else:
            text = stmt.span.text
        text = " ".join(text.split())
        return text if len(text) <= 48 else text[:45] + "..."

    def _layer(self, stmt: syntax.LayerStmt, frame: Frame) -> None:
        call = stmt.value
        if not isinstance(call, syntax.Call) or not isinstance(call.function, syntax.Name):
            help = f"`layer {stmt.name} = {call.name}()`" if isinstance(call, syntax.Name) else None
            title = "a layer is a call: `layer tok = embedding(V, d)`"
            raise Problem("E0207", title, stmt.value.span, "not a call", help=help)
        value = lookup(call.function.name, call.function.span, frame, self.expander.reports)
        callee = resolve_callee(value, call.function.name, call.function.span)
        if isinstance(callee, Layer):
            raise Problem("E0207", "a layer of a layer", stmt.value.span, "name an op or a block")
        given = take_arguments(call.args, frame, self.expander)
        base = frame.names.base(stmt, stmt.name, stmt.span, label=True)
        args = tuple((g.name, g.value, g.span) for g in given)
        path, groups = frame.names.path(base, frame.suffix), frame.groups
        if groups.average is not None and not groups.average.layer:
            groups = replace(groups, average=replace(groups.average, layer=path))
        layer = Layer(call, callee, args, path, groups=groups)
        layer.node_path = frame.node_path(base)
        self.bind(stmt.name, layer, stmt.span, frame)

    def _param(self, stmt: syntax.ParamStmt, frame: Frame) -> None:
        if stmt.type.dtype is not None:
            raise Problem("E0202", "a parameter is a float tensor", stmt.type.span, f"declared {stmt.type.dtype}")
        shape = tuple(self.expander.evaluate.shape_size(s, frame) for s in stmt.type.shape)
        init = Init("normal", (0.0, 1.0)) if stmt.init is None else self._init(stmt.init, frame)
        base = frame.names.base(stmt, stmt.name, stmt.span, label=True)
        path = frame.names.path(base, frame.suffix)
        value = self.expander.tensors.param(path, shape, init, frame.groups, stmt.span)
        self.bind(stmt.name, value, stmt.span, frame)

    def _init(self, expr: syntax.Expr, frame: Frame) -> Init:
        value = self.expander.evaluate(expr, frame)
        init = init_of(value, expr, expr.span)
        if init is None:
            help = "normal(0.02), uniform(0.05), zeros, a number or a tensor of constants"
            raise Problem("E0202", f"{kind_of(value)} is no initialiser", expr.span, "not an initialiser", help=help)
        return init

    def comprehension(self, expr: syntax.Comprehension, frame: Frame) -> Static:
        """``[item for names in values if condition]``, also of several clauses; the names exist only in it."""
        values = self._looped(expr.values, frame)
        own = replace(frame, locals=dict(frame.locals), origins=dict(frame.origins), params=dict(frame.params),
                      states={})  # fmt: skip
        found: list[Static] = []
        for i, value in enumerate(values):
            inner = own.inner(suffix=f"{frame.suffix}.{i}")
            self._bind_round(expr, value, inner)
            if expr.condition is None or self.expander.evaluate.truth(expr.condition, inner):
                item = self.expander.evaluate(expr.item, inner)
                found += item if expr.joined and isinstance(item, list) else [item]
        return found

    def _looped(self, expr: syntax.Expr, frame: Frame) -> Sequence[Static]:
        """The list over which a loop runs."""
        values = self.expander.evaluate(expr, frame)
        if not isinstance(values, (list, tuple)):
            help = "a range `0..n` or a list"
            raise Problem("E0202", f"`for` runs over a list, this is {kind_of(values)}", expr.span, help=help)
        return values

    def _bind_round(self, loop: syntax.For | syntax.Comprehension, value: Static, frame: Frame) -> None:
        """Binds the names of a loop for one round."""
        self.expander.evaluate.spend(1, loop.values.span)
        items = [value] if len(loop.names) == 1 else value
        if not isinstance(items, (list, tuple)) or len(items) != len(loop.names):
            raise Problem("E0208", f"{len(loop.names)} names for {kind_of(value)}", loop.values.span)
        for name, item in zip(loop.names, items):
            self.bind(name, item, loop.span, frame)

    def _for(self, stmt: syntax.For, frame: Frame) -> None:
        values = self._looped(stmt.values, frame)
        base = frame.names.base(stmt, stmt.label, stmt.span, label=True) if stmt.label else None
        outer_groups = frame.groups
        groups = self.expander.with_attrs(frame.groups, stmt.attrs, frame) if stmt.attrs else outer_groups
        inner: Frame
        for i, value in enumerate(values):
            if base is not None:
                names = Names(frame.names.path(base, frame.suffix) + f".{i}")
                inner = frame.inner(names=names, node_prefix=frame.node_path(base) + f".{i}", suffix="")
            else:
                inner = frame.inner(suffix=f"{frame.suffix}.{i}")
            inner.groups = groups
            self._bind_round(stmt, value, inner)
            if self.run(stmt.body, inner) is not None:
                raise Problem("E0207", "`return` inside `for`", stmt.span, "a loop always runs to its end")


def targets_of(stmt: syntax.Stmt) -> list[str]:
    """The names that a statement assigns."""
    match stmt:
        case syntax.Assign(targets=targets):
            bases = [t.value if isinstance(t, syntax.Index) else t for t in targets]
            return [t.name for t in bases if isinstance(t, syntax.Name)]
        case (
            syntax.LayerStmt(name=name)
            | syntax.ParamStmt(name=name)
            | syntax.StateStmt(name=name)
            | syntax.BufferStmt(name=name)
        ):
            return [name]
        case syntax.Scan(carry=carry, into=into):
            return [*carry, *into]
        case syntax.For(body=body):
            return [n for s in body for n in targets_of(s)]
        case syntax.If(then=then, other=other):
            return [n for s in (*then, *other) for n in targets_of(s)]
    return []
