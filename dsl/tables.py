"""Lark's parser of the grammar, read from grammar_tables.json, which ``python -m dslc.dsl.tables`` writes.

Lark analyses grammar.lark (0.1 to 0.5 s) and rejects conflicts. The file holds the result as Lark serializes it, so
that reading a model loads it (11 ms) and does not repeat the analysis. Lark itself saves this form with pickle; here it
is JSON, and dictionaries whose keys are 0, 1, 2, ... are lists. The versions of Lark in pyproject.toml can read it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark
from lark.grammar import Rule
from lark.lexer import Lexer, PatternStr, TerminalDef
from lark.parse_tree_builder import ParseTreeBuilder

GRAMMAR = Path(__file__).parent / "grammar.lark"
TABLES = Path(__file__).parent / "grammar_tables.json"
_SHIFT = 0  # Lark's number of the action that is no reduction


class Items:
    """The children of a rule whose name begins with ``_``: Lark puts them in the place of the rule."""

    __slots__ = ("children",)

    def __init__(self, name: str, children: list[Any]) -> None:
        assert name.startswith("_"), f"TreeBuilder has no method for {name}"
        self.children = children


class Tables:
    """Lark's parser, and the names of its terminals: here a terminal is named by its text (``if``, ``|>``), or NAME,
    NUMBER, UNIT, STRING, _NL and $END. Lark writes IF and __ANON_0 for the first two.

    ``terminals`` holds Lark's names, except $END. ``texts`` gives the text of a name that has one, ``names`` the name
    of a text, ``patterns`` the regular expressions of the other names. ``shapes`` makes the functions of the rules.
    """

    def __init__(self, lark: Lark) -> None:
        self.lark = lark
        self.terminals = frozenset(s.name for rule in lark.rules for s in rule.expansion if s.is_term)
        self.texts = {t.name: t.pattern.value for t in lark.terminals if isinstance(t.pattern, PatternStr)}
        self.names = {text: name for name, text in self.texts.items()}
        self.words = frozenset(self.names)
        self.patterns = {t.name: t.pattern.value for t in lark.terminals if t.name not in self.texts}
        self.shapes = ParseTreeBuilder(lark.rules, Items, maybe_placeholders=True)


class _NoLexer(Lexer):
    """Unused: our lexer reads the text, and the parser feeds its tokens to Lark one by one."""

    def __init__(self, conf: Any) -> None:
        pass

    def lex(self, *_: Any) -> Any:
        raise AssertionError("Lark reads no text here")


@cache
def load_tables() -> Tables:
    """The tables of the committed file."""
    stored = json.loads(TABLES.read_bytes())
    data = stored["data"]
    table = data["parser"]["parser"]
    table["tokens"] = dict(enumerate(table["tokens"]))
    table["states"] = {
        state: {token: (action, to if action == _SHIFT else {"@": to}) for token, action, to in row}
        for state, row in enumerate(table["states"])
    }
    data["options"]["lexer"] = data["parser"]["lexer_conf"]["lexer_type"] = _NoLexer
    return Tables(Lark.load({"data": data, "memo": dict(enumerate(stored["memo"]))}))


def generate(grammar: str) -> str:
    """The JSON text of a grammar's tables, equal for equal grammars; a conflict raises lark's GrammarError."""
    lark = Lark(grammar, parser="lalr", lexer=_NoLexer, strict=True, maybe_placeholders=True, start="start")
    data, memo = lark.memo_serialize([TerminalDef, Rule])
    data["options"]["lexer"] = data["parser"]["lexer_conf"]["lexer_type"] = None  # a class is not JSON
    data["parser"]["parser"] = table = _renumbered(data["parser"]["parser"])
    rows, table["states"] = table["states"], []
    # One rule and one state on a line, so that a change of the grammar can be read as a difference.
    head, tail = json.dumps(data).split('"states": []')
    states = ",\n  ".join(json.dumps(row) for row in rows)
    rules = ",\n  ".join(json.dumps(memo[number]) for number in range(len(memo)))
    return f'{{\n "data": {head}"states": [\n  {states}]{tail},\n "memo": [\n  {rules}]\n}}\n'


def _renumbered(table: dict[str, Any]) -> dict[str, Any]:
    """Lark's serialized parse table, with lists in the place of dictionaries: a state is a list of ``[token, action,
    next state or rule]``. Lark's numbers depend on set order. Here states have numbers in the order in which they are
    reached, tokens in the order in which they are used."""
    numbers = {table["start_states"]["start"]: 0}
    queue = [table["start_states"]["start"]]
    tokens: dict[str, int] = {}
    rows: list[list[tuple[int, int, int]]] = []
    for state in queue:
        row = []
        for name, (action, to) in sorted((table["tokens"][t], step) for t, step in table["states"][state].items()):
            if action == _SHIFT and to not in numbers:
                numbers[to] = len(numbers)
                queue.append(to)
            number = numbers[to] if action == _SHIFT else to["@"]
            row.append((tokens.setdefault(name, len(tokens)), action, number))
        rows.append(row)
    ends = {start: numbers[end] for start, end in table["end_states"].items()}
    return {"tokens": list(tokens), "states": rows, "start_states": {"start": 0}, "end_states": ends}


if __name__ == "__main__":
    TABLES.write_text(generate(GRAMMAR.read_text()))
    print(f"wrote {TABLES.name}")
