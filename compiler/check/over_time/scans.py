"""The statement `scan`: runs its body once, on inputs that stand for the values of one step, and makes a loop of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dslc.compiler.check.calls.callgraph import walk
from dslc.compiler.check.calls.convert import named_axis
from dslc.compiler.check.calls.given import Given
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.lookup import lookup
from dslc.compiler.check.over_time.draws import drawn_before
from dslc.compiler.check.values import Poison, Poisoned, Problem, kind_of
from dslc.compiler.ir.graph import Body, Graph, Input, Node, Value, order
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.scan import new_input, scan
from dslc.compiler.ir.sizes import Poly
from dslc.compiler.ir.types import TensorType
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


def run_scan(stmt: syntax.Scan, frame: Frame, expander: Expander) -> None:
    """Binds the carried names and the results of ``into``. Raises Problem, and Poisoned if the body has errors."""
    sequences, axis = _sequences(stmt, frame, expander)
    first = [_carried(name, stmt, frame, expander) for name in stmt.carry]
    carries = [new_input("carry", i, value.type) for i, value in enumerate(first)]
    elements = [new_input("x", i, TensorType(v.type.dtype, v.type.shape[1:])) for i, v in enumerate(sequences)]
    inner = replace(
        frame, locals=dict(frame.locals), origins=dict(frame.origins), params=dict(frame.params), states={}, yields=[]
    )
    for name, source in zip((*stmt.names, *stmt.carry), (*elements, *carries)):
        expander.statements.bind(name, source.value, stmt.span, inner)
    with expander.tensors.in_body() as kept:
        yields, made = _run_body(stmt, frame, inner, expander)
    after = [_next(name, source, stmt, inner) for name, source in zip(stmt.carry, carries)]
    _check_hidden(stmt, frame, inner)
    count = sequences[0].type.shape[0]
    sources = list(kept.updates)  # buffers and states that a step updates: further carries
    after += kept.updates.values()
    drawn = drawn_before(made, [*yields, *after], len(elements), count, stmt.span, frame, expander)
    elements, sequences = [*elements, *drawn.elements], [*sequences, *drawn.sequences]
    yields, after = ([drawn.new.get(v, v) for v in values] for values in (yields, after))
    carries += [kept.first.get(source) or Input(source.name, source.kind, source.value.type) for source in sources]
    first += [expander.tensors.now(source) for source in sources]
    captured, graph, new = _body(drawn.made, elements, carries, yields, after)
    expander.tensors.replaced(drawn.new)
    expander.tensors.replaced(new)
    same = {source.value: expander.tensors.now(outside) for outside, source in kept.first.items()}
    captured = [same.get(value, value) for value in captured]
    node = expander.make(
        frame.node_prefix,
        stmt.span,
        scan,
        (*captured, *first, *sequences),
        {
            "loop": Body(graph),
            "consts": len(captured),
            "count": count,
            "reverse": stmt.reverse,
        },
        frame.groups,
    )
    results = iter(node.outputs)
    for name, value in zip(stmt.carry, results):
        expander.statements.bind(name, value, stmt.span, frame)
    for source, value in zip(sources, results):
        expander.tensors.set(source, value)
    for name, value, place in zip(stmt.into, results, _places(stmt, axis)):
        expander.statements.bind(name, _placed(value, place, stmt, frame, expander), stmt.span, frame)


def _sequences(stmt: syntax.Scan, frame: Frame, expander: Expander) -> tuple[list[Value], int]:
    """The tensors along which the loop runs, with its axis first, and the number of the axis in the first of them."""
    if len(stmt.names) != len(stmt.values):
        title = f"{len(stmt.names)} names in `scan` for {len(stmt.values)} tensors"
        raise Problem("E0208", title, stmt.span, "each tensor has a name for its element")
    names = (*stmt.names, *stmt.carry, *stmt.into)
    again = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if again is not None:
        raise Problem("E0103", f"`{again}` occurs twice in this `scan`", stmt.span, "again here", help="rename one")
    found: list[Value] = []
    axes: list[int] = []
    for expr, along in zip(stmt.values, _each(stmt.along, len(stmt.values), "tensor")):
        value = expander.evaluate(expr, frame)
        if not isinstance(value, Value):
            title = f"`scan` runs along a tensor, this is {kind_of(value)}"
            raise Problem("E0202", title, expr.span, "not a tensor", help="`for` runs over lists and ranges")
        axes.append(_axis(along, expr, value, frame, expander))
        size, wanted = value.type.shape[axes[-1]], found[0].type.shape[0] if found else value.type.shape[axes[-1]]
        if size != wanted:
            also = (Label(stmt.values[0].span, f"{wanted} steps"),)
            raise Problem("E0301", f"`scan` runs along axes of different sizes: {wanted} and {size}", expr.span,
                          f"{size} steps", also=also)  # fmt: skip
        found.append(_moved(value, axes[-1], expr, frame, expander))
    return found, axes[0]


def _each(along: syntax.Expr, wanted: int, what: str) -> Sequence[syntax.Expr]:
    """The axis of each tensor or result, as written: one for all, or a list."""
    if not isinstance(along, syntax.List):
        return [along] * wanted
    count = len(along.items)
    if count != wanted:
        title = f"{count} {'axis' if count == 1 else 'axes'} in `scan` for {wanted} {what}{'' if wanted == 1 else 's'}"
        help = f"write one axis for all, or one for each {what}"
        raise Problem("E0208", title, along.span, f"each {what} has an axis", help=help)
    return along.items


def _numbers(places: list[int]) -> str:
    """The help for a size that several axes have, or none."""
    shown = " or ".join(f"`along {axis}`" for axis in places[:3])
    return f"write the axis's number: {shown}" if places else "write the axis's number: `along 0` is the first"


def _axis(along: syntax.Expr, expr: syntax.Expr, value: Value, frame: Frame, expander: Expander) -> int:
    """The axis of a tensor that ``along`` names: a number, or a size that occurs once in its shape."""
    rank = value.type.rank
    declared = named_axis(along, Given(None, value, expr.span, expr), frame)
    if declared is not None:
        return declared
    size = expander.evaluate(along, frame)
    if isinstance(size, Poly) or (isinstance(along, syntax.Name) and _is_size(along.name, frame)):
        places = [axis for axis, each in enumerate(value.type.shape) if each == size]
        if len(places) != 1:
            title = f"the size {along.span.text} occurs {len(places)} times in {value.type}"
            raise Problem("E0306", title, along.span, "which axis is meant?", help=_numbers(places))
        return places[0]
    number = size
    if type(number) is not int:
        help = "write a number, such as `along 1`, or a size of the tensor's shape, or a list of these"
        raise Problem("E0202", f"an axis is an int, this is {kind_of(number)}", along.span, "not an axis", help=help)
    if not -rank <= number < rank:
        raise Problem("E0306", f"axis {number} of a tensor with {rank} axes", along.span, "does not exist")
    return number % rank


def _is_size(name: str, frame: Frame) -> bool:
    """Whether a name stands for a size: a dim of the signature, or a dim or constant of the file."""
    if name in frame.locals:
        return False
    return name in frame.dims or name in frame.scope.values or (frame.file_dims and name in frame.scope.dims)


def _moved(value: Value, axis: int, expr: syntax.Expr, frame: Frame, expander: Expander) -> Value:
    """The tensor with this axis first."""
    if axis == 0:
        return value
    perm = (axis, *(i for i in range(value.type.rank) if i != axis))
    return expander.emit(frame, expr.span, OPS["transpose"], value, perm=perm)


def _places(stmt: syntax.Scan, axis: int) -> Sequence[syntax.Expr | int]:
    """The axis of the steps in each result: as written after ``into``, else that of the first tensor."""
    return [axis] * len(stmt.into) if stmt.placed is None else _each(stmt.placed, len(stmt.into), "result")


def _placed(value: Value, place: syntax.Expr | int, stmt: syntax.Scan, frame: Frame, expander: Expander) -> Value:
    """A sequence of results with its first axis at the number ``place``."""
    rank = value.type.rank
    span = stmt.span if isinstance(place, int) else place.span
    axis = place if isinstance(place, int) else expander.evaluate(place, frame)
    size = isinstance(place, syntax.Name) and _is_size(place.name, frame)
    if type(axis) is not int or size:
        shown = f"the size `{span.text}`" if size else kind_of(axis)
        help = "write a number: `into y along 1`"
        raise Problem("E0202", f"the axis of a result is an int, this is {shown}", span, help=help)
    if not -rank <= axis < rank:
        shape = TensorType(value.type.dtype, value.type.shape[1:])
        help = f"choose the axis of the steps in the result, which has {rank} axes: `into y along 0`"
        raise Problem("E0306", f"`scan` along axis {axis} yields {shape}", span, "has too few axes", help=help)
    axis %= rank
    if axis == 0:
        return value
    perm = tuple(range(1, axis + 1)) + (0,) + tuple(range(axis + 1, rank))
    return expander.emit(frame, stmt.span, OPS["transpose"], value, perm=perm)


def _carried(name: str, stmt: syntax.Scan, frame: Frame, expander: Expander) -> Value:
    value = lookup(name, stmt.span, frame, expander.reports)
    if not isinstance(value, Value):
        help = f"give it its first value before: `{name} = zeros([...])`"
        raise Problem("E0202", f"`carry {name}` carries a tensor, this is {kind_of(value)}", stmt.span, help=help)
    return value


def _run_body(stmt: syntax.Scan, frame: Frame, inner: Frame, expander: Expander) -> tuple[list[Value], frozenset[Node]]:
    """Runs the statements of one step; returns what it yields, and all nodes that it made."""
    reports = len(expander.reports.errors)
    with expander.recorded() as made:
        returned = expander.statements.run(stmt.body, inner)
    if returned is not None and not isinstance(returned[0], Poison):
        raise Problem("E0207", "`return` inside `scan`", returned[1], "a loop always runs to its end")
    if len(expander.reports.errors) > reports or returned is not None:
        raise Poisoned
    assert inner.yields is not None
    yields = inner.yields[0] if inner.yields else []
    if yields is None:
        raise Poisoned
    if len(yields) != len(stmt.into):
        title = f"a step of `scan` yields {len(yields)} values, `into` names {len(stmt.into)}"
        help = "write both: `yield h` in its body, and `into y` after its carries"
        raise Problem("E0208", title, stmt.span, "these must agree", help=help)
    return yields, frozenset(made)


def run_yield(stmt: syntax.Yield, frame: Frame, expander: Expander) -> None:
    """Keeps the values that a step adds to the results of its loop."""
    if frame.yields is None:
        help = "a block gives its results by `return`; `yield` belongs directly into the body of a `scan`"
        raise Problem("E0207", "`yield` outside of a `scan`", stmt.span, "no loop", help=help)
    if frame.yields:
        raise Problem("E0207", "a step of `scan` yields once", stmt.span, "a second time",
                      help="yield all values together: `yield a, b`")  # fmt: skip
    frame.yields.append(None)
    value = expander.evaluate(stmt.value, frame)
    values = value if isinstance(value, tuple) else (value,)
    for each in values:
        if isinstance(each, Poison):
            raise Poisoned
        if not isinstance(each, Value):
            raise Problem("E0202", f"`yield` takes tensors, this is {kind_of(each)}", stmt.value.span, "not a tensor")
    frame.yields[0] = [each for each in values if isinstance(each, Value)]


def _next(name: str, source: Input, stmt: syntax.Scan, inner: Frame) -> Value:
    """The value that a step passes to the next one; E0302 if its type differs from that of the first value."""
    value = inner.locals[name]
    if isinstance(value, Poison):
        raise Poisoned
    if not isinstance(value, Value) or value.type != source.value.type:
        what = str(value.type) if isinstance(value, Value) else kind_of(value)
        help = f"let `{name}` have the type of the step's result before the loop, or change it in the body"
        title = f"`carry {name}` begins as {source.value.type}, but is {what} after a step"
        raise Problem("E0302", title, stmt.span, "each step must give the same type", help=help)
    return value


def _check_hidden(stmt: syntax.Scan, frame: Frame, inner: Frame) -> None:
    """E0112 for a name of the enclosing body that a step assigns without carrying it. What a ``for`` of the step counts
    with begins anew in each step."""
    own = {
        *stmt.carry,
        *stmt.names,
        *(n for each in walk(stmt.body) if isinstance(each, syntax.For) for n in each.names),
    }
    for name, value in frame.locals.items():
        if inner.locals.get(name) is not value and name not in own:
            title = f"the body of `scan` assigns `{name}`, which exists before the loop, and does not carry it"
            help = f"`carry {', '.join((*stmt.carry, name))}` passes it from step to step; or choose another name"
            place = next((each.span for each in walk(stmt.body) if _assigns(each, name)), stmt.span)
            raise Problem("E0112", title, place, "the next step would not see it", help=help)


def _assigns(tree: syntax.Tree, name: str) -> bool:
    """Whether a statement gives the name a value."""
    if not isinstance(tree, syntax.Assign):
        return False
    return any(isinstance(target, syntax.Name) and target.name == name for target in tree.targets)


def _body(
    made: Collection[Node],
    elements: Sequence[Input],
    carries: Sequence[Input],
    yields: Sequence[Value],
    after: Sequence[Value],
) -> tuple[list[Value], Graph, dict[Value, Value]]:
    """The values outside of the loop that its body reads; the body, with an input for each of them, and for the carries
    inputs that are named by their numbers; and the values of the body by those from which it is made."""
    roots = [*yields, *after]
    nodes = [node for node in order(roots) if node in made]
    inside = {source.value for source in (*elements, *carries)} | {v for node in nodes for v in node.outputs}
    read = [*(v for node in nodes for v in node.inputs), *roots]
    captured = [v for v in dict.fromkeys(read) if v not in inside]
    consts = [new_input("const", i, value.type) for i, value in enumerate(captured)]
    numbered = [new_input("carry", i, source.value.type) for i, source in enumerate(carries)]
    new = {old: source.value for old, source in zip(captured, consts)}
    new |= {old.value: source.value for old, source in zip(carries, numbered)}
    inner: list[Node] = []
    for node in nodes:
        inner.append(node.reading(new))
        new.update(zip(node.outputs, inner[-1].outputs))
    graph = Graph(
        (*consts, *numbered, *elements),
        tuple(inner),
        {f"y.{i}": new.get(value, value) for i, value in enumerate(yields)},
        tuple((source, new.get(value, value)) for source, value in zip(numbered, after)),
    )
    return captured, graph, new
