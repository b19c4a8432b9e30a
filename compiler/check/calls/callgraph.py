"""Checks before expansion that blocks do not call each other in a cycle and that the expansion stays in bounds.

The number of ops is a lower bound from the text alone, in unbounded ints: loops over literal ranges and lists count,
others do not. The expander counts exactly during expansion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Final

from dslc.compiler.check.scope import ModuleScope
from dslc.compiler.check.values import BlockRef, Problem
from dslc.compiler.ir.function import FUNCTIONS
from dslc.dsl import syntax

MAX_OPS: Final = 1_000_000
MAX_CHAIN: Final = 100
_MOST_NAMED: Final = 6  # blocks of a chain in a message
_WORD: Final = re.compile(r"\w+")
_ATOMS: Final = frozenset({"str", "int", "float", "bool", "None", "tuple"})
_FIELDS: Final[dict[type[syntax.Tree], tuple[str, ...]]] = {}


def check_calls(root: BlockRef) -> None:
    """E0105 for a cycle, E0004 for a chain of more than MAX_CHAIN blocks, E0006 for too many ops below ``root``."""
    calls = _Calls(root)
    if calls.heights[id(root.block)] > MAX_CHAIN:
        raise Problem(
            "E0004", f"more than {MAX_CHAIN} blocks call each other in a chain", root.block.span, "starts here"
        )
    total = calls.counts[id(root.block)]
    if total > MAX_OPS:
        raise Problem(
            "E0006",
            f"this expands to {_amount(total)} operations or more; the limit is {MAX_OPS:,}",
            root.block.span,
            calls.heaviest_chain(root),
            help="`for` is unrolled: use fewer iterations, or fewer calls in the inner blocks",
        )


class _Calls:
    """The blocks that a block calls, itself or through others, by their identities. ``counts``: the ops of each;
    ``heights``: the blocks of its longest chain; ``heaviest``: the block with the most ops that it calls."""

    def __init__(self, root: BlockRef) -> None:
        self.counts: dict[int, int] = {}
        self.heights: dict[int, int] = {}
        self.heaviest: dict[int, BlockRef | None] = {}
        path, called = [root], [_callees(root)]
        stack = [iter(called[0])]
        while stack:
            ref = next((each for each in stack[-1] if id(each.block) not in self.counts), None)
            if ref is None:
                stack.pop()
                self._note(path.pop(), called.pop())
            elif any(p.block is ref.block for p in path):
                raise _cycle([p.block for p in path], ref.block)
            else:
                path.append(ref)
                called.append(_callees(ref))
                stack.append(iter(called[-1]))

    def _note(self, ref: BlockRef, below: Sequence[BlockRef]) -> None:
        """Notes a block after those that it calls."""
        self.heights[id(ref.block)] = 1 + max((self.heights[id(b.block)] for b in below), default=0)
        self.counts[id(ref.block)] = _count(ref.block.body, ref.scope, self.counts)
        self.heaviest[id(ref.block)] = max(below, key=lambda b: self.counts[id(b.block)], default=None)

    def heaviest_chain(self, root: BlockRef) -> str:
        """The heaviest block that a block calls, the heaviest one that this calls, and so on, with their ops."""
        chain: list[str] = []
        at: BlockRef | None = root
        while at is not None and len(chain) < _MOST_NAMED:
            chain.append(f"{at.block.name} ({_amount(self.counts[id(at.block)])})")
            at = self.heaviest[id(at.block)]
        return " -> ".join(chain)


def _cycle(path: Sequence[syntax.Block], again: syntax.Block) -> Problem:
    """E0105 for a block on the path of calls that is called once more."""
    names = [block.name for block in path]
    first = next(i for i, block in enumerate(path) if block is again)
    return Problem(
        "E0105",
        "blocks call each other in a cycle: " + " -> ".join([*names[first:], again.name]),
        path[-1].span,
        "this block is part of the cycle",
        help=_cycle_help(names),
    )


def _cycle_help(names: list[str]) -> str:
    hidden = next((name for name in names if name in FUNCTIONS), None)
    if hidden is None:
        return "use `for` for repetition"
    return f"the block `{hidden}` hides the built-in function: rename it, and `{hidden}` is that function again"


def _amount(count: int) -> str:
    return f"{count:,}" if count < 10**15 else f"about 10^{len(str(count)) - 1}"


def _callees(ref: BlockRef) -> list[BlockRef]:
    found: dict[int, BlockRef] = {}
    for tree in walk(ref.block.body):
        name = called_name(tree)
        value = ref.scope.values.get(name.name) if name else None
        if isinstance(value, BlockRef):
            found.setdefault(id(value.block), value)
    return list(found.values())


def called_name(tree: object) -> syntax.Name | None:
    """The name that a call or a stage of a pipe calls."""
    match tree:
        case syntax.Call(function=syntax.Name() as name) | syntax.Pipe(stage=syntax.Name() as name):
            return name
    return None


def walk(body: tuple[syntax.Tree, ...]) -> Iterator[syntax.Tree]:
    """Every tree in a body, each once, without recursion."""
    stack: list[object] = list(reversed(body))
    while stack:
        tree = stack.pop()
        if isinstance(tree, tuple):
            stack.extend(reversed(tree))
        elif isinstance(tree, syntax.Tree):
            yield tree
            stack.extend([getattr(tree, name) for name in _fields(type(tree))])


def _fields(kind: type[syntax.Tree]) -> tuple[str, ...]:
    """The names of the fields that may hold trees, the last first: those whose types name more than atoms."""
    found = _FIELDS.get(kind)
    if found is None:
        named = [(field.name, set(_WORD.findall(str(field.type)))) for field in reversed(fields(kind)) if field.compare]
        found = _FIELDS[kind] = tuple(name for name, types in named if types - _ATOMS)
    return found


def _count(body: tuple[syntax.Stmt, ...], scope: ModuleScope, counts: dict[int, int]) -> int:
    """A lower bound of the ops of a body; the parser's limit bounds the nesting of statements."""
    total = 0
    for stmt in body:
        match stmt:
            case syntax.For():
                total += _rounds(stmt.values) * max(1, _count(stmt.body, scope, counts))  # an empty round counts as one
            case syntax.If():
                total += min(_count(stmt.then, scope, counts), _count(stmt.other, scope, counts))
            case syntax.Scan():
                total += _count(stmt.body, scope, counts)
            case syntax.LayerStmt():
                pass
            case _:
                total += _count_calls(stmt, scope, counts)
    return total


def _count_calls(stmt: syntax.Stmt, scope: ModuleScope, counts: dict[int, int]) -> int:
    total = 0
    for tree in walk((stmt,)):
        name = called_name(tree)
        if isinstance(tree, (syntax.Choose, syntax.Comprehension)):
            return 0  # it is unknown which branch is taken, or how many elements there are
        if name is not None:
            value = scope.values.get(name.name)
            total += counts[id(value.block)] if isinstance(value, BlockRef) else 1
    return total


def _rounds(values: syntax.Expr) -> int:
    match values:
        case syntax.Range(low=syntax.Number(value=int() as low), high=syntax.Number(value=int() as high)):
            return max(0, high - low)
        case syntax.List(items=items):
            return len(items)
    return 0
