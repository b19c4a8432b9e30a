"""Signatures: arguments bind a block's names and dims, results are compared with their declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dslc.compiler.check.arithmetic import is_static_function
from dslc.compiler.check.calls.arguments import unknown_argument
from dslc.compiler.check.calls.callgraph import walk
from dslc.compiler.check.calls.declared import as_it_is, as_tensor, declared_dtype, inferred, leaves
from dslc.compiler.check.calls.equal_sizes import to_equal
from dslc.compiler.check.calls.given import Given
from dslc.compiler.check.calls.meant import as_layer
from dslc.compiler.check.calls.open_shapes import axes, bind_rest, places_of, rest_of
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Problem, Static, kind_of
from dslc.compiler.ir.function import FUNCTIONS
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import Poly, Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.constants.known import number_or
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


def bind_block(block: syntax.Block, given: list[Given], span: Span, frame: Frame, expander: Expander) -> None:
    """Binds the arguments of a call to the block's names; E0201, E0202, E0302."""
    by_name = _match(block, given, span)
    shown: list[str] = []
    for param in block.params:
        arg = by_name.get(param.name)
        if arg is None:
            continue
        if isinstance(param.type, syntax.TensorTypeExpr):
            if not isinstance(arg.value, Value):
                raise Problem("E0202", f"`{param.name}` of `{block.name}` is a tensor, this is {kind_of(arg.value)}",
                              arg.span, "not a tensor", help=as_layer(block, given, span))  # fmt: skip
            frame.locals[param.name] = arg.value
            frame.params[param.name] = param
        else:
            help = _by_name(block, param) if isinstance(arg.value, Value) else None
            frame.locals[param.name] = static_argument(param, arg.value, arg.span, block.name, help)
            shown.append(f"{param.name}={_text(frame.locals[param.name])}")
    frame.title = f"{block.name}({', '.join(shown)})" if shown else block.name
    for param in block.params:
        if param.name not in by_name and param.default is not None:
            value = expander.evaluate(param.default, frame)
            frame.locals[param.name] = static_argument(param, value, param.default.span, block.name)
    _bind_dims(block, by_name, frame, expander)


def _match(block: syntax.Block, given: list[Given], span: Span) -> dict[str, Given]:
    names = [p.name for p in block.params]
    by_name: dict[str, Given] = {}
    position = 0
    for arg in given:
        if arg.name is None:
            if position >= len(names):
                takes = f"it takes {', '.join(names)}" if names else "it takes none"
                raise Problem("E0201", f"`{block.name}` gets too many arguments", arg.span, "one too many", help=takes)
            name = names[position]
            position += 1
        elif arg.name in names:
            name = arg.name
        else:
            raise unknown_argument(block.name, arg, names)
        if name in by_name:
            raise Problem("E0201", f"`{block.name}` gets `{name}` twice", arg.span, "again here")
        by_name[name] = arg
    missing = [p for p in block.params if p.name not in by_name and p.default is None]
    if missing:
        listed = " and ".join(f"`{p.name}`" for p in missing)
        raise Problem("E0201", f"`{block.name}` misses {listed}", span, "called here",
                      also=(Label(missing[0].span, "declared here"),), help=as_layer(block, given, span))  # fmt: skip
    return by_name


def _by_name(block: syntax.Block, param: syntax.Param) -> str | None:
    """The help if a tensor stands in the place of ``param``, as in a call of a layer that has given ``param`` already,
    and the block has tensors after it."""
    later = [p.name for p in block.params[block.params.index(param) :] if isinstance(p.type, syntax.TensorTypeExpr)]
    order = ", ".join(p.name for p in block.params)
    return f"the order is {order}: give what follows `{param.name}` by name, as `{later[0]}=...`" if later else None


def static_argument(param: syntax.Param, value: Static, span: Span, callee: str, help: str | None = None) -> Static:
    """A compile-time argument of the declared type; an int is accepted for a float."""
    assert isinstance(param.type, syntax.ScalarTypeExpr)
    want = param.type.name
    value = number_or(value) if want == "float" else value
    if want == "float" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    fits = {
        "int": isinstance(value, (int, Poly)) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "str": isinstance(value, str),
        "list": isinstance(value, (list, tuple)),
    }
    if isinstance(value, tuple) and want == "list":  # several results, such as those of `split`
        return list(value)
    if fits.get(want):
        return value
    code = "E0205" if isinstance(value, Value) else "E0202"
    title = f"`{param.name}` of `{callee}` is {_article(want)}, this is {kind_of(value)}"
    raise Problem(code, title, span, "does not fit", help=help)


