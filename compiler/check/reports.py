"""Collects errors and warnings in order, each cause once."""

from __future__ import annotations

from typing import Final

from dslc.compiler.check.values import Problem
from dslc.dsl import syntax
from dslc.dsl.diagnostics import CompileError, Diagnostic, Label
from dslc.dsl.span import Span

MAX_ERRORS: Final = 20


class Reports:
    """Collects diagnostics. Each pair of place and code is reported once, for any number of instances of a block."""

    def __init__(self) -> None:
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        #: whether something was left out because of an error, which must be among ``errors``
        self.left_out = False
        self._seen: set[tuple[str, str, int]] = set()
        self._blocks: set[int] = set()

    def has(self, code: str, span: Span) -> bool:
        """True if this code was already reported for this place, so that a loop need not build the message again."""
        return (code, span.source.path, span.start) in self._seen

    def add(self, problem: Problem, context: str | None = None) -> None:
        """Records a problem; raises CompileError after a final one."""
        span = problem.label.span
        key = (problem.code, span.source.path, span.start)
        if key in self._seen:
            return
        self._seen.add(key)
        self.errors.append(Diagnostic(problem.code, problem.title, problem.label, problem.also, problem.help, context))
        if problem.final:
            self.raise_errors()

    def warn(self, code: str, title: str, span: Span, text: str, help: str, also: tuple[Label, ...] = ()) -> None:
        key = (code, span.source.path, span.start)
        if key not in self._seen:
            self._seen.add(key)
            self.warnings.append(Diagnostic(code, title, Label(span, text), also, help, None))

    def warned(self, code: str, span: Span) -> bool:
        """True if a warning of this code stands inside the span."""
        places = [found.label.span for found in self.warnings if found.code == code]
        return any(p.source is span.source and span.start <= p.start and p.end <= span.end for p in places)

    def stop_if_full(self) -> None:
        """Raises the errors if there are enough to show."""
        if len(self.errors) >= MAX_ERRORS:
            self.raise_errors()

    def raise_errors(self) -> None:
        """Raises CompileError with the errors, if any, in the order of the source.

        If a name is unknown, it may be a misspelling of an apparently unread name: then unread names are not reported.
        """
        misspelt = any(found.code == "E0102" for found in self.errors)
        shown = [found for found in self.errors if not (misspelt and found.code == "E0110")]
        if shown:
            raise CompileError(sorted(shown, key=lambda d: (d.label.span.source.path, d.label.span.start)))
        assert not self.left_out, "what an error poisoned was left out, and no error was told"

    def check_unread(self, block: syntax.Block) -> None:
        """E0110 for a tensor argument that the block's body never mentions (once per block), unless the body or a
        result mentions a size of it that no other argument has."""
        if id(block) in self._blocks:
            return
        self._blocks.add(id(block))
        from dslc.compiler.check.calls.callgraph import walk

        def names(trees: tuple[syntax.Tree, ...]) -> set[str]:
            return {tree.name for tree in walk(trees) if isinstance(tree, syntax.Name)}

        read = names(block.body)
        for param in block.params:
            if isinstance(param.type, syntax.TensorTypeExpr) and param.name not in read and block.kind == "block":
                own = names((param.type,)) - names(tuple(p.type for p in block.params if p is not param))
                if own & (read | names(block.results)):
                    continue
                self.add(
                    Problem(
                        "E0110",
                        f"`{param.name}` of `{block.name}` is never read",
                        param.span,
                        "not used",
                        help="remove it, or use it",
                    )
                )
