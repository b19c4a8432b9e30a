"""Parses a source into its tree: an LALR(1) automaton over the grammar's tables, without recursion.

After an error the parser drops the current statement, section entry or declaration, skips to its end, and continues, so
that all independent errors of a file are found in one run.
"""

from __future__ import annotations

from typing import Any, Final

from dslc.dsl import syntax
from dslc.dsl.build_tree import TreeBuilder
from dslc.dsl.depth import too_deep
from dslc.dsl.diagnostics import CompileError, Diagnostic
from dslc.dsl.first_line import read_edition
from dslc.dsl.lexer import SOFT_WORDS, lex
from dslc.dsl.limits import MAX_FOUND
from dslc.dsl.span import Source
from dslc.dsl.syntax_errors import explain
from dslc.dsl.tables import Tables, load_tables
from dslc.dsl.tokens import Tokens

# The units that the parser can drop after an error before it continues.
_UNITS: Final = ("stmt", "entry", "item")


def parse(source: Source) -> syntax.File:
    """The tree of a source. Raises CompileError with all errors of the text (E0001 to E0008, and types and labels that
    are never valid), in the order of the source. Takes about 4 us per token."""
    return parse_tokens(lex(source, load_tables()))


def parse_tokens(tokens: Tokens) -> syntax.File:
    """The tree of the lexer's tokens; the same errors as `parse`."""
    return _Parser(tokens, load_tables()).run()


class _Parser:
    def __init__(self, tokens: Tokens, tables: Tables) -> None:
        self.tokens = tokens
        self.tables = tables
        self.found: list[Diagnostic] = []
        self.states = [0]
        self.values: list[Any] = []
        self.firsts: list[int] = []  # indices of the first and last token of each value
        self.lasts: list[int] = []

    def run(self) -> syntax.File:
        read_edition(self.tokens, self.found)
        builder = TreeBuilder(self.tokens, self.found)
        rules = [
            (r.name, r.length, builder.action(r.action) if r.action else None, r.children, r.single)
            for r in self.tables.rules
        ]
        items = self.tokens.items
        actions, gotos = self.tables.actions, self.tables.gotos
        states, values, firsts, lasts = self.states, self.values, self.firsts, self.lasts
        index = 0
        resumed = -1  # the end of the last recovery
        while states[-1] != self.tables.accept:
            token = items[index]
            step = actions[states[-1]].get(token.kind)
            if step is None and token.kind in SOFT_WORDS:
                step = actions[states[-1]].get("NAME")
            if step is None:
                if len(self.found) >= MAX_FOUND:
                    break
                if index != resumed:
                    resumed = self._recover(index)
                    index = resumed
                elif token.kind == "$END":
                    break
                else:
                    index += 1  # the token that ended the unit does not fit after it either: the same cause
                    resumed = index
                continue
            if step >= 0:
                states.append(step)
                values.append(token)
                firsts.append(index)
                lasts.append(index)
                index += 1
                continue
            name, length, action, children, single = rules[-1 - step]
            if single and length == 1 and children == (0,):
                states[-1] = gotos[states[-2]][name]
                continue
            base = len(values) - length
            made: list[Any] = []
            for child in children:
                if child is None:
                    made.append(None)
                elif child >= 0:
                    made.append(values[base + child])
                else:
                    made += values[base - 1 - child]
            first, last = (firsts[base], lasts[-1]) if length else (index, index - 1)
            value = made[0] if single and len(made) == 1 else action(made, first, last) if action else made
            del states[base + 1 :], values[base:], firsts[base:], lasts[base:]
            states.append(gotos[states[-1]][name])
            values.append(value)
            firsts.append(first)
            lasts.append(last)
        file: syntax.File = self.values[-1]
        if not self.found:
            self.found += too_deep(file)
        if self.found:
            raise CompileError(sorted(self.found, key=lambda d: d.label.span.start))
        return file

    def _recover(self, index: int) -> int:
        """Report the error at a token, drop the unit around it, and return the index of the token at which to
        continue."""
        self._close_finished()
        base, unit = self._enclosing()
        end = self._end_of_unit(index, unit)
        # An open bracket or an invalid character that the lexer found explains the parser's error.
        causes = [self.tokens.bad[i] for i in range(index, end) if i in self.tokens.bad]
        here = self.tokens.items[index]
        first = self.firsts[base] if base < len(self.firsts) else index
        earlier = [cause for cause in causes if cause.label.span.start <= here.start]
        if earlier:
            self.found += earlier
        else:
            self.found.append(explain(self.tokens, self.tables, self.states, first, index, unit))
        del self.states[base + 1 :], self.values[base:], self.firsts[base:], self.lasts[base:]
        self.states.append(self.tables.gotos[self.states[-1]][unit])
        self.values.append(None)
        self.firsts.append(index)
        self.lasts.append(index)
        return end

    def _close_finished(self) -> None:
        """Reduce rules that are complete whatever follows, so that a finished body does not count as the place of the
        error; stop at a complete unit. The values do not matter: they belong to the dropped unit."""
        while True:
            steps = set(self.tables.actions[self.states[-1]].values())
            step = steps.pop()
            if steps or step >= 0:
                return
            rule = self.tables.rules[-1 - step]
            if not rule.length:
                return
            base = len(self.values) - rule.length
            del self.states[base + 1 :], self.values[base + 1 :], self.firsts[base + 1 :], self.lasts[base + 1 :]
            self.states.append(self.tables.gotos[self.states[-1]][rule.name])
            self.values[-1] = None
            if rule.name in _UNITS:
                return

    def _enclosing(self) -> tuple[int, str]:
        """The innermost place on the stack at which a unit was about to begin."""
        for base in range(len(self.states) - 1, -1, -1):
            for unit in _UNITS:
                if unit in self.tables.gotos[self.states[base]]:
                    return base, unit
        raise AssertionError("the first line was read without an edition")

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
