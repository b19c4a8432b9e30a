"""States: ``state h: [2, B, H] = 0`` declares a tensor whose value lasts from one step to the next.

Reading the name gives the value from the step before, until an assignment to it, or to a part of it (``h[l] = ...``),
gives it a new one. The last of these is the value with which the next step begins. No gradient passes between steps.

Buffers: ``buffer mean: [D] = 0`` declares a tensor that training alone assigns. Evaluation reads what training left,
and its assignments do nothing. No gradient passes through an assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Poison, Poisoned, Problem, Static, kind_of
from dslc.compiler.ir.function import Init
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.dsl import syntax
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


def declare(stmt: syntax.StateStmt, init: Init, frame: Frame, expander: Expander) -> None:
    """Binds the name of a ``state`` to its value at this point of the step.

    E0202 for anything but one number, or for a number that the dtype lacks; E0104 for a name that is taken, E0305."""
    dtype = DType.FLOAT if stmt.type.dtype is None else DType(stmt.type.dtype)
    shape = tuple(expander.evaluate.shape_size(s, frame) for s in stmt.type.shape)
    if init.kind != "constant":
        help = "a state starts as one number: `= 0`"
        raise Problem("E0202", f"a state cannot start as `{init}`", stmt.init.span, "not one number", help=help)
    start = float(init.args[0])
    if not dtype.is_float:
        low, high = dtype.limits if dtype.is_int else (0, 1)
        if not (start.is_integer() and low <= start <= high and abs(start) <= 2**53):
            raise Problem("E0202", f"{start:g} is no {dtype}", stmt.init.span, f"the state is {dtype}")
    base = frame.names.base(stmt, stmt.name, stmt.span, label=True)
    path = frame.names.path(base, frame.suffix)
    value = expander.tensors.state(path, TensorType(dtype, shape), start, stmt.span)
    frame.states.pop(stmt.name, None)
    expander.statements.bind(stmt.name, value, stmt.span, frame)
    frame.states[stmt.name] = path


def declare_buffer(stmt: syntax.BufferStmt, init: Init, frame: Frame, expander: Expander) -> None:
    """Binds the name of a ``buffer`` to its value at this point of the step. E0202 for integers, E0104, E0307."""
    if stmt.type.dtype is not None:
        help = "write the shape alone; `cast` makes integers of it"
        raise Problem("E0202", "a buffer is a float tensor of the parameters' dtype", stmt.type.span, help=help)
    shape = tuple(expander.evaluate.shape_size(s, frame) for s in stmt.type.shape)
    base = frame.names.base(stmt, stmt.name, stmt.span, label=True)
    path = frame.names.path(base, frame.suffix)
    value = expander.tensors.buffer(path, shape, init, stmt.span)
    frame.states.pop(stmt.name, None)
    expander.statements.bind(stmt.name, value, stmt.span, frame)
    frame.states[stmt.name] = path


def assign(name: str, value: Static, span: Span, frame: Frame, expander: Expander) -> Static:
    """Records the new value of a state or buffer, and returns it; E0302, E0204 or E0202 for one of another type."""
    path = frame.states[name]
    if isinstance(value, Poison):
        raise Poisoned
    declared = expander.tensors.declared(path)
    what = "state" if path in expander.tensors.states else "buffer"
    if not isinstance(value, Value):
        help = "assign a tensor, such as `zeros(...)`; give other values another name"
        raise Problem(
            "E0202", f"the {what} `{name}` is {declared}, this is {kind_of(value)}", span, "no tensor", help=help
        )
    _require(name, declared, value.type, span, what)
    if what == "state":
        expander.tensors.update(path, value)
        return value
    new = expander.emit(frame, span, OPS["stop_gradient"], value)
    expander.tensors.update_in_training(path, new)
    return new


def put(target: syntax.Index, name: str, item: Static, frame: Frame, expander: Expander) -> Value:
    """The state's value with ``item`` at the ints and slices of ``target``. E0202, E0204, E0302, E0304."""
    if isinstance(item, Poison):
        raise Poisoned
    x = expander.evaluate(target.value, frame)
    assert isinstance(x, Value), f"the state {name} is a tensor"
    starts, stops, picked = _range(target, x, frame, expander)
    region = tuple(stop - start for start, stop in zip(starts, stops))
    wanted = TensorType(x.type.dtype, tuple(size for axis, size in enumerate(region) if axis not in picked))
    if not isinstance(item, Value):
        raise Problem("E0202", f"`{target.span.text}` is {wanted}, this is {kind_of(item)}", target.span, "no tensor")
    what = "state" if frame.states[name] in expander.tensors.states else "buffer"
    _require(target.span.text, wanted, item.type, target.span, what)

    def emit(op: str, *inputs: Value, **attrs: object) -> Value:
        return expander.emit(frame, target.span, OPS[op], *inputs, **attrs)  # type: ignore[arg-type]

    def rest(axis: int, first: Size, last: Size) -> list[Value]:
        """The state from ``first`` to ``last`` of an axis, within the range of the axes before it."""
        low = (*starts[:axis], first, *(0 for _ in x.type.shape[axis + 1 :]))
        high = (*stops[:axis], last, *x.type.shape[axis + 1 :])
        return [] if first == last else [emit("slice", x, starts=low, stops=high, steps=(1,) * x.type.rank)]

    y = emit("reshape", item, shape=region) if picked else item
    for axis in reversed(range(x.type.rank)):  # y covers all axes after this one as a whole
        parts = [*rest(axis, 0, starts[axis]), y, *rest(axis, stops[axis], x.type.shape[axis])]
        y = emit("concat", *parts, axis=axis) if len(parts) > 1 else y
    return y


def _range(
    target: syntax.Index, x: Value, frame: Frame, expander: Expander
) -> tuple[tuple[Size, ...], tuple[Size, ...], frozenset[int]]:
    taken = expander.indexing.range(target, x.type, frame)
    if taken.tensors:
        help = "`index_put(x, [i], new)` writes at positions that the model computes"
        raise Problem("E0202", "an assignment takes ints and slices as indices", target.span, "a tensor", help=help)
    if any(step != 1 for step in taken.steps):
        raise Problem("E0202", "an assignment takes slices without a step", target.span, "has a step")
    return taken.starts, taken.stops, taken.picked


def _require(name: str, wanted: TensorType, given: TensorType, span: Span, what: str) -> None:
    if wanted.dtype is not given.dtype:
        code = "E0204" if wanted.dtype.is_float != given.dtype.is_float else "E0202"
        raise Problem(code, f"`{name}` is {wanted}, the new value is {given}", span, "convert it with `cast`")
    if wanted.shape != given.shape:
        help = f"a {what} keeps its shape"
        raise Problem("E0302", f"`{name}` is {wanted}, the new value is {given}", span, "another shape", help=help)
