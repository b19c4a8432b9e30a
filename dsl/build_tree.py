"""Builds the tree from productions of the grammar: one method per action name of grammar.lark, here for files, blocks
and statements, in ``build_expressions.py`` for expressions.

Each method gets its children (tokens, trees, lists) and the indices of its first and last token. Constructs that the
grammar accepts but the language does not (an unknown dtype, a second `...` in a shape) are reported in ``found`` and
replaced by a harmless value, so that the rest of the file is still read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from dslc.dsl import syntax as t
from dslc.dsl.build_expressions import ExpressionBuilder
from dslc.dsl.diagnostics import Label, did_you_mean
from dslc.dsl.dtype_names import DTYPES, INTEGERS, instead_of, integer_for, is_float_name
from dslc.dsl.other_names import short
from dslc.dsl.tokens import Token

SCALARS: Final = ("int", "float", "bool", "str", "list")
_OTHER_SCALARS: Final = {"boolean": "bool", "string": "str", "integer": "int", "double": "float", "number": "float"}


@dataclass(frozen=True, slots=True)
class _Attrs:
    items: tuple[t.Attr, ...]
    end: int  # the index of the token after them


class TreeBuilder(ExpressionBuilder):
    """Creates the nodes of one file."""

    def _docs(self, first: int, end: int) -> str | None:
        lines = [line for index in range(first, end + 1) for line in self.tokens.docs.get(index, ())]
        return "\n".join(lines) if lines else None

    # --- a file ---------------------------------------------------------------------------------------------

    def _start(self, c: list[Any], first: int, last: int) -> t.File:
        items = tuple(item for item in c[1:] if item is not None)
        return t.File(int(c[0].text), items, self._docs(0, 0), span=self._span(first, last))

    def _item(self, c: list[Any], first: int, last: int) -> Any:
        attrs, item = c
        return replace(item, attrs=attrs.items, doc=self._docs(first, attrs.end))

    _stmt = _item

    def _attrs(self, c: list[Any], first: int, last: int) -> _Attrs:
        return _Attrs(tuple(c), last + 1)

    def _stage_attrs(self, c: list[Any], first: int, last: int) -> tuple[t.Attr, ...]:
        return tuple(c)

    def _attr(self, c: list[Any], first: int, last: int) -> t.Attr:
        return t.Attr(c[0].text, c[1] or (), span=self._span(first, last))

    def _use(self, c: list[Any], first: int, last: int) -> t.Use:
        path = c[0] if isinstance(c[0], str) else self._text(c[0])
        if isinstance(c[0], Token) and not path.endswith((".nn", ".npy")) and not path.startswith(t.PACKAGE):
            help = f'write `use "{path}.nn"`'
            title = "a path in quotes names a file that ends in `.nn` or `.npy`"
            self._error("E0106", title, Label(self._at(c[0]), ""), help)
        return t.Use(path, tuple(name.text for name in c[1:]), span=self._span(first, last))

    def _dotted(self, c: list[Any], first: int, last: int) -> str:
        if len(c) > 1 and c[-1].text == "nn":
            path = "/".join(name.text for name in c[:-1])
            help = f'write `use {".".join(n.text for n in c[:-1])}`, or `use "{path}.nn"`'
            self._error("E0106", "`use` names a file without its extension", Label(self._at(c[-1]), ""), help)
        return ".".join(name.text for name in c)

    def _const(self, c: list[Any], first: int, last: int) -> t.Const:
        return t.Const(c[0].text, c[1], span=self._span(first, last))

    def _dim(self, c: list[Any], first: int, last: int) -> t.DimDecl:
        name, bounds, default = c
        if bounds is not None and not isinstance(bounds, t.Range):
            ends = bounds.items if isinstance(bounds, (t.List, t.Tuple)) and len(bounds.items) == 2 else (bounds,)
            least = short(ends[0].span.text, "1") if len(ends) == 2 else "1"
            most = short(ends[-1].span.text, "512")
            usual = most if default is None else short(default.span.text, "64")
            help = f"write `dim {name.text} in {least}..{most} = {usual}`: both bounds, and the default"
            self._error("E0307", "the bounds of a dim are a range", Label(bounds.span, "not a range"), help)
            bounds = None
        return t.DimDecl(name.text, bounds, default, span=self._span(first, last))

    def _block(self, c: list[Any], first: int, last: int) -> t.Block:
        kind, name, params, results, body = c
        return t.Block(kind.text, name.text, params, results or (), body, span=self._span(first, last))

    def _params(self, c: list[Any], first: int, last: int) -> tuple[t.Param, ...]:
        return tuple(param for param in c if param is not None)

    def _param(self, c: list[Any], first: int, last: int) -> t.Param:
        return t.Param(c[0].text, c[1], c[2], span=self._span(first, last))

    def _results(self, c: list[Any], first: int, last: int) -> tuple[t.Result, ...]:
        return tuple(c)

    def _result(self, c: list[Any], first: int, last: int) -> t.Result:
        name = c[0].text if c[0] is not None else None
        return t.Result(name, self._as_tensor(c[1], "a result"), span=self._span(first, last))

    def _scalar(self, c: list[Any], first: int, last: int) -> t.ScalarTypeExpr:
        name = c[0].text
        if name not in SCALARS:
            span = self._at(c[0])
            near = _OTHER_SCALARS.get(name) or did_you_mean(name, SCALARS)
            dtype = name if name in INTEGERS else integer_for(name)
            if near is None and (dtype is not None or is_float_name(name)):
                help = f"a tensor's type has a shape: `{dtype or ''}[B]`; a scalar is int, float, bool, str or list"
            else:
                help = (
                    f"did you mean `{near}`?"
                    if near
                    else "write int, float, bool, str or list, or a shape such as [B, 10]"
                )
            self._error("E0202", f"`{name}` is not a type", Label(span, ""), help)
            name = "float"
        return t.ScalarTypeExpr(name, span=self._span(first, last))

    def _tensor(self, c: list[Any], first: int, last: int) -> t.TensorTypeExpr:
        dtype = c[0].text if c[0] is not None else None
        if dtype is not None and dtype not in DTYPES:
            self._error("E0202", f"`{dtype}` is not a dtype", Label(self._at(c[0]), ""), instead_of(dtype))
            dtype = None
        sizes = tuple(x for x in c[1:] if x is not None)
        rests = [size for size in sizes if isinstance(size, t.Rest)]
        for again in rests[1:]:
            self._error("E0001", "`...` stands once in a shape", Label(again.span, "again"), "leave this one out")
        return t.TensorTypeExpr(dtype, tuple(x for x in sizes if x not in rests[1:]), span=self._span(first, last))

    def _as_tensor(self, type: t.TypeExpr, what: str) -> t.TensorTypeExpr:
        if isinstance(type, t.TensorTypeExpr):
            return type
        help = "write its shape, such as [B, 10]; [] is a single number"
        if isinstance(type, t.ScalarTypeExpr) and type.name == "list" and what == "a result":
            help = "leave `-> list` out: a block that declares no result returns a list of any length"
        self._error("E0202", f"the type of {what} must be a tensor type", Label(type.span, "not a shape"), help)
        return t.TensorTypeExpr(None, (), span=type.span)

    def _section(self, c: list[Any], first: int, last: int) -> t.Section:
        kind, target, params, entries = c
        target_name = target.text if target is not None else None
        return t.Section(kind.text, target_name, params or (), entries, span=self._span(first, last))

    def _fields(self, c: list[Any], first: int, last: int) -> tuple[t.Entry, ...]:
        return tuple(entry for entry in c if entry is not None)

    def _entry(self, c: list[Any], first: int, last: int) -> t.Entry:
        return t.Entry(c[0], c[1], None, self._docs(first, first), span=self._span(first, last))

    def _group(self, c: list[Any], first: int, last: int) -> t.Entry:
        name, label, entries = c
        label_name = label.text if label is not None else None
        doc = self._docs(first, first)
        return t.Entry((name.text,), None, entries, doc, label_name, span=self._span(first, last))

    def _names(self, c: list[Any], first: int, last: int) -> tuple[str, ...]:
        return tuple(name.text for name in c)

    # --- statements -----------------------------------------------------------------------------------------

    def _body(self, c: list[Any], first: int, last: int) -> tuple[t.Stmt, ...]:
        return tuple(stmt for stmt in c if stmt is not None)

    def _assign(self, c: list[Any], first: int, last: int) -> t.Assign:
        return t.Assign(tuple(c[:-1]), c[-1], span=self._span(first, last))

    def _layer(self, c: list[Any], first: int, last: int) -> t.LayerStmt:
        return t.LayerStmt(c[0].text, c[1], span=self._span(first, last))

    def _weight(self, c: list[Any], first: int, last: int) -> t.ParamStmt:
        type = self._as_tensor(c[1], "a `param`")
        return t.ParamStmt(c[0].text, type, c[2], span=self._span(first, last))

    def _state(self, c: list[Any], first: int, last: int) -> t.StateStmt:
        type = self._as_tensor(c[1], "a `state`")
        return t.StateStmt(c[0].text, type, c[2], span=self._span(first, last))

    def _buffer(self, c: list[Any], first: int, last: int) -> t.BufferStmt:
        type = self._as_tensor(c[1], "a `buffer`")
        return t.BufferStmt(c[0].text, type, c[2], span=self._span(first, last))

    def _for(self, c: list[Any], first: int, last: int) -> t.For:
        names, values, label, body = c
        label_name = label.text if label is not None else None
        return t.For(names, values, label_name, body, span=self._span(first, last))

    def _loop_names(self, c: list[Any], first: int, last: int) -> tuple[str, ...]:
        return tuple(name.text for name in c)

    def _scan(self, c: list[Any], first: int, last: int) -> t.Scan:
        names, values, along, backward, carry, into, placed, body = c
        given = values.items if isinstance(values, t.Tuple) else (values,)
        return t.Scan(names, given, along, backward is not None, carry or (), into or (), placed, body,
                      span=self._span(first, last))  # fmt: skip

    def _backward(self, c: list[Any], first: int, last: int) -> bool:
        return True

    def _if(self, c: list[Any], first: int, last: int) -> t.If:
        condition, then, other = c
        if isinstance(other, t.If):
            other = (other,)
        return t.If(condition, then, other or (), span=self._span(first, last))

    def _return(self, c: list[Any], first: int, last: int) -> t.Return:
        return t.Return(c[0], span=self._span(first, last))

    def _yield(self, c: list[Any], first: int, last: int) -> t.Yield:
        return t.Yield(c[0], span=self._span(first, last))

    def _check(self, c: list[Any], first: int, last: int) -> t.Check:
        message = self._text(c[1]) if c[1] is not None else None
        return t.Check(c[0], message, span=self._span(first, last))

    def _label(self, c: list[Any], first: int, last: int) -> Token:
        label: Token = c[0]
        return label
