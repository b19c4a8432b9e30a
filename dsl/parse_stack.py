"""Lark's parser stack for one source: it takes tokens, and after an error drops the unit in which the error stands."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from lark import UnexpectedToken
from lark.grammar import Rule

from dslc.dsl import syntax
from dslc.dsl.build_tree import TreeBuilder
from dslc.dsl.lexer import SOFT_WORDS
from dslc.dsl.places import Fed, Places
from dslc.dsl.tables import Tables
from dslc.dsl.tokens import Token

# The units that the parser can drop after an error before it continues.
_UNITS: Final = ("stmt", "entry", "item")


class ParseStack:
    """Lark's interactive parser with the places of its values. ``file`` is the tree, once `$END` was taken."""

    file: syntax.File

    def __init__(self, tables: Tables, builder: TreeBuilder) -> None:
        self._tables = tables
        self._lark = tables.lark.parse_interactive()
        self._states = self._lark.parser_state.state_stack
        self._values = self._lark.parser_state.value_stack
        self._table: dict[int, dict[str, tuple[Any, Any]]] = self._lark.parser_state.parse_conf.parse_table.states
        self._places = Places(tables, builder)
        self._lark.parser_state.parse_conf.callbacks = self._places.callbacks
        self._fed: Any = Fed()  # it has what Lark reads of a token

    def feed(self, token: Token, index: int) -> bool:
        """Take the token at ``index``; False if the grammar does not allow it here."""
        fed, kind = self._fed, token.kind
        fed.token, fed.type = token, self._tables.names.get(kind, kind)
        self._places.index = index
        try:
            result = self._lark.feed_token(fed)
        except UnexpectedToken:
            if kind not in SOFT_WORDS:
                return False
            return self.feed(token._replace(kind="NAME"), index)
        if kind == "$END":
            self.file = result
        return True

    def accepted(self) -> frozenset[str]:
        """The terminals that could be next.

        Lark's `accepts` tries each terminal on a copy of the stack: on `---...1 1` of 96 KiB that takes 3 s. Here the
        terminals that lead to the same reductions are tried together.
        """
        found: set[str] = set()
        steps = cache(self._steps)
        waiting = [(list(self._states), self._tables.terminals | {"$END"})]
        while waiting:
            states, names = waiting.pop()
            shifted, reduced = steps(states[-1], names)
            found |= shifted
            for rule, those in reduced:
                after = list(states) if len(reduced) > 1 else states
                del after[len(after) - len(rule.expansion) :]
                after.append(self._table[after[-1]][rule.origin.name][1])
                waiting.append((after, those))
        return frozenset(self._tables.texts.get(name, name) for name in found)

    def _steps(self, state: int, names: frozenset[str]) -> tuple[set[str], list[tuple[Rule, frozenset[str]]]]:
        """The terminals that a state shifts, and for each rule those for which it reduces by the rule."""
        shifted: set[str] = set()
        reduced: dict[Rule, set[str]] = {}
        for name in names & self._table[state].keys():
            _, target = self._table[state][name]
            if isinstance(target, int):
                shifted.add(name)
            else:
                reduced.setdefault(target, set()).add(name)
        return shifted, [(rule, frozenset(those)) for rule, those in reduced.items()]

    def enclosing_unit(self) -> tuple[int, str]:
        """The innermost unit around the place of the error: its place on the stack and its rule."""
        self._close_finished()
        for base in range(len(self._states) - 1, -1, -1):
            for unit in _UNITS:
                if unit in self._table[self._states[base]]:
                    return base, unit
        raise AssertionError("the first line was read without an edition")

    def first_token(self, base: int, index: int) -> int:
        """The index of the first token of the unit at a place on the stack; ``index`` if it has none yet."""
        firsts = self._places.firsts
        return firsts[base] if base < len(firsts) else index

    def drop_unit(self, base: int, unit: str, index: int) -> None:
        """Put an empty unit in the place of the one at ``base``; what follows is at the token ``index``."""
        self._replace(base, unit)
        self._places.push(index, index)

    def _close_finished(self) -> None:
        """Reduce rules that are complete whatever follows, so that a finished body does not count as the place of the
        error; stop at a complete unit. The values do not matter: they belong to the dropped unit."""
        while True:
            steps = {target for _, target in self._table[self._states[-1]].values()}
            rule = steps.pop()
            if steps or isinstance(rule, int) or not rule.expansion:
                return
            base = len(self._values) - len(rule.expansion)
            first, last = self._places.firsts[base], self._places.lasts[base]
            self._replace(base, rule.origin.name)
            self._places.push(first, last)
            if rule.origin.name in _UNITS:
                return

    def _replace(self, base: int, rule: str) -> None:
        """Put an empty value of a rule in the place of all values from ``base`` on; its place in the text is pushed by
        the caller."""
        del self._states[base + 1 :], self._values[base:]
        self._places.cut(base)
        self._states.append(self._table[self._states[-1]][rule][1])
        self._values.append(None)