def is_list(param: syntax.Param) -> bool:
    return isinstance(param.type, syntax.ScalarTypeExpr) and param.type.name == "list"


def refuse_list(param: syntax.Param, owner: str) -> None:
    """E0202 for a list among the arguments of a model or a train section, which are set from outside."""
    if is_list(param):
        raise Problem("E0202", f"`{param.name}` of `{owner}` is a list, and only blocks take lists", param.span,
                      "set from outside", help="write `const NAME = [...]`")  # fmt: skip


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _text(value: Static) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        short = len(value) <= 6 and all(isinstance(each, (bool, int, float, str)) for each in value)
        return f"[{', '.join(map(_text, value))}]" if short else f"[... {len(value)} in all]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def _bind_dims(block: syntax.Block, by_name: dict[str, Given], frame: Frame, expander: Expander) -> None:
    """Binds every size that is a bare name, in order; then computes and compares all other sizes."""
    found: dict[str, tuple[Size, str]] = {}
    for param in block.params:
        arg = by_name.get(param.name)
        if arg is None or not isinstance(param.type, syntax.TensorTypeExpr):
            continue
        assert isinstance(arg.value, Value)
        actual = arg.value.type
        _check_kind(param, param.type, arg, block)
        bind_rest(block, param, arg, actual, frame)
        for axis, expr in axes(param.type.shape, actual.rank):
            if isinstance(expr, syntax.Name) and _is_dim(expr.name, frame) and not inferred(expr):
                size = actual.shape[axis]
                known = found.setdefault(expr.name, (size, param.name))
                if known[0] != size:
                    raise Problem(
                        "E0302",
                        f"`{expr.name}` of `{block.name}` is {known[0]} by `{known[1]}`, but {size} by `{param.name}`",
                        arg.span,
                        str(actual),
                        also=(Label(by_name[known[1]].span, str(_type_of(by_name[known[1]]))),),
                        help=to_equal([(known[0], size)]),
                    )
    frame.dims.update({name: size for name, (size, _) in found.items()})
    for param in block.params:
        arg = by_name.get(param.name)
        if arg is None or not isinstance(param.type, syntax.TensorTypeExpr):
            continue
        actual = _type_of(arg)
        for axis, expr in axes(param.type.shape, actual.rank):
            if inferred(expr):
                continue
            _refuse_unbound(expr, frame)
            want = expander.evaluate.shape_size(expr, frame)
            if want != actual.shape[axis]:
                raise Problem(
                    "E0302",
                    f"`{param.name}` of `{block.name}` must have {want} in axis {axis}, it has {actual.shape[axis]}",
                    arg.span,
                    str(actual),
                    also=(Label(expr.span, f"`{expr.span.text}` is {want}"), *_captured(expr, frame)),
                    help=_CAPTURED if _captured(expr, frame) else None,
                )


def _refuse_unbound(expr: syntax.Expr, frame: Frame) -> None:
    """E0102 for a dim that stands only in an expression, as ``D`` in ``[B, 2*D]``."""
    for tree in walk((expr,)):
        if isinstance(tree, syntax.Name) and _is_dim(tree.name, frame) and tree.name not in frame.dims:
            if tree.name in frame.scope.dims or tree.name in FUNCTIONS or is_static_function(tree.name):
                continue
            why = f"a dim is bound where it stands alone, not by `{expr.span.text}`"
            help = f"name the whole size, such as `N`, and compute `{tree.name}` from it, such as `N/2`"
            raise Problem("E0102", f"no argument tells the dim `{tree.name}`", tree.span, why, help=help)


_CAPTURED: Final = "a dim of a block must not have the name of a constant of the file: rename one of them"


def _captured(expr: syntax.Expr, frame: Frame) -> tuple[Label, ...]:
    """The places of the file's constants that stand in a size of a signature."""
    names = dict.fromkeys(tree.name for tree in walk((expr,)) if isinstance(tree, syntax.Name))
    places = [frame.scope.places[n] for n in names if n not in frame.locals and n in frame.scope.values]
    return tuple(Label(place, "a constant of the file, so no dim") for place in places)


def _is_dim(name: str, frame: Frame) -> bool:
    """True for a dim: a bare name in a signature that is neither a compile-time argument nor a constant of the file."""
    return name not in frame.locals and name not in frame.scope.values


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _type_of(arg: Given) -> TensorType:
    assert isinstance(arg.value, Value)
    return arg.value.type


