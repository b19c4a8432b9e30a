"""Warns of a loss that gets other numbers than it takes, such as `cross_entropy` of the result of `softmax` (W013).

What a tensor holds is derived from the op that computes it, through reshapes, slices, casts and the calls of blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dslc.compiler.check.calls.given import Given
from dslc.compiler.ir.function import LOG_PROBS, LOGITS, PROBS, Function
from dslc.compiler.ir.graph import Input, Kind, Node, Value
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander

#: What the results of ops are; a product gives numbers of any sign and size.
_GIVES: Final = {
    "softmax": PROBS,
    "sigmoid": PROBS,
    "log_softmax": LOG_PROBS,
    "logsigmoid": LOG_PROBS,
    "matmul": LOGITS,
    "conv": LOGITS,
    "conv_transpose": LOGITS,
}
_KEEP: Final = ("cast", "stop_gradient")  # ops that keep the numbers, as those that move elements do
_APPLY: Final = {"nll": "apply `log_softmax` first, or write `cross_entropy`, which includes it"}


def warn_scale(
    function: Function, arguments: dict[str, object], given: list[Given], span: Span, expander: Expander
) -> None:
    """W013 for each argument of a call that holds other numbers than the function takes."""
    for name, wanted in function.takes.items():
        value = arguments.get(name)
        found = _source(value) if isinstance(value, Value) else None
        if found is None or found[1] == wanted:
            continue
        node, holds = found
        by = expander.functions.get((node.name, node.span), node.op.name) if node.span is not None else node.op.name
        arg = next((g for g in given if g.value is value), None)
        what = f"`{arg.expr.name}`" if arg is not None and isinstance(arg.expr, syntax.Name) else "this"
        place = arg.span if arg is not None else span
        also = () if node.span is None or node.span == place else (Label(node.span, f"`{by}`"),)
        holds = "numbers of any size" if holds == LOGITS else holds
        title = f"`{function.name}` takes {wanted}, but {what} is the result of `{by}`"
        help = _help(function.name, wanted, found[1], by)
        first, second = (p.name for p in function.parameters[:2])
        if name == second:
            title = f"`{function.name}` takes a target of {wanted}, but {what} is the result of `{by}`"
            help += f"; the target comes second: `{function.name}({first}, {second})`"
        expander.reports.warn("W013", title, place, holds, help, also)


def _help(loss: str, wanted: str, holds: str, by: str) -> str:
    if holds == LOGITS:
        return (
            "apply `sigmoid` or `softmax` first" if wanted == PROBS else _APPLY.get(loss, "apply `log_softmax` first")
        )
    if wanted == LOG_PROBS:
        return f"write `log_softmax` instead of `{by}`"
    if wanted == PROBS:
        return f"write `softmax` or `sigmoid` instead of `{by}`"
    own = "`softmax`" if loss == "cross_entropy" else "`sigmoid`"
    nll = ", or write `nll`, which takes log-probabilities" if (loss, by) == ("cross_entropy", "log_softmax") else ""
    return f"give it what `{by}` gets, since `{loss}` applies {own} itself{nll}"


def _source(value: Value) -> tuple[Node, str] | None:
    """The op that computes a tensor's numbers, and what they are; None if that is not known."""
    node = value.producer
    while isinstance(node, Node) and (node.op.moves or node.op.name in _KEEP):
        if sum(x.type.dtype.is_float for x in node.inputs) != 1:
            return None
        node = next(x for x in node.inputs if x.type.dtype.is_float).producer
    if isinstance(node, Input):
        return None
    if node.op.name == "add":  # a bias, or a residual connection
        sources = [_source(x) for x in node.inputs if not _is_param(x)]
        return next((s for s in sources if s), None) if all(s and s[1] == LOGITS for s in sources) else None
    if node.op.name == "log":
        below = _source(node.inputs[0])
        return (node, LOG_PROBS) if below is not None and below[1] == PROBS else None
    holds = _GIVES.get(node.op.name)
    return None if holds is None else (node, holds)


def _is_param(value: Value) -> bool:
    node = value.producer
    while isinstance(node, Node) and node.op.moves and len(node.inputs) == 1:
        node = node.inputs[0].producer
    return isinstance(node, Input) and node.kind is Kind.PARAM
