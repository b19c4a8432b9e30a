"""One update of a training step: its loss, its optimizer, and the parameters that it trains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dslc.compiler.check.frame import Frame
from dslc.compiler.check.reports import Reports
from dslc.compiler.check.training.optimizer import read_optimizer
from dslc.compiler.check.values import Poison, Poisoned, Problem, kind_of
from dslc.compiler.ir.function import Optimizer
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.types import DType
from dslc.dsl import syntax
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


@dataclass
class Update:
    """``name``: of a step, empty for the only update of a section. ``patterns``: of the names of the parameters that a
    step trains. ``trained``: these names, without frozen ones and those that the loss does not reach; set by
    ``gradients.py``. ``optimizer_args``: all arguments by name."""

    name: str = ""
    loss: Value | None = None
    optimizer: Optimizer | None = None
    optimizer_args: dict[str, Any] = field(default_factory=dict)
    patterns: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()
    place: Span | None = None
    loss_span: Span | None = None
    optimizer_span: Span | None = None
    patterns_span: Span | None = None

    def require(self, where: str, reports: Reports) -> None:
        """E0501 without a loss, E0503 without an optimizer. ``where``: what should have them."""
        assert self.place is not None
        if self.loss_span is None:
            help = "loss = cross_entropy(output, label)"
            reports.add(Problem("E0501", f"{where} has no loss", self.place, help=help))
        if self.optimizer_span is None:
            help = "optimizer = sgd(lr=0.1, momentum=0.9)"
            reports.add(Problem("E0503", f"{where} has no optimizer", self.place, help=help))


def read_update(entry: syntax.Entry, update: Update, frame: Frame, expander: Expander) -> None:
    """Reads an entry ``loss``, ``optimizer`` or ``params``."""
    assert entry.value is not None
    match entry.targets[0]:
        case "loss":
            update.loss_span = entry.value.span
            _loss(entry, update, frame, expander)
        case "optimizer":
            update.optimizer_span = entry.span
            update.optimizer, update.optimizer_args = read_optimizer(entry, frame, expander)
        case "params":
            update.patterns_span = entry.value.span
            update.patterns = _patterns(entry.value, frame, expander)
        case other:
            raise AssertionError(f"{other} is no entry of an update")


def _patterns(expr: syntax.Expr, frame: Frame, expander: Expander) -> tuple[str, ...]:
    value = expander.evaluate(expr, frame)
    if isinstance(value, Poison):
        raise Poisoned
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several or not all(isinstance(text, str) for text in several):
        raise Problem("E0510", f"`params` is a text or a list of texts, this is {kind_of(value)}", expr.span,
                      help='params = "critic" for all parameters of that layer')  # fmt: skip
    return tuple(str(text) for text in several)


def _loss(entry: syntax.Entry, update: Update, frame: Frame, expander: Expander) -> None:
    assert entry.value is not None
    value = tensor_of(entry.value, frame, expander, "the loss")
    if value.type.dtype is not DType.FLOAT:
        raise Problem("E0502", f"the loss is a float, this is {value.type}", entry.value.span, str(value.type))
    if value.type.rank == 1 and value.type.shape[0] == expander.batch:
        value = expander.emit(frame, entry.value.span, OPS["mean"], value, over=(0,), keep=False)
    if value.type.rank != 0:
        raise Problem(
            "E0502",
            f"the loss is a scalar or one value per row of the batch, this is {value.type}",
            entry.value.span,
            str(value.type),
            help="average it with `mean(...)`",
        )
    update.loss = value
    frame.locals["loss"] = value


def tensor_of(expr: syntax.Expr, frame: Frame, expander: Expander, what: str) -> Value:
    """The value of an expression, whose nodes belong to `train`. E0502 for ``what`` = the loss, E0504 for a metric, if
    it is no tensor."""
    outer = frame.node_prefix
    frame.node_prefix = "train"
    try:
        value = expander.evaluate(expr, frame)
    finally:
        frame.node_prefix = outer
    if isinstance(value, Poison):
        raise Poisoned
    if not isinstance(value, Value):
        code = "E0502" if what == "the loss" else "E0504"
        raise Problem(code, f"{what} is a tensor, this is {kind_of(value)}", expr.span, "does not depend on the data")
    return value
