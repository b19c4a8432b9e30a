"""Random numbers in the body of a ``scan``: they are drawn for all steps before the loop, and each step reads its own.

The rows of the batch come first, the steps behind them, so that a draw depends on the row, the step of the loop and the
step of the training alone. A ``dropout`` in the body multiplies by its part of ``dropout`` of ones::

    scan xt in x along T into y { yield dropout(xt, 0.5) }    # xt: [B, D]

is, with the draws of the call in the body, ::

    kept = dropout(ones([B, T, D]), 0.5)
    scan xt, kt in x, kept along 1 into y { yield xt * kt }

where a dropped element is 0 whatever ``xt`` is there, and nothing is read or multiplied outside of training (the op
``dropped``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslc.compiler.check.frame import Frame
from dslc.compiler.ir.graph import Attr, Input, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import new_input
from dslc.compiler.ir.sizes import Poly, Size, exact_div, product
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


@dataclass(frozen=True)
class Drawn:
    """A body without draws: its nodes, the values for its roots, and further elements with their sequences outside."""

    made: set[Node]
    new: dict[Value, Value]
    elements: list[Input]
    sequences: list[Value]


def drawn_before(
    made: Collection[Node],
    roots: Sequence[Value],
    first: int,
    count: Size,
    span: Span,
    frame: Frame,
    expander: Expander,
) -> Drawn:
    """Takes the draws out of a body whose nodes are ``made``. ``first``: the number of the next element; ``count``: the
    steps of the loop."""
    found = Drawn({*made}, {}, [], [])
    new = found.new
    for node in order(roots):
        if node not in made:
            continue
        current = node.reading(new)
        if node.op.random:
            element = new_input("x", first + len(found.elements), node.out.type)
            found.elements.append(element)
            found.sequences.append(_whole(node, count, node.span or span, frame, expander))
            if node.op is not OPS["dropout"]:
                new[node.out] = element.value
                continue
            current = Builder().at(node).node(OPS["dropped"], current.inputs[0], element.value)
        new.update((old, value) for old, value in zip(node.outputs, current.outputs) if old is not value)
        found.made.add(current)
    return found


def _whole(node: Node, count: Size, span: Span, frame: Frame, expander: Expander) -> Value:
    """What a node draws in all steps, or for a dropout its factors: a sequence."""

    def emit(op: str, *inputs: Value, **attrs: Attr) -> Value:
        return expander.make(node.name, span, OPS[op], inputs, attrs, frame.groups).out

    type = node.out.type
    behind = node.attrs["row_elements"] != 0
    shape = (type.shape[0], count, *type.shape[1:]) if behind else (count, *type.shape)
    attrs: dict[str, Attr] = {**node.attrs, "row_elements": _row_elements(shape, expander.batch)}
    if node.op is OPS["dropout"]:
        ones = emit("full", value=1.0, dtype=type.dtype, shape=shape)
        whole = emit("dropout", ones, *node.inputs[1:], **attrs)
    else:
        whole = emit(node.op.name, *node.inputs, **{**attrs, "shape": shape})
    return emit("transpose", whole, perm=(1, 0, *range(2, len(shape)))) if behind else whole


def _row_elements(shape: tuple[Size, ...], batch: Size | None) -> Attr:
    """The elements of one row of the batch; 0 if axis 0 is not the batch."""
    if batch is None or not isinstance(shape[0], Poly):
        return 0
    return exact_div(product(shape), batch) or 0
