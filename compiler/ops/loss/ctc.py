"""ctc: connectionist temporal classification, the loss of a sequence without an alignment."""

from __future__ import annotations

import math

from dslc.compiler.ir.function import LOG_PROBS, Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.constants.constant import as_attr, full
from dslc.compiler.ops.constants.ranges import arange
from dslc.compiler.ops.elementwise.arithmetic import add, div
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.logic import eq, lt, ne
from dslc.compiler.ops.elementwise.selection import maximum, where
from dslc.compiler.ops.index.indexing import gather
from dslc.compiler.ops.loss.losses import reduced
from dslc.compiler.ops.loss.paths import path_loss
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.slicing import pad, piece
from dslc.compiler.ops.shape.views import reshape


class Ctc(Function):
    """ctc(log_probs, targets, input_lengths, target_lengths, blank=0, reduce="mean", zero_infinity=false): the loss
    of a label sequence whose alignment with the input is unknown.

    Connectionist temporal classification: minus the logarithm of the summed probability of all alignments of a
    target with a sequence (Graves et al. 2006).
    ``log_probs`` [B, T, C] are logarithms of probabilities, as ``log_softmax`` gives them, with the batch first;
    ``targets`` [B, L] are classes other than ``blank``, of which the first ``target_lengths`` [B] count. Of the T
    steps, the first ``input_lengths`` [B] count. The mean divides each loss by its target's length, at least 1, as in
    PyTorch.

    A target for which the sequence is too short has an infinite loss, or 0 with ``zero_infinity``; its gradient is 0.

    given: x: [B, 50, 28], t: i32[B, 12], n: i32[B], m: i32[B]
    >>> loss = ctc(log_softmax(x), t, n, m)
    """

    name = "ctc"
    takes = {"log_probs": LOG_PROBS}

    def build(
        self, call: Call, log_probs: Value, targets: Value, input_lengths: Value, target_lengths: Value,
        blank: int = 0, reduce: str = "mean", zero_infinity: bool = False,
    ) -> Value:  # fmt: skip
        _check(log_probs, targets, input_lengths, target_lengths, blank)
        lengths = call.emit(cast, target_lengths, dtype=DType.I32)
        states, skips = _states(call, targets, lengths, blank)
        rows, times, _ = log_probs.type.shape
        count = states.type.shape[1]
        index = call.emit(reshape, states, shape=(rows, 1, count))
        index = call.emit(expand, index, shape=(rows, times, count))
        scores = call.emit(gather, log_probs, index, axis=2)
        ends = call.emit(add, call.emit(add, lengths, lengths), call.full(1, DType.I32))
        loss = call.emit_all(path_loss, scores, skips, input_lengths, ends)[0]
        if zero_infinity:
            endless = call.emit(full, value=as_attr(math.inf), dtype=loss.type.dtype, shape=())
            lost = call.emit(eq, loss, endless)
            loss = call.emit(where, lost, call.full(0.0, loss.type.dtype), loss)
        if reduce == "mean":
            least = call.emit(maximum, lengths, call.full(1, DType.I32))
            loss = call.emit(div, loss, call.emit(cast, least, dtype=loss.type.dtype))
        return reduced(call, loss, reduce)


def _check(x: Value, targets: Value, times: Value, lengths: Value, blank: int) -> None:
    if x.type.rank != 3 or not x.type.dtype.is_float:
        raise Mismatch(f"`ctc` of {x.type}", "log_probs [batch, times, classes]", "E0203")
    classes = x.type.shape[2]
    if blank < 0 or (isinstance(classes, int) and blank >= classes):
        raise Mismatch(f"`blank` is {blank}", f"a class from 0 to {classes} - 1", "E0209")
    for name, value, shape in (
        ("targets", targets, (x.type.shape[0], *targets.type.shape[1:2])),
        ("input_lengths", times, x.type.shape[:1]),
        ("target_lengths", lengths, x.type.shape[:1]),
    ):
        if not value.type.dtype.is_int:
            raise Mismatch(f"`{name}` of `ctc` are {value.type}", "integers, such as `i32[B]`", "E0204")
        if value.type.shape != shape or value.type.rank != (2 if value is targets else 1):
            wanted = "[batch, length]" if value is targets else "one number for each row: [batch]"
            raise Mismatch(f"`{name}` of `ctc` are {value.type} for {x.type}", wanted, "E0302")


def _states(call: Call, targets: Value, lengths: Value, blank: int) -> tuple[Value, Value]:
    """The classes of the states, blank, t0, blank, t1, ..., blank, as i32 [B, 2 * L + 1], and which of them may follow
    the state two before: targets that differ from the target before. Targets that do not count are blanks."""
    rows, size = targets.type.shape
    places = call.emit(reshape, call.emit(arange, shape=(size,), start=0, step=1), shape=(1, size))
    counts = call.emit(lt, places, call.emit(reshape, lengths, shape=(rows, 1)))
    labels = call.emit(where, counts, call.emit(cast, targets, dtype=DType.I32), call.full(blank, DType.I32))
    none, one = (0, 0), (0, 1)
    before = call.emit(pad, labels, low=one, high=none, interior=none, value=float(blank))
    differs = call.emit(ne, labels, piece(call, before, 1, 0, size))
    classes = call.emit(pad, labels, low=one, high=one, interior=one, value=float(blank))
    return classes, call.emit(pad, differs, low=one, high=one, interior=one, value=0.0)


function(Ctc())
