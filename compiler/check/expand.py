"""The check of one model: its nodes, tensors and reports; expands blocks into instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dslc.compiler.check.calls import signatures
from dslc.compiler.check.calls.before_call import known_parameters
from dslc.compiler.check.calls.callgraph import MAX_OPS
from dslc.compiler.check.calls.calls import Calls
from dslc.compiler.check.calls.given import Given
from dslc.compiler.check.calls.naming import Names
from dslc.compiler.check.expressions import Evaluator
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.groups import with_attrs
from dslc.compiler.check.indexing import Indexing
from dslc.compiler.check.reports import Reports
from dslc.compiler.check.scope import ModuleScope
from dslc.compiler.check.statements import Statements
from dslc.compiler.check.tensors import Tensors, check_bytes
from dslc.compiler.check.values import BlockRef, Groups, Layer, Poison, Poisoned, Problem, Static
from dslc.compiler.ir.graph import Attr, Node, Origin, Value
from dslc.compiler.ir.op import OPS, Mismatch, Op
from dslc.compiler.ir.sizes import Size
from dslc.dsl import syntax
from dslc.dsl.diagnostics import did_you_mean
from dslc.dsl.span import Span


class Expander:
    """The state of one model's check. ``batch`` is the batch dim's size, None if there is none."""

    def __init__(self) -> None:
        self.reports = Reports()
        self.tensors = Tensors()
        self.evaluate = Evaluator(self)
        self.indexing = Indexing(self)
        self.calls = Calls(self)
        self.statements = Statements(self)
        self.chosen: dict[int, syntax.Expr] = {}
        self.batch: Size | None = None
        self.precisions: set[str] = set()
        self.precision_words: dict[Origin, str] = {}
        self.functions: dict[Origin, str] = {}
        self.mirror: dict[Origin, str] = {}
        self.count = 0
        self._recorded: list[dict[Node, None]] = []

    # --- reports -----------------------------------------------------------------------------------------

    @contextmanager
    def report(self, frame: Frame | None = None) -> Iterator[None]:
        """Turns a problem inside into a diagnostic; execution continues after the `with`."""
        try:
            yield
        except Problem as problem:
            self.reports.add(problem, frame.context if frame else None)
        except Poisoned:
            self.reports.left_out = True

    def warn_unlabelled(self, base: str, name: str, span: Span) -> None:
        self.reports.warn(
            "W001",
            f"`{base}` is named by its position: inserting another `{name}` before it renames its parameters",
            span,
            "has no label",
            help=f"add a label, `{name}(...) as NAME`",
        )

    # --- nodes -------------------------------------------------------------------------------------------

    def make(
        self, path: str, span: Span, op: Op, inputs: Sequence[Value], attrs: dict[str, Attr], groups: Groups
    ) -> Node:
        """A node, counted, and checked for size; raises Mismatch."""
        if groups.mirror != "auto":
            self.mirror[path, span] = groups.mirror
        if groups.precision is not None:
            self.precision_words[path, span] = groups.precision
        self.count += 1
        if self.count > MAX_OPS:
            title = f"this expands to more than {MAX_OPS:,} operations"
            raise Problem("E0006", title, span, "the limit is reached here", final=True)
        types = op.infer([v.type for v in inputs], attrs)
        for type in types:
            check_bytes(type, span)
        node = Node(op, tuple(inputs), types, attrs, name=path, span=span)
        for made in self._recorded:
            made[node] = None
        return node

    @contextmanager
    def recorded(self) -> Iterator[dict[Node, None]]:
        """The nodes that are made inside, in order."""
        self._recorded.append({})
        try:
            yield self._recorded[-1]
        finally:
            self._recorded.pop()

    def emit(self, frame: Frame, span: Span, op: Op, *inputs: Value, **attrs: Attr) -> Value:
        """The result of an operator's node, which has no name of its own."""
        try:
            return self.make(frame.node_prefix, span, op, inputs, attrs, frame.groups).out
        except Mismatch as wrong:
            raise Problem(wrong.code, wrong.why, span, help=wrong.help) from None

    # --- blocks ------------------------------------------------------------------------------------------

    def static(self, expr: syntax.Expr, scope: ModuleScope) -> Static:
        """A value at the top level of a file."""
        return self.evaluate(expr, Frame(scope, Names(""), ""))

    def with_attrs(
        self, groups: Groups, attrs: tuple[syntax.Attr, ...], frame: Frame, of_layer: bool = False
    ) -> Groups:
        """The groups in force inside the attributes; ``of_layer``: they stand before a ``layer``."""
        found = with_attrs(groups, attrs, lambda expr: self.evaluate(expr, frame))
        if found.average is not None and found.average is not groups.average and not of_layer:
            raise Problem("E0210", "`@ema` stands before a `layer`", found.average.span, "no layer follows")
        if found.precision is not None:
            self.precisions.add(found.precision)
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
        """One instance of a block: its result, or a tuple of its results."""
        block = ref.block
        if block.kind == "model":
            raise Problem("E0207", f"the model `{block.name}` cannot be called", span, "only blocks can be called")
        frame = Frame(ref.scope, Names(param_path), node_path)
        frame.groups = self.with_attrs(groups, block.attrs, frame)
        signatures.bind_block(block, given, span, frame, self)
        return self.run_block(block, frame, span)

    def run_block(self, block: syntax.Block, frame: Frame, span: Span) -> Static:
        """Runs a body whose arguments are bound, and checks its results against the signature."""
        self.reports.check_unread(block)
        arguments = dict(frame.locals)
        returned = self.statements.run(block.body, frame)
        if returned is None:
            raise Problem("E0208", f"`{block.name}` returns nothing", block.span, "no `return` is reached")
        value, place = returned
        if isinstance(value, Poison):
            raise Poisoned
        with self._at(frame):
            declared = replace(frame, locals={**frame.locals, **arguments})  # names that the body reassigns, too
            return signatures.check_results(block, value, place, declared, self)

    @contextmanager
    def _at(self, frame: Frame) -> Iterator[None]:
        """Reports problems raised inside with this frame's context; the caller gets poison."""
        try:
            yield
        except Problem as problem:
            self.reports.add(problem, frame.context)
            raise Poisoned from None

    def layer_tensor(self, layer: Layer, expr: syntax.Field, frame: Frame) -> Value:
        """``tok.weight``: a parameter of a layer that was called, or that needs no call. A buffer has its value
        after the last call, and no gradient flows through it, as in PyTorch."""
        name = f"{layer.path}.{expr.name}"
        if name in self.tensors.stored:
            value = self.tensors.current(name)
            stored = value is self.tensors.stored[name].input.value
            return value if stored else self.emit(frame, expr.span, OPS["stop_gradient"], value)
        below = sorted(n[len(layer.path) + 1 :] for n in self.tensors.stored if n.startswith(layer.path + "."))
        if layer.calls == 0:
            known = known_parameters(layer, frame, self)
            if expr.name in known:
                return self.tensors.param(name, *known[expr.name], layer.groups, expr.span)
            near = did_you_mean(expr.name, known)
            raise Problem(
                "E0102",
                f"this layer has no parameter `{expr.name}` before its first call",
                expr.span,
                "read before the call",
                help=f"did you mean `{near}`?" if near else "call the layer first: the call determines its shapes",
            )
        raise Problem(
            "E0102",
            f"the layer has no parameter `{expr.name}`",
            expr.span,
            "not there",
            help=f"it has {', '.join(f'`{b}`' for b in below)}" if below else "it has none",
        )
