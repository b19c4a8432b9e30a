"""The names of a file: constants, dims, blocks and models, and the names imported by `use`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslc.compiler.check.values import BlockRef, Poison, Poisoned, Problem, Static, kind_of
from dslc.compiler.ir.function import Function
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Dim, Size, of_dim
from dslc.compiler.ops.constants.npy import numbers_of
from dslc.compiler.ops.packages.find import Package, Unusable, package
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label, did_you_mean
from dslc.dsl.load import Module, Table
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


@dataclass(eq=False)
class ModuleScope:
    """The names of one file. ``dims`` are visible only in models and train sections."""

    module: Module
    values: dict[str, Static] = field(default_factory=dict)
    dims: dict[str, Dim | int] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)
    packages: list[Package] = field(default_factory=list)

    @property
    def models(self) -> dict[str, BlockRef]:
        """The models declared in this file, in order."""
        return {
            name: value
            for name, value in self.values.items()
            if isinstance(value, BlockRef) and value.block.kind == "model" and value.scope is self
        }

    def dim(self, name: str) -> Size | None:
        found = self.dims.get(name)
        return of_dim(found) if isinstance(found, Dim) else found

    def declare(self, name: str, value: Static | Dim, span: Span) -> None:
        """Adds a name; E0103 if it exists. A block hides the built-in function of its name, so that a later version's
        functions break no file."""
        if name in self.places:
            raise Problem(
                "E0103",
                f"`{name}` is declared twice",
                span,
                "again here",
                also=(Label(self.places[name], "first here"),),
                help="rename one of them",
            )
        self.places[name] = span
        if isinstance(value, Dim):
            self.dims[name] = value
        else:
            self.values[name] = value


def name_span(item: syntax.Tree, name: str) -> Span:
    """The place of the first occurrence of ``name`` in an item; without one, the start of the item."""
    text = item.span.text
    found = re.search(rf"\b{re.escape(name)}\b", text)
    start = item.span.start + (found.start() if found else 0)
    return Span(item.span.source, start, start + len(name))


def build_scope(module: Module, expander: Expander, done: dict[Module, ModuleScope]) -> ModuleScope:
    """The scope of a file, after those of its `use` statements. Problems are reported; their names are poisoned."""
    known = done.get(module)
    if known is not None:
        return known
    scope = ModuleScope(module)
    done[module] = scope
    for use, used in module.uses:
        other = build_scope(used, expander, done)
        with expander.report():
            _use(scope, use, other)
    for use, table in module.tables:
        with expander.report():
            _use_table(scope, use, table, expander)
    for item in module.file.items:
        if isinstance(item, syntax.Use) and item.path.startswith(syntax.PACKAGE):
            with expander.report():
                _use_package(scope, item)
    for item in module.file.items:
        name = getattr(item, "name", None)
        with expander.report():
            match item:
                case syntax.Block():
                    scope.declare(item.name, BlockRef(item, scope), name_span(item, item.name))
                case syntax.Const():
                    value: Static = Poison()
                    with expander.report():
                        value = expander.static(item.value, scope)
                    scope.declare(item.name, value, name_span(item, item.name))
                case syntax.DimDecl():
                    _declare_dim(scope, item, expander)
        if name is not None and name not in scope.dims:
            scope.values.setdefault(name, Poison())
    return scope


def _use(scope: ModuleScope, use: syntax.Use, other: ModuleScope) -> None:
    values = {n: v for n, v in other.values.items() if not isinstance(v, Function)}  # a package's: in its file only
    own = {n: v for n, v in values.items() if not isinstance(v, BlockRef) or v.scope is other}
    for name in use.names or own:
        if name not in own:
            near = did_you_mean(name, own)
            raise Problem(
                "E0102",
                f"`{use.path}` declares no `{name}`",
                name_span(use, name),
                "not there",
                help=f"did you mean `{near}`?" if near else "only blocks, models and constants can be used",
            )
        scope.declare(name, own[name], name_span(use, name) if use.names else use.span)


def _use_table(scope: ModuleScope, use: syntax.Use, table: Table, expander: Expander) -> None:
    """Declares the tensor of a file of numbers."""
    name = use.table_name
    scope.values.setdefault(name, Poison())
    try:
        numbers, dtype = numbers_of(table.path, table.data)
    except Mismatch as wrong:
        raise Problem(wrong.code, wrong.why, use.span, help=wrong.help) from wrong
    value = expander.tensors.constant(os.path.basename(use.path), numbers, dtype, use.span)
    scope.declare(name, value, name_span(use, name))


def _use_package(scope: ModuleScope, use: syntax.Use) -> None:
    """Declares functions of an installed package, in this file only; each hides the built-in function of its name."""
    for name in use.names:
        scope.values.setdefault(name, Poison())
    try:
        found = package(use.path.removeprefix(syntax.PACKAGE))
    except Unusable as error:
        title = f"the ops of `{use.path}` cannot be used"
        raise Problem("E0115", title, use.span, str(error), help=error.help) from error
    scope.packages.append(found)
    for name in use.names or found.functions:
        if name not in found.functions:
            near = did_you_mean(name, found.functions)
            help = f"did you mean `{near}`?" if near else f"it has {', '.join(sorted(found.functions))[:200]}"
            raise Problem("E0102", f"`{use.path}` has no `{name}`", name_span(use, name), "not there", help=help)
        scope.declare(name, found.functions[name], name_span(use, name) if use.names else use.span)


def _declare_dim(scope: ModuleScope, item: syntax.DimDecl, expander: Expander) -> None:
    span = name_span(item, item.name)
    default = None if item.default is None else _positive(expander.static(item.default, scope), item.default.span)
    if item.bounds is None:
        if default is None:
            raise Problem("E0307", f"dim `{item.name}` has no value", span, help=f"dim {item.name} in 1..512 = 64")
        scope.declare(item.name, default, span)
        scope.dims[item.name] = default
        del scope.values[item.name]
        return
    low = _positive(expander.static(item.bounds.low, scope), item.bounds.low.span)
    high = _positive(expander.static(item.bounds.high, scope), item.bounds.high.span)
    if default is None:
        raise Problem(
            "E0307",
            f"dim `{item.name}` has no default",
            span,
            help=f"dim {item.name} in {low}..{high} = {high}",
        )
    if not low <= default <= high:
        place = item.default.span if item.default is not None else span
        raise Problem("E0304", f"{default} is not in {low}..{high}", place, "the default must lie in the bounds")
    scope.declare(item.name, Dim(item.name, low, high, default), span)


def _positive(value: Static, span: Span) -> int:
    if isinstance(value, Poison):
        raise Poisoned
    if type(value) is not int:
        help = "write `dim B in 1..64 = 8` with bounds and a default, or `dim T = 35` for a fixed size"
        raise Problem("E0202", f"a dim is an int, this is {kind_of(value)}", span, "not an int", help=help)
    if value < 1:
        raise Problem("E0304", "a dim is at least 1", span, f"is {value}")
    return value
