"""Runs a program's statements: blocks become instances, `for` is unrolled, tensors become nodes of one graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dslc.compiler.check import signatures
from dslc.compiler.check.arguments import Given, as_init, take_arguments
from dslc.compiler.check.callgraph import MAX_OPS
from dslc.compiler.check.calls import Calls
from dslc.compiler.check.expressions import Evaluator, resolve_callee
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.groups import with_attrs
from dslc.compiler.check.naming import Names
from dslc.compiler.check.reports import Reports
from dslc.compiler.check.scope import ModuleScope
from dslc.compiler.check.tensors import Tensors, check_bytes
from dslc.compiler.check.values import BlockRef, Groups, Layer, Poison, Poisoned, Problem, Static, kind_of
from dslc.compiler.ir.function import FUNCTIONS, Init
from dslc.compiler.ir.graph import Attr, Node, Value
from dslc.compiler.ir.op import OPS, Mismatch, Op
from dslc.compiler.ir.sizes import Size
from dslc.dsl import syntax
from dslc.dsl.span import Span


class Expander:
    """One model being checked. ``batch`` is the batch dim's size, None without one."""

    def __init__(self) -> None:
        self.reports = Reports()
        self.tensors = Tensors()
        self.evaluate = Evaluator(self)
        self.calls = Calls(self)
        self.chosen: dict[int, syntax.Expr] = {}
        self.batch: Size | None = None
        self.precisions: set[str] = set()
        self.count = 0

    # --- reports -----------------------------------------------------------------------------------------

    @contextmanager
    def report(self, frame: Frame | None = None) -> Iterator[None]:
        """Turns a problem inside into a diagnostic and goes on after the `with`."""
        try:
            yield
        except Problem as problem:
            self.reports.add(problem, frame.context if frame else None)
        except Poisoned:
            pass

    def warn_unlabelled(self, base: str, name: str, span: Span) -> None:
        self.reports.warn(
            "W001",
            f"`{base}` is named by its place: inserting another `{name}` before it renames its parameters",
            span,
            "has no label",
            help=f"add a label, `{name}(...) as NAME`",
        )

    # --- nodes -------------------------------------------------------------------------------------------

    def make(self, path: str, span: Span, op: Op, inputs: Sequence[Value], attrs: dict[str, Attr]) -> Node:
        """A node, counted and checked for size; raises Mismatch."""
        self.count += 1
        if self.count > MAX_OPS:
            title = f"this expands to more than {MAX_OPS:,} operations"
            raise Problem("E0006", title, span, "the limit is reached here", final=True)
        types = op.infer([v.type for v in inputs], attrs)
        for type in types:
            check_bytes(type, span)
        return Node(op, tuple(inputs), types, attrs, name=path, span=span)

    def emit(self, frame: Frame, span: Span, op: Op, *inputs: Value, **attrs: Attr) -> Value:
        """A node of an operator that has no name of its own."""
        try:
            return self.make(frame.node_prefix, span, op, inputs, attrs).out
        except Mismatch as wrong:
            raise Problem(wrong.code, wrong.why, span, help=wrong.help) from None

    # --- blocks ------------------------------------------------------------------------------------------

    def static(self, expr: syntax.Expr, scope: ModuleScope) -> Static:
        """A value at the top of a file."""
        return self.evaluate(expr, Frame(scope, Names(""), ""))

    def with_attrs(self, groups: Groups, attrs: tuple[syntax.Attr, ...], frame: Frame) -> Groups:
        found = with_attrs(groups, attrs, lambda expr: self.evaluate(expr, frame))
        if found.precision is not None:
            self.precisions.add(found.precision)
        for attr in attrs:
            if attr.name == "mirror" and found.mirror == "always":
                self.reports.warn(
                    "W005",
                    "this version recomputes nothing: all values are kept",
                    attr.span,
                    "has no effect yet",
                    help="the results are the same; `dslc mem` shows what is kept",
                )
        return found

    def expand_block(
        self,
        ref: BlockRef,
        given: list[Given],
        span: Span,
        caller: Frame,
        param_path: str,
        node_path: str,
        groups: Groups,
    ) -> Static:
        """One instance of a block: its result, several as a tuple."""
        block = ref.block
        if block.kind == "model":
            raise Problem("E0207", f"the model `{block.name}` cannot be called", span, "only blocks are called")
        frame = Frame(ref.scope, Names(param_path), node_path)
        frame.groups = self.with_attrs(groups, block.attrs, frame)
        signatures.bind_block(block, given, span, frame, self)
        return self.run_block(block, frame, span)

    def run_block(self, block: syntax.Block, frame: Frame, span: Span) -> Static:
        """Runs a body whose arguments are bound, and checks its results against the signature."""
        self.reports.check_unread(block)
        returned = self.run(block.body, frame)
        if returned is None:
            raise Problem("E0208", f"`{block.name}` returns nothing", block.span, "no `return` is reached")
        value, place = returned
        if isinstance(value, Poison):
            raise Poisoned
        with self._at(frame):
            return signatures.check_results(block, value, place, frame, self)

    @contextmanager
    def _at(self, frame: Frame) -> Iterator[None]:
        """Problems raised inside are reported with this frame's context; the caller sees poison."""
        try:
            yield
        except Problem as problem:
            self.reports.add(problem, frame.context)
            raise Poisoned from None

    def layer_tensor(self, layer: Layer, expr: syntax.Field) -> Value:
        """``tok.weight``: a parameter of a layer that was called."""
        name = f"{layer.path}.{expr.name}"
        found = self.tensors.stored.get(name)
        if found is not None:
            return found.input.value
        below = sorted(n[len(layer.path) + 1 :] for n in self.tensors.stored if n.startswith(layer.path + "."))
        if layer.calls == 0:
            raise Problem(
                "E0102",
                "this layer has no parameters before its first call",
                expr.span,
                "read before the call",
                help="call the layer first: its shapes bind there",
            )
        raise Problem(
            "E0102",
            f"the layer has no parameter `{expr.name}`",
            expr.span,
            "not there",
            help=f"it has {', '.join(f'`{b}`' for b in below)}" if below else "it has none",
        )

    # --- statements --------------------------------------------------------------------------------------

    def run(self, body: tuple[syntax.Stmt, ...], frame: Frame) -> tuple[Static, Span] | None:
        """Runs statements in order; gives what `return` returned. A statement that fails poisons its names."""
        for stmt in body:
            try:
                returned = self._statement(stmt, frame)
            except Problem as problem:
                self.reports.add(problem, frame.context)
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
            self.reports.stop_if_full()
        return None

    def _statement(self, stmt: syntax.Stmt, frame: Frame) -> tuple[Static, Span] | None:
        if stmt.attrs and not isinstance(stmt, syntax.For):
            outer, frame.groups = frame.groups, self.with_attrs(frame.groups, stmt.attrs, frame)
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
                return self.run(stmt.then if self.evaluate.truth(stmt.condition, frame) else stmt.other, frame)
            case syntax.Return():
                return self.evaluate(stmt.value, frame), stmt.value.span
            case syntax.Check():
                if not self.evaluate.truth(stmt.condition, frame):
                    raise Problem("E0206", stmt.message or "a check failed", stmt.condition.span, "is false")
            case syntax.Scan() | syntax.Yield() | syntax.StateStmt():
                word = type(stmt).__name__.removesuffix("Stmt").lower()
                raise Problem(
                    "E0009",
                    f"`{word}` is part of the language, but this build of dslc does not compile it",
                    stmt.span,
                    "not built yet",
                    help="a loop of fixed length can be written with `for`",
                )
        return None

    def bind(self, name: str, value: Static, span: Span, frame: Frame) -> None:
        """Gives a local name its value; E0112 when it would hide a dim, constant, block or function."""
        in_file = name in frame.scope.values or (name in frame.scope.dims and frame.file_dims)
        if name in frame.dims or in_file or name in FUNCTIONS:
            what = (
                "a built-in function"
                if name in FUNCTIONS
                else "a dim"
                if name in frame.dims
                else "declared in the file"
            )
            raise Problem("E0112", f"`{name}` is {what}", span, "would hide it", help="choose another name")
        frame.locals[name] = value
        frame.params.pop(name, None)

    def _assign(self, stmt: syntax.Assign, frame: Frame) -> None:
        value = self.evaluate(stmt.value, frame)
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
        holder = self.evaluate(target.value, frame)
        at = self.evaluate(target.items[0], frame) if len(target.items) == 1 else None
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
        self.evaluate.spend(len(holder) // 4, target.span)
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
            piece = self.emit(frame, stmt.value.span, OPS["slice"], value, starts=starts, stops=stops,
                              steps=(1,) * len(starts))  # fmt: skip
            found.append(self.emit(frame, stmt.value.span, OPS["reshape"], piece, shape=rest))
        return found

    def _origin(self, stmt: syntax.Assign, name: str) -> str:
        """The text of what gave a name its value: the last stage of a pipe, the branch that was chosen."""
        expr = stmt.value
        if isinstance(expr, syntax.Choose):
            chosen = self.chosen.get(id(expr), expr)
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
            raise Problem("E0207", "a layer is a call: `layer tok = embedding(V, d)`", stmt.value.span, "not a call")
        value = self.evaluate.lookup(call.function.name, call.function.span, frame)
        callee = resolve_callee(value, call.function.name, call.function.span)
        if isinstance(callee, Layer):
            raise Problem("E0207", "a layer of a layer", stmt.value.span, "name an op or a block")
        given = take_arguments(call.args, frame, self)
        base = frame.names.base(stmt, stmt.name, stmt.span, label=True)
        args = tuple((g.name, g.value, g.span) for g in given)
        layer = Layer(call, callee, args, frame.names.path(base, frame.suffix), groups=frame.groups)
        layer.node_path = frame.node_path(base)
        self.bind(stmt.name, layer, stmt.span, frame)

    def _param(self, stmt: syntax.ParamStmt, frame: Frame) -> None:
        if stmt.type.dtype is not None:
            raise Problem("E0202", "a parameter is a float tensor", stmt.type.span, f"declared {stmt.type.dtype}")
        shape = tuple(self.evaluate.shape_size(s, frame) for s in stmt.type.shape)
        init = Init("normal", (0.0, 1.0)) if stmt.init is None else self._init(stmt.init, frame)
        base = frame.names.base(stmt, stmt.name, stmt.span, label=True)
        path = frame.names.path(base, frame.suffix)
        value = self.tensors.param(path, shape, init, frame.groups, stmt.span)
        self.bind(stmt.name, value, stmt.span, frame)

    def _init(self, expr: syntax.Expr, frame: Frame) -> Init:
        value = self.evaluate(expr, frame)
        init = as_init(value)
        if init is None:
            help = "normal(0.02), uniform(0.05), zeros or a number"
            raise Problem("E0202", f"{kind_of(value)} is no initialiser", expr.span, "not an initialiser", help=help)
        return init

    def _for(self, stmt: syntax.For, frame: Frame) -> None:
        values = self.evaluate(stmt.values, frame)
        if not isinstance(values, (list, tuple)):
            help = "a range `0..n` or a list"
            raise Problem("E0202", f"`for` runs over a list, this is {kind_of(values)}", stmt.values.span, help=help)
        base = frame.names.base(stmt, stmt.label, stmt.span, label=True) if stmt.label else None
        outer_groups = frame.groups
        groups = self.with_attrs(frame.groups, stmt.attrs, frame) if stmt.attrs else outer_groups
        inner: Frame
        self.evaluate.spend(len(values), stmt.values.span)
        for i, value in enumerate(values):
            if base is not None:
                names = Names(frame.names.path(base, frame.suffix) + f".{i}")
                inner = frame.inner(names=names, node_prefix=frame.node_path(base) + f".{i}", suffix="")
            else:
                inner = frame.inner(suffix=f"{frame.suffix}.{i}")
            inner.groups = groups
            items = [value] if len(stmt.names) == 1 else value
            if not isinstance(items, (list, tuple)) or len(items) != len(stmt.names):
                raise Problem("E0208", f"{len(stmt.names)} names for {kind_of(value)}", stmt.values.span)
            for name, item in zip(stmt.names, items):
                self.bind(name, item, stmt.span, inner)
            if self.run(stmt.body, inner) is not None:
                raise Problem("E0207", "`return` inside `for`", stmt.span, "a loop runs to its end")


def targets_of(stmt: syntax.Stmt) -> list[str]:
    """The names that a statement would have given values."""
    match stmt:
        case syntax.Assign(targets=targets):
            bases = [t.value if isinstance(t, syntax.Index) else t for t in targets]
            return [t.name for t in bases if isinstance(t, syntax.Name)]
        case syntax.LayerStmt(name=name) | syntax.ParamStmt(name=name) | syntax.StateStmt(name=name):
            return [name]
        case syntax.Scan(carry=carry, into=into):
            return [*carry, *into]
        case syntax.For(body=body):
            return [n for s in body for n in targets_of(s)]
        case syntax.If(then=then, other=other):
            return [n for s in (*then, *other) for n in targets_of(s)]
    return []
