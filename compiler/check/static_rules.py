"""Rules on the text alone; they apply to every block of every file, whether a model reaches it or not.

Attributes must have an effect, no statement may follow a `return`, a signature must not repeat a name, and every name
that a body reads must be bound somewhere. Names are resolved without regard to order. The expander follows the order
and has more precise messages, so its reports come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from dslc.compiler.check.arithmetic import STATIC_FUNCTIONS
from dslc.compiler.check.calls.callgraph import called_name, walk
from dslc.compiler.check.calls.calls import not_callable, unknown_function
from dslc.compiler.check.scope import ModuleScope, name_span
from dslc.compiler.check.training.section import RESERVED
from dslc.compiler.check.values import NAMED_NUMBERS, Problem, added_axis, declare_hint, label_hint
from dslc.compiler.ir.function import FUNCTIONS, OPTIMIZERS
from dslc.compiler.ops.random.init import INITIALISERS
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label, did_you_mean
from dslc.dsl.other_calls import PREFIXES, adds_axis, prefix_of
from dslc.dsl.other_names import begins_like, function_hint, word_hint

if TYPE_CHECKING:
    from dslc.compiler.check.reports import Reports

_NAMED: Final[dict[type[syntax.Tree], str]] = {
    syntax.Use: "`use`", syntax.Const: "a constant", syntax.DimDecl: "a dim", syntax.Section: "a section",
    syntax.Check: "`check`", syntax.StateStmt: "`state`", syntax.BufferStmt: "`buffer`", syntax.Yield: "`yield`",
}  # fmt: skip


def check_placement(scope: ModuleScope, reports: Reports) -> None:
    """E0210 for attributes without effect, E0207 for unreachable statements, E0103 for repeated names in signatures."""
    for item in scope.module.file.items:
        _check_attrs(item.attrs, item, reports)
        if not isinstance(item, syntax.Block):
            continue
        _check_signature(item, reports)
        _check_reached(item.body, reports)
        for tree in walk(item.body):
            if isinstance(tree, syntax.Stmt):
                _check_attrs(tree.attrs, tree, reports)
            if isinstance(tree, (syntax.For, syntax.Scan)):
                _check_reached(tree.body, reports)
            elif isinstance(tree, syntax.If):
                _check_reached(tree.then, reports)
                _check_reached(tree.other, reports)


def _check_attrs(attrs: tuple[syntax.Attr, ...], tree: syntax.Tree, reports: Reports) -> None:
    what = _NAMED.get(type(tree))
    if attrs and what is not None:
        title = f"`@{attrs[0].name}` has no effect on {what}"
        help = "attributes belong before a block, a model, a statement that calls or declares, or a stage of a pipe"
        reports.add(Problem("E0210", title, attrs[0].span, "does not belong here", help=help))


def _check_signature(block: syntax.Block, reports: Reports) -> None:
    for kind, declared in (("argument", block.params), ("result", block.results)):
        seen: dict[str, syntax.Param | syntax.Result] = {}
        for item in declared:
            if item.name is None:
                continue
            first = seen.setdefault(item.name, item)
            if first is not item:
                also = (Label(name_span(first, item.name), "first here"),)
                title = f"`{block.name}` has two {kind}s of the name `{item.name}`"
                reports.add(Problem("E0103", title, name_span(item, item.name), "again here", also=also,
                                    help="rename one of them"))  # fmt: skip


def _check_reached(body: tuple[syntax.Stmt, ...], reports: Reports) -> None:
    for stmt, following in pairwise(body):
        if _returns(stmt):
            also = (
                Label(stmt.span, "returns here" if isinstance(stmt, syntax.Return) else "returns in both branches"),
            )
            title = "statements after a `return` are never reached"
            reports.add(Problem("E0207", title, following.span, "never reached", also=also, help="remove it"))
            return


def _returns(stmt: syntax.Stmt) -> bool:
    """True if a statement returns in every branch. The parser bounds the nesting."""
    if isinstance(stmt, syntax.If):
        return all(branch and _returns(branch[-1]) for branch in (stmt.then, stmt.other))
    return isinstance(stmt, syntax.Return)


def check_names(scope: ModuleScope, reports: Reports) -> None:
    """E0101 and E0102 for undeclared names, also in blocks that no model calls and in branches that are never taken."""
    for item in scope.module.file.items:
        if isinstance(item, syntax.Block):
            _check_block_names(item, scope, reports)


def _check_block_names(block: syntax.Block, scope: ModuleScope, reports: Reports) -> None:
    bound = set(_bound(block))
    known = {
        *bound,
        *scope.values,
        *scope.dims,
        *FUNCTIONS,
        *INITIALISERS,
        *OPTIMIZERS,
        *STATIC_FUNCTIONS,
        "len",
        *NAMED_NUMBERS,
    }
    words = {id(tree) for attr in walk(block.body) if isinstance(attr, syntax.Attr) for tree in walk(attr.args)}
    for tree in walk(block.body):
        callee = called_name(tree)
        if callee is not None and callee.name not in known:
            near = did_you_mean(callee.name, [*FUNCTIONS, *(n for n in scope.values if n not in scope.models)])
            words.add(id(callee))
            args = tree.args if isinstance(tree, syntax.Call) else ()
            reports.add(unknown_function(callee.name, callee.span, near, args))
        called = _called_field(tree)
        if called is not None and prefix_of(called[0]) in PREFIXES - known:  # `F.relu(x)`: one error for both names
            words.update(id(each) for each in walk((called[0],)))
            reports.add(not_callable(*called))
        if isinstance(tree, syntax.Index):
            added = [item for item in tree.items if adds_axis(item)]
            words.update(id(each) for each in walk(tuple(added)))
            if added:
                reports.add(added_axis(tree, added[0].span))
    labels = {tree.label for tree in walk(block.body) if isinstance(tree, (syntax.Call, syntax.Pipe))}
    for tree in walk(block.body):
        if isinstance(tree, syntax.Name) and tree.name not in known and id(tree) not in words:
            near = did_you_mean(tree.name, known)
            help = label_hint(tree.name) if tree.name in labels else word_hint(tree.name) or function_hint(tree.name)
            help = help or (f"did you mean `{near}`?" if near else None)
            help = help or begins_like(tree.name, INITIALISERS) or declare_hint(tree.name)
            reports.add(Problem("E0102", f"unknown name `{tree.name}`", tree.span, "not declared here", help=help))


def _called_field(tree: syntax.Tree) -> tuple[syntax.Field, tuple[syntax.Arg, ...]] | None:
    """``a.b`` of a call or a stage of a pipe, if it begins with a name; with the arguments."""
    match tree:
        case syntax.Call(function=syntax.Field() as called, args=args):
            pass
        case syntax.Pipe(stage=syntax.Field() as called):
            args = ()
        case _:
            return None
    return (called, args) if prefix_of(called) is not None else None


def _bound(block: syntax.Block) -> Iterator[str]:
    """Every name that a block's signature or one of its statements binds."""
    for param in block.params:
        yield param.name
        if isinstance(param.type, syntax.TensorTypeExpr):
            yield from (size.name for size in param.type.shape if isinstance(size, syntax.Name))
    for tree in walk(block.body):
        match tree:
            case syntax.Assign(targets=targets):
                yield from (target.name for target in targets if isinstance(target, syntax.Name))
            case (
                syntax.LayerStmt(name=name)
                | syntax.ParamStmt(name=name)
                | syntax.StateStmt(name=name)
                | syntax.BufferStmt(name=name)
            ):
                yield name
            case syntax.For(names=names) | syntax.Comprehension(names=names):
                yield from names
            case syntax.Scan(names=names, carry=carry, into=into):
                yield from (*names, *carry, *into)


