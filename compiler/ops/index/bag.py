"""embedding_bag: the sum, mean or maximum of the embeddings of each row's ids."""

from __future__ import annotations

from dslc.compiler.ir.function import Call, Function, Init, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import OPS, Mismatch
from dslc.compiler.ops.constants.constant import full
from dslc.compiler.ops.elementwise.arithmetic import div, mul
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.logic import ne
from dslc.compiler.ops.elementwise.selection import maximum, where
from dslc.compiler.ops.index.embedding import STANDARD, Embedding
from dslc.compiler.ops.reduction.reduce import sum_
from dslc.compiler.ops.shape.views import reshape


class EmbeddingBag(Function):
    """embedding_bag(ids, count, dim, mode="mean", weights=none, pad=none): the mean, sum or maximum
    of the embeddings of each row's ids.

    ``ids`` [..., L]; the result [..., dim] is the "mean", "sum" or "max" over the last axis of ``embedding(ids, count,
    dim, init)``. ``weights``, shaped as ``ids``, multiply the embeddings of a "sum". Ids equal to ``pad`` do not count;
    a row of such ids alone gives 0. Parameter ``weight`` [count, dim].

    given: t: i32[B, 4]
    >>> t |> embedding_bag(100, 8, mode="sum")
    """

    name = "embedding_bag"

    def build(
        self,
        call: Call,
        ids: Value,
        count: int,
        dim: int,
        mode: str = "mean",
        weights: Value | None = None,
        pad: int | None = None,
        init: Init = STANDARD,
    ) -> Value:
        if mode not in ("mean", "sum", "max"):
            raise Mismatch(f'`mode` is "{mode}"', 'one of "mean", "sum", "max"', "E0209")
        if not ids.type.rank:
            raise Mismatch("`embedding_bag` of one id", "give a row of ids, or use `embedding`", "E0306")
        if weights is not None and (mode != "sum" or weights.type.shape != ids.type.shape):
            why = f'`weights` {weights.type} of ids {ids.type} with mode "{mode}"'
            raise Mismatch(why, 'a weight for each id, with mode="sum"', "E0302")
        found, axis = Embedding().build(call, ids, count, dim, init), ids.type.rank - 1

        def spread(v: Value) -> Value:
            return call.emit(reshape, v, shape=(*v.type.shape, 1))

        if weights is not None:
            found = call.emit(mul, found, spread(weights))
        if pad is None:
            return call.emit(OPS[mode], found, over=(axis,), keep=False)
        counts = call.emit(ne, ids, call.full(pad, ids.type.dtype))
        known = call.emit(cast, counts, dtype=found.type.dtype)
        number = spread(call.emit(sum_, known, over=(axis,), keep=False))
        nothing = call.emit(full, value="-inf" if mode == "max" else 0.0, dtype=found.type.dtype, shape=())
        total = call.emit(
            OPS["max" if mode == "max" else "sum"],
            call.emit(where, spread(counts), found, nothing),
            over=(axis,),
            keep=False,
        )
        if mode == "max":
            zero = call.full(0.0, found.type.dtype)
            return call.emit(where, call.emit(ne, number, zero), total, zero)
        return total if mode == "sum" else call.emit(div, total, call.emit(maximum, *call.operands(number, 1.0)))


function(EmbeddingBag())
