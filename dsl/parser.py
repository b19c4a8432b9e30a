"""Parses a source into its tree: Lark's LALR(1) parser gets the tokens of our lexer, one by one.

After an error the parser drops the current statement, section entry or declaration, skips to its end, and continues, so
that all independent errors of a file are found in one run.
"""

from __future__ import annotations

from dslc.dsl import syntax
from dslc.dsl.build_tree import TreeBuilder
from dslc.dsl.depth import too_deep
from dslc.dsl.diagnostics import CompileError, Diagnostic
from dslc.dsl.first_line import read_edition
from dslc.dsl.lexer import lex
from dslc.dsl.limits import MAX_FOUND
from dslc.dsl.parse_stack import ParseStack
from dslc.dsl.span import Source
from dslc.dsl.syntax_errors import explain
from dslc.dsl.tables import Tables, load_tables
from dslc.dsl.tokens import Tokens


def parse(source: Source) -> syntax.File:
    """The tree of a source. Raises CompileError with all errors of the text (E0001 to E0008, and types and labels that
    are never valid), in the order of the source. Takes about 10 us per token."""
    return parse_tokens(lex(source, load_tables()))


def parse_tokens(tokens: Tokens) -> syntax.File:
    """The tree of the lexer's tokens; the same errors as `parse`."""
    return _Parser(tokens, load_tables()).run()


class _Parser:
    def __init__(self, tokens: Tokens, tables: Tables) -> None:
        self.tokens = tokens
        self.found: list[Diagnostic] = []
        self.stack = ParseStack(tables, TreeBuilder(tokens, self.found))

    def run(self) -> syntax.File:
        read_edition(self.tokens, self.found)
        items = self.tokens.items
        index = 0
        resumed = -1  # the end of the last recovery
        while index < len(items):
            if self.stack.feed(items[index], index):
                index += 1
            elif len(self.found) >= MAX_FOUND:
                break
            elif index != resumed:
                index = resumed = self._recover(index)
            else:
                index += 1  # the token that ended the unit does not fit after it either: the same cause
                resumed = index
        if not self.found:
            self.found += too_deep(self.stack.file)
        if self.found:
            raise CompileError(sorted(self.found, key=lambda d: d.label.span.start))
        return self.stack.file

    def _recover(self, index: int) -> int:
        """Report the error at a token, drop the unit around it, and return the index of the token at which to
        continue."""
        base, unit = self.stack.enclosing_unit()
        end = self._end_of_unit(index, unit)
        # An open bracket or an invalid character that the lexer found explains the parser's error.
        causes = [self.tokens.bad[i] for i in range(index, end) if i in self.tokens.bad]
        here = self.tokens.items[index]
        earlier = [cause for cause in causes if cause.label.span.start <= here.start]
        if earlier:
            self.found += earlier
        else:
            first = self.stack.first_token(base, index)
            self.found.append(explain(self.tokens, self.stack.accepted(), first, index, unit))
        self.stack.drop_unit(base, unit, index)
        return end

    def _end_of_unit(self, index: int, unit: str) -> int:
        """The next line end outside braces opened after ``index``; or `}`, if the unit is in braces."""
        depth = 0
        items = self.tokens.items
        while True:
            kind = items[index].kind
            if kind == "$END" or (depth == 0 and (kind == "_NL" or (kind == "}" and unit != "item"))):
                return index
            depth = max(0, depth + (kind == "{") - (kind == "}"))
            index += 1
