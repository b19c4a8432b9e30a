"""Bounds the depth of a tree, so that it can be traversed by plain recursion."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from dslc.dsl.diagnostics import Diagnostic, Label
from dslc.dsl.limits import MAX_NESTING
from dslc.dsl.syntax import Expr, File, Tree

_PLAIN: Final = frozenset({"span", "label_span", "op_span", "name", "label", "doc", "op", "path", "kind", "dtype"})


def too_deep(file: File) -> list[Diagnostic]:
    """The first place with trees nested more than MAX_NESTING levels (E0004), else an empty list. The depth of a chain
    such as ``a + b + c`` or ``x |> f |> g`` is its length. Iterative."""
    stack: list[tuple[Tree, int]] = [(item, 1) for item in reversed(file.items)]
    parts: dict[type, tuple[str, ...]] = {}  # by class, the fields that may contain trees
    while stack:
        tree, depth = stack.pop()
        if depth > MAX_NESTING:
            what = "this expression" if isinstance(tree, Expr) else "this statement"
            label = Label(tree.span, f"level {depth}")
            help = "give inner parts names, or repeat with `for`"
            return [Diagnostic("E0004", f"{what} nests more than {MAX_NESTING} levels deep", label, help=help)]
        below: list[Tree] = []
        kind = type(tree)
        if kind not in parts:
            parts[kind] = tuple(f.name for f in fields(kind) if f.name not in _PLAIN)
        for part in parts[kind]:
            value = getattr(tree, part)
            if isinstance(value, Tree):
                below.append(value)
            elif isinstance(value, tuple):
                below += [item for item in value if isinstance(item, Tree)]
        stack += [(item, depth + 1) for item in reversed(below)]
    return []
