"""Proposes faults for a file, as entries of a table: ``python tests/mutation/propose.py FILE ... [--count N]``.

Each is one change of one line, chosen by the seed: a comparison that is off by one, ``and`` for ``or``, half of a
condition, a constant one too large, a sum for a difference, min for max, a call or an assignment that is left out, a
check that never refuses, a lock that is not taken, a flag or an answer that is the opposite. Read them before they go
into a table: leave out those that change nothing that matters (a message, a speed).
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

from faults import ROOT

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.FloorDiv: "*", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
_TEXT = (ast.JoinedStr, ast.Raise)  # their content is text for users, not behaviour
Edit = tuple[str, ast.AST, str]  # the operator's name, what is replaced, and by what


def edits(tree: ast.Module, text: str) -> Iterator[Edit]:
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, _TEXT) or (isinstance(node, ast.If) and _is_type_checking(node)):
            continue
        annotations = {id(getattr(node, name, None)) for name in ("annotation", "returns")}
        if isinstance(node, ast.FunctionDef):
            annotations |= {id(d) for d in node.decorator_list}
        stack += [child for child in ast.iter_child_nodes(node) if id(child) not in annotations]
        yield from _of(node, text)


def _of(node: ast.AST, text: str) -> Iterator[Edit]:
    def source(part: ast.AST) -> str:
        return ast.get_source_segment(text, part) or ""

    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            yield "compare", node, f"{source(left)} {_COMPARISONS[type(op)]} {source(right)}"
        case ast.BoolOp(op=op, values=[a, b]):
            yield "and-or", node, f"({source(a)}) {'or' if isinstance(op, ast.And) else 'and'} ({source(b)})"
            yield "half", node, source(a)
            yield "other-half", node, source(b)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not _is_text(left, right):
            yield "arithmetic", node, f"{source(left)} {_ARITHMETIC[type(op)]} {source(right)}"
        case ast.keyword(value=ast.Constant(value=bool() as value)) if node.arg not in ("frozen", "slots"):
            yield "flag", node.value, str(not value)
        case ast.Return(value=ast.Constant(value=bool() as value)) if node.value is not None:
            yield "answer", node.value, str(not value)
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            yield "constant", node, str(value + 1)
        case ast.Call(func=ast.Name(id=("min" | "max") as name)):
            yield "extreme", node, ("max" if name == "min" else "min") + source(node)[3:]
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete() if not _tells(node):
            yield "dropped", node, "pass"
        case ast.If(test=test, orelse=[]) if _refuses(node):
            yield "unchecked", test, "False"
        case ast.With(items=[item]) if item.optional_vars is None:
            yield "unlocked", item.context_expr, "__import__('contextlib').nullcontext()"


def _tells(node: ast.AST) -> bool:
    """Whether a statement refuses (``unchecked`` removes those) or is a failpoint."""
    text = ast.dump(node)
    return "refuse" in text or "id='fail'" in text or "fault" in text


def _is_text(*nodes: ast.AST) -> bool:
    return any(isinstance(getattr(n, "value", None), str) or isinstance(n, ast.JoinedStr) for n in nodes)


def _refuses(node: ast.If) -> bool:
    last = node.body[-1]
    return isinstance(last, ast.Raise) or (isinstance(last, ast.Expr) and "refuse" in ast.dump(last))


def _is_type_checking(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def proposed(file: str, count: int, seed: int) -> Iterator[str]:
    """Entries, in the order of the file: at most one a line, and operators by turns."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found = [e for e in edits(ast.parse(text), text) if e[1].lineno == e[1].end_lineno]  # type: ignore[attr-defined]
    rng = random.Random(f"{seed} {Path(file).name}")
    rng.shuffle(found)
    used: dict[str, int] = {}
    lines: set[int] = set()
    chosen: list[Edit] = []
    while found and len(chosen) < count:
        kind, node, new = min(found, key=lambda e: used.get(e[0], 0))
        found.remove((kind, node, new))
        if node.lineno in lines:  # type: ignore[attr-defined]
            continue
        used[kind] = used.get(kind, 0) + 1
        lines.add(node.lineno)  # type: ignore[attr-defined]
        chosen.append((kind, node, new))
    for kind, node, new in sorted(chosen, key=lambda e: e[1].lineno):  # type: ignore[attr-defined]
        yield entry(file, text, kind, node, new)


def entry(file: str, text: str, kind: str, node: ast.AST, new: str) -> str:
    """With as many lines in front as make the text unique."""
    lines = text.split("\n")
    row: int = node.lineno - 1  # type: ignore[attr-defined]
    line = lines[row].encode()
    changed = (line[: node.col_offset] + new.encode() + line[node.end_col_offset :]).decode()  # type: ignore[attr-defined]
    first = row
    while text.count("\n".join(lines[first : row + 1])) > 1 and first:
        first -= 1
    before = "".join(f"{x}\n" for x in lines[first:row])
    name = f"{Path(file).stem}-{_function(ast.parse(text), row + 1)}-{kind}-{row + 1}"
    quote = "'''"
    assert quote not in before + line.decode() + changed
    return (
        f'[[fault]]\nname = "{name}"\nfile = "{file}"\n'
        f"old = {quote}\n{before}{lines[row]}{quote}\nnew = {quote}\n{before}{changed}{quote}\n"
    )


def _function(tree: ast.Module, line: int) -> str:
    """The innermost function or class that a line is in."""
    kinds = ast.FunctionDef | ast.ClassDef
    around = [n for n in ast.walk(tree) if isinstance(n, kinds) and n.lineno <= line <= (n.end_lineno or 0)]
    return max(around, key=lambda n: n.lineno).name.strip("_") if around else "module"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for file in options.files:
        print("\n".join(proposed(file, options.count, options.seed)))


if __name__ == "__main__":
    main()
