"""The LALR tables of the grammar: read from grammar_tables.json, which ``python -m dslc.dsl.tables`` writes.

Lark analyses grammar.lark (0.1 to 0.5 s) and rejects conflicts. The parts that the parser needs are stored as plain
JSON in our own form, so that reading a model does not import Lark, and another version of Lark cannot change how a
model is read. A terminal is named by its text (``if``, ``|>``), or NAME, NUMBER, UNIT, STRING, _NL and $END.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

GRAMMAR = Path(__file__).parent / "grammar.lark"
TABLES = Path(__file__).parent / "grammar_tables.json"


@dataclass(frozen=True, slots=True)
class Rule:
    """A production ``name: ...`` of ``length`` symbols.

    ``children`` lists the children of its node: a position i >= 0 of the right side; ``-1 - i`` for the items of the
    list at position i; None for a missing optional part. ``action`` names the method that builds the node; ``""``
    passes the list of children on; ``single`` means that a lone child replaces the node.
    """

    name: str
    length: int
    action: str
    children: tuple[int | None, ...]
    single: bool


@dataclass(frozen=True, slots=True)
class Tables:
    """``actions[state][terminal]``: the next state, or ``-1 - r`` to reduce by rule r. ``gotos[state][rule name]``: the
    state after a reduction. State 0 is the first; ``accept`` is the state after a complete file."""

    grammar: str
    words: frozenset[str]
    patterns: dict[str, str]
    rules: tuple[Rule, ...]
    actions: tuple[dict[str, int], ...]
    gotos: tuple[dict[str, int], ...]
    accept: int


@cache
def load_tables() -> Tables:
    """The tables of the committed file."""
    data = json.loads(TABLES.read_bytes())
    return Tables(
        grammar=data["grammar"],
        words=frozenset(data["words"]),
        patterns=data["patterns"],
        rules=tuple(Rule(r[0], r[1], r[2], tuple(r[3]), r[4]) for r in data["rules"]),
        actions=tuple(row[0] for row in data["states"]),
        gotos=tuple(row[1] for row in data["states"]),
        accept=data["accept"],
    )


def generate(grammar: str) -> str:
    """The JSON text of a grammar's tables, equal for equal grammars; a conflict raises lark's GrammarError."""
    from lark import Lark
    from lark.lexer import Lexer, PatternStr
    from lark.parsers.lalr_analysis import Shift

    class NoLexer(Lexer):
        """Unused: Lark only analyses the grammar; our lexer reads the text."""

        def __init__(self, conf: Any) -> None:
            pass

        def lex(self, *_: Any) -> Any:
            raise AssertionError("Lark reads no text here")

    lark = Lark(grammar, parser="lalr", lexer=NoLexer, strict=True, maybe_placeholders=True, start="start")
    table = lark.parser.parser._parse_table
    text = {t.name: t.pattern.value for t in lark.terminals if isinstance(t.pattern, PatternStr)}
    patterns = {t.name: t.pattern.value for t in lark.terminals if t.name not in text and t.pattern is not None}

    rules = [_rule(rule) for rule in lark.rules]
    index = {rule: i for i, rule in enumerate(lark.rules)}
    nonterminals = {rule.origin.name for rule in lark.rules}

    # Lark's state numbers depend on set order: renumber states in the order in which they are reached.
    numbers = {table.start_states["start"]: 0}
    queue = [table.start_states["start"]]
    rows: list[list[dict[str, int]]] = []
    for state in queue:
        actions: dict[str, int] = {}
        gotos: dict[str, int] = {}
        for symbol, (action, argument) in sorted(table.states[state].items()):
            if action is not Shift:
                actions[text.get(symbol, symbol)] = -1 - index[argument]
                continue
            if argument not in numbers:
                numbers[argument] = len(numbers)
                queue.append(argument)
            if symbol in nonterminals:
                gotos[symbol] = numbers[argument]
            else:
                actions[text.get(symbol, symbol)] = numbers[argument]
        rows.append([actions, gotos])

    head = {
        "grammar": hashlib.sha256(grammar.encode()).hexdigest(),
        "words": sorted(text.values()),
        "patterns": patterns,
        "accept": numbers[table.end_states["start"]],
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    lines.append(' "rules": [\n  ' + ",\n  ".join(json.dumps(r) for r in rules) + "]")
    lines.append(' "states": [\n  ' + ",\n  ".join(json.dumps(r) for r in rows) + "]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _rule(rule: Any) -> list[Any]:
    """A rule of Lark as the fields of ``Rule``; children follow Lark's rules for the shape of trees."""
    keep_all = rule.options.keep_all_tokens
    missing = rule.options.empty_indices
    children: list[int | None] = []
    position = 0
    for absent in missing or [False] * len(rule.expansion):
        if absent:
            children.append(None)
            continue
        symbol = rule.expansion[position]
        if symbol.is_term:
            if keep_all or not symbol.filter_out:
                children.append(position)
        else:
            children.append(-1 - position if symbol.name.startswith("_") else position)
        position += 1
    name = str(rule.origin.name)
    single = bool(rule.options.expand1) and rule.alias is None
    alone = single and len(children) == 1 and children[0] is not None and children[0] >= 0
    action = "" if alone or name.startswith("_") else str(rule.alias or name)
    return [name, len(rule.expansion), action, children, single]


if __name__ == "__main__":
    TABLES.write_text(generate(GRAMMAR.read_text()))
    print(f"wrote {TABLES.name}")