def warn_unused(scope: ModuleScope, reports: Reports) -> None:
    """W014 for each declaration of a file that nothing in it reads, unless W008 tells of it. Names that begin with `_`
    may be unused. Only for the file that is checked: others `use` what a library declares."""
    items = scope.module.file.items
    of_item = [_read(item) for item in items]
    read = set().union(*of_item)
    for item, mine in zip(items, of_item):
        match item:
            case syntax.Const(name=name):
                _warn_unread(f"the constant `{name}` is never used", name, item, read, reports)
            case syntax.DimDecl(name=name):
                _warn_unread(f"the dim `{name}` is never used", name, item, read, reports)
            case syntax.Use(names=names):
                for name in names:
                    _warn_unread(f"the imported name `{name}` is never used", name, item, read, reports)
            case syntax.Block():
                if item.kind == "block":
                    _warn_unread(f"the block `{item.name}` is never used", item.name, item, read, reports)
                of_train = (
                    r for i, r in zip(items, of_item) if isinstance(i, syntax.Section) and i.target == item.name
                )
                _warn_unread_params(item.params, item.name, mine.union(*of_train), reports)
                _warn_unread_statements(item, mine, reports)
            case syntax.Section(kind="train"):
                _warn_unread_params(item.params, "train", mine, reports)
                _warn_unread_entries(item.entries, mine, reports)


