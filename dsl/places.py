"""The functions that Lark's parser calls: they build the nodes and know where each of them stands in the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dslc.dsl.build_tree import TreeBuilder
from dslc.dsl.tables import Tables
from dslc.dsl.tokens import Token


class Fed:
    """A token as Lark sees it: ``type`` is Lark's name of the terminal."""

    __slots__ = ("token", "type")

    type: str
    token: Token


class Places:
    """For each value on Lark's stack, the indices of its first and last token: ``firsts`` and ``lasts``.

    Lark hands the values of a rule's right side to the rule's function, without their places. So these stacks follow
    Lark's own: ``callbacks``, by terminal and by rule, change them as Lark changes its stack. ``index`` is the index of
    the token that Lark is fed with; a rule without tokens stands before it.
    """

    def __init__(self, tables: Tables, builder: TreeBuilder) -> None:
        self.index = 0
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        self._first = self._last = 0  # of the rule that is being reduced
        self._builder = builder
        self.callbacks: dict[Any, Callable[[Any], Any]] = dict.fromkeys(tables.terminals, self._shift)
        for rule, make in tables.shapes.create_callback(_Actions(self._action)).items():
            # A rule that stands for its only child (`?expr: pipe`) changes no place.
            passes = len(rule.expansion) == 1 and rule.options.expand1 and rule.alias is None
            self.callbacks[rule] = make if passes else self._reduce(make, len(rule.expansion))

    def cut(self, size: int) -> None:
        """Keep the places of the first ``size`` values."""
        del self.firsts[size:], self.lasts[size:]

    def push(self, first: int, last: int) -> None:
        self.firsts.append(first)
        self.lasts.append(last)

    def _shift(self, fed: Fed) -> Token:
        self.firsts.append(self.index)
        self.lasts.append(self.index)
        return fed.token

    def _reduce(self, make: Callable[[Any], Any], size: int) -> Callable[[Any], Any]:
        """The function of a rule of ``size`` symbols, whose value is ``make(children)``."""
        firsts, lasts = self.firsts, self.lasts

        def empty(children: Any) -> Any:
            self._first, self._last = self.index, self.index - 1
            self.push(self._first, self._last)
            return make(children)

        def filled(children: Any) -> Any:
            base = len(firsts) - size
            self._first, self._last = firsts[base], lasts[-1]
            del firsts[base + 1 :], lasts[base:]
            lasts.append(self._last)
            return make(children)

        return filled if size else empty

    def _action(self, rule: str) -> Callable[[Any], Any]:
        """TreeBuilder's method for a rule, AttributeError if there is none."""
        method = self._builder.action(rule)
        return lambda children: method(children, self._first, self._last)


class _Actions:
    """An object whose attributes are the functions of the rules: Lark looks them up so, and a method cannot be named
    ``if``."""

    def __init__(self, action: Callable[[str], Callable[[Any], Any]]) -> None:
        self._action = action

    def __getattr__(self, rule: str) -> Callable[[Any], Any]:
        return self._action(rule)
