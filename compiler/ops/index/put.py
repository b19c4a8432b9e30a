"""The function index_put: writes to the elements that ``x[i, j]`` reads."""

from __future__ import annotations

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import product
from dslc.compiler.ops.elementwise.arithmetic import require_kind
from dslc.compiler.ops.index.scatter import scatter
from dslc.compiler.ops.index.take import joint
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.views import reshape


class IndexPut(Function):
    """index_put(x, index, src, mode="replace", include_self=true): ``x`` with ``src`` put in at ``x[i, j]``.

    ``index`` is a list of integer tensors, one for each of the first axes, which broadcast together as in ``x[i, j]``;
    ``src`` broadcasts to the shape of ``x[i, j]``. ``mode``, ``include_self`` and the gradients are those of
    ``scatter``. An index outside of its axis makes elements of x nan; in data it is refused.

    given: x: [B, 8, 4], i: i32[B, 2], j: i32[B, 2], y: [B, 2, 4]
    >>> index_put(x, [i, j], y, mode="add")
    """

    name = "index_put"

    def build(
        self, call: Call, x: Value, index: list[Value], src: Value, mode: str = "replace", include_self: bool = True
    ) -> Value:
        count, shape = len(index), x.type.shape
        if not 0 < count <= len(shape):
            why = f"`index_put` with {count} indices into {x.type}"
            raise Mismatch(why, "give one for each of the first axes", "E0209")
        for ids in index:
            require_kind(self.name, ids.type.dtype, "int")
        ids, rest = joint(call, index, shape[:count]), shape[count:]
        wanted = (*ids.type.shape, *rest)
        if src.type.shape != wanted:
            src = call.emit(expand, src, shape=wanted)
        rows = product(ids.type.shape)
        y = scatter.build(
            call,
            call.emit(reshape, x, shape=(product(shape[:count]), *rest)),
            call.emit(reshape, ids, shape=(rows,)),
            call.emit(reshape, src, shape=(rows, *rest)),
            0,
            mode,
            include_self,
        )
        return call.emit(reshape, y, shape=shape)


function(IndexPut())