def _check_kind(param: syntax.Param, type: syntax.TensorTypeExpr, arg: Given, block: syntax.Block) -> None:
    actual = _type_of(arg)
    declared = declared_dtype(type, inside=block.kind == "block")
    if declared is not actual.dtype:
        what = "floats" if declared is DType.FLOAT else str(declared)
        title = f"`{param.name}` of `{block.name}` holds {what}, this is {actual}"
        help = "convert with `cast`"
        if declared is DType.FLOAT and actual.dtype.is_float:
            help = f'`cast(x, "float")`, or declare `{param.name}: {actual.dtype}[...]`'
        raise Problem("E0202", title, arg.span, str(actual), help=help)
    least = len(type.shape) if (whole := rest_of(type.shape) is None) else len(type.shape) - 1
    if actual.rank < least or (whole and actual.rank > least):
        raise Problem(
            "E0302",
            f"`{param.name}` of `{block.name}` has {'' if whole else 'at least '}{least} axes, this has {actual.rank}",
            arg.span,
            str(actual),
            also=(Label(type.span, "declared here"),),
        )


def check_results(block: syntax.Block, value: Static, place: Span, frame: Frame, expander: Expander) -> Static:
    """The results of a body after a check against their declarations: one value, or a tuple. A list is several; it
    stays a list if the block declares no results. Then results may be lists, too, which hold tensors or lists."""
    is_open = block.kind == "block" and not block.results
    listed = isinstance(value, list) and is_open
    several = listed or isinstance(value, tuple) or (isinstance(value, list) and len(block.results) > 1)
    values = [*value] if several and isinstance(value, (tuple, list)) else [value]
    for item in leaves(values) if is_open else values:
        if not isinstance(item, Value):
            title = f"`{block.name}` returns tensors, this is {kind_of(item)}"
            raise Problem("E0202", title, place, "not a tensor", help=as_tensor(item, place.text))
    if block.results:
        if len(values) != len(block.results):
            raise Problem(
                "E0208",
                f"`{block.name}` declares {count(len(block.results), 'result')} and returns {len(values)}",
                place,
                f"{len(values)} here",
                also=(Label(block.results[0].span, f"{len(block.results)} declared"),),
            )
        for result, item in zip(block.results, values):
            assert isinstance(item, Value)
            _check_result(block, result, item.type, place, frame, expander)
    if listed:
        return values
    return values[0] if len(values) == 1 else tuple(values)


def _wanted(place: syntax.Expr | Size, frame: Frame, expander: Expander) -> Size | None:
    """The size of a result that is declared, known, or to be inferred."""
    if not isinstance(place, syntax.Expr):
        return place
    return None if inferred(place) else expander.evaluate.shape_size(place, frame)


def _check_result(
    block: syntax.Block, result: syntax.Result, actual: TensorType, place: Span, frame: Frame, expander: Expander
) -> None:
    sizes = result.type.shape
    places = places_of(sizes, frame)
    for expr in sizes:
        if isinstance(expr, syntax.Name) and _is_dim(expr.name, frame) and expr.name not in frame.dims:
            if inferred(expr) or (frame.file_dims and expr.name in frame.scope.dims):
                continue
            raise Problem("E0307", f"dim `{expr.name}` of the result occurs in no argument", expr.span, "not known",
                          help=f"here the result is {actual}: write the size, or `_` to have it inferred")  # fmt: skip
    shape = tuple(_wanted(place, frame, expander) for place in places)
    dtype = declared_dtype(result.type, inside=block.kind == "block")
    differing = [p for p, want, size in zip(places, shape, actual.shape) if want is not None and want != size]
    if dtype is actual.dtype and len(shape) == actual.rank and not differing:
        return
    listed = ", ".join("_" if size is None else str(size) for size in shape)
    declared = f"[{listed}]" if dtype is DType.FLOAT else f"{dtype}[{listed}]"
    captured = tuple(each for p in differing if isinstance(p, syntax.Expr) for each in _captured(p, frame))
    name = f"result `{result.name}` of " if result.name else ""
    raise Problem(
        "E0302",
        f"{name}`{block.name}` is declared {declared}, but is {actual}",
        place,
        str(actual),
        also=(Label(result.type.span, f"declared {declared}"), *captured),
        help=_CAPTURED if captured else as_it_is(shape, actual, bool(differing)),
    )