def _read(item: syntax.Item) -> set[str]:
    """The names that an item reads; a name that it only assigns is none."""
    found: set[str] = set()
    assigned: set[int] = set()
    for tree in walk((item,)):
        if isinstance(tree, syntax.Assign):
            assigned |= {id(target) for target in tree.targets if isinstance(target, syntax.Name)}
        elif isinstance(tree, syntax.Scan):
            found |= {*tree.carry, *tree.into}
        elif isinstance(tree, (syntax.StateStmt, syntax.BufferStmt)):
            found.add(tree.name)  # the next step reads it
        elif isinstance(tree, syntax.Name) and id(tree) not in assigned:
            found.add(tree.name)
    return found


def _warn_unread(
    title: str, name: str, tree: syntax.Tree, read: set[str], reports: Reports, help: str = "use it, or remove it"
) -> None:
    if name not in read and not name.startswith("_") and not reports.warned("W008", tree.span):
        reports.warn("W014", title, name_span(tree, name), "not used", help=help)


def _warn_unread_params(params: tuple[syntax.Param, ...], owner: str, read: set[str], reports: Reports) -> None:
    for param in params:
        if isinstance(param.type, syntax.ScalarTypeExpr):
            _warn_unread(f"`{param.name}` of `{owner}` is never read", param.name, param, read, reports)


def _warn_unread_statements(block: syntax.Block, read: set[str], reports: Reports) -> None:
    for tree in walk(block.body):
        match tree:
            case syntax.LayerStmt(name=name):
                _warn_unread(
                    f"the layer `{name}` is never used",
                    name,
                    tree,
                    read,
                    reports,
                    f"call it, as in `x |> {name}`, or remove it",
                )
            case syntax.ParamStmt(name=name):
                _warn_unread(f"the parameter `{name}` is never used", name, tree, read, reports)
            case syntax.Assign(targets=(syntax.Name(name=name),)):
                _warn_unread(f"the variable `{name}` is never used", name, tree, read, reports)


def _warn_unread_entries(entries: tuple[syntax.Entry, ...], read: set[str], reports: Reports) -> None:
    for entry in entries:
        if entry.entries is not None and entry.targets == ("step",):
            _warn_unread_entries(entry.entries, read, reports)
        elif entry.entries is None and len(entry.targets) == 1 and entry.targets[0] not in (*RESERVED, "params"):
            name = entry.targets[0]
            if name not in read:  # else all settings would be looked through for a help that nobody sees
                _warn_unread(f"`{name}` of `train` is never read", name, entry, read, reports, _for_setting(name))


def _for_setting(name: str) -> str:
    """The help for an unread variable of `train`, which may be meant as a setting of dslc.yaml."""
    from dslc.runtime.config.fields import FIELDS
    from dslc.runtime.config.habits import key_hint

    if f"train.{name}" in {field.name for field in FIELDS}:
        return f"dslc.yaml sets it: `train: {{{name}: ...}}`"
    return key_hint(name) or "use it, or remove it"
