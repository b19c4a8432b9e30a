"""The functions dropout, bernoulli, rand and randn."""

from __future__ import annotations

from dslc.compiler.ir.function import Call, Function, Shape, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.elementwise.arithmetic import require_kind
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.logic import lt
from dslc.compiler.ops.random.stochastic import dropout, rand, randn


class DropoutFunction(Function):
    """dropout(x, p=0.5): in training each element is 0 with probability ``p``, else divided by ``1 - p``; else ``x``.

    given: x: [B, 8]
    >>> x |> dropout(0.1)
    """

    name = "dropout"

    def build(self, call: Call, x: Value, p: float = 0.5) -> Value:
        inputs, attrs = call.random("dropout", x.type.shape)
        return call.emit(dropout, x, *inputs, p=p, **attrs)


class RandFunction(Function):
    """rand(shape): numbers uniform in [0, 1), new in each step.

    given: x: [B, 8]
    >>> x + rand([B, 8])
    """

    name = "rand"

    def build(self, call: Call, shape: Shape) -> Value:
        inputs, attrs = call.random("rand", shape)
        return call.emit(rand, *inputs, shape=shape, dtype=DType.FLOAT, **attrs)


class RandnFunction(Function):
    """randn(shape): standard normal numbers, new in each step.

    given: x: [B, 8]
    >>> x + 0.1 * randn([B, 8])
    """

    name = "randn"

    def build(self, call: Call, shape: Shape) -> Value:
        inputs, attrs = call.random("randn", shape)
        return call.emit(randn, *inputs, shape=shape, dtype=DType.FLOAT, **attrs)


class BernoulliFunction(Function):
    """bernoulli(p): 1 with the probability in each element of ``p``, else 0, as a float; new in each step.

    No gradient flows through it.

    given: x: [B, 8]
    >>> mask = x |> sigmoid |> bernoulli
    """

    name = "bernoulli"

    def build(self, call: Call, p: Value) -> Value:
        require_kind("bernoulli", p.type.dtype, "float")
        inputs, attrs = call.random("bernoulli", p.type.shape)
        drawn = call.emit(rand, *inputs, shape=p.type.shape, dtype=DType.FLOAT, **attrs)
        return call.emit(cast, call.emit(lt, drawn, p), dtype=DType.FLOAT)


function(DropoutFunction())

function(BernoulliFunction())

function(RandFunction())

function(RandnFunction())
