"""lstm, gru and rnn: recurrent layers, with PyTorch's formulas, parameters and initial values."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ops.recurrent.loop import Cell, Layers, Steps


class Lstm(Cell):
    """Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000; gates i, f, g, o."""

    gates, states = 4, 2

    def step(self, steps: Steps, x: Value, h: Value, states: Sequence[Value]) -> list[Value]:
        whole = steps("add", x, h)
        i, f, g, o = (steps.gate(whole, number) for number in range(4))
        kept = steps("mul", steps("sigmoid", f), states[1])
        c = steps("add", kept, steps("mul", steps("sigmoid", i), steps("tanh", g)))
        return [steps("mul", steps("sigmoid", o), steps("tanh", c)), c]


class Gru(Cell):
    """Cho et al. 2014, with the reset gate applied to the product, as cuDNN and PyTorch do; gates r, z, n."""

    gates, states = 3, 1

    def step(self, steps: Steps, x: Value, h: Value, states: Sequence[Value]) -> list[Value]:
        r, z = (steps("sigmoid", steps("add", steps.gate(x, n), steps.gate(h, n))) for n in range(2))
        new = steps("tanh", steps("add", steps.gate(x, 2), steps("mul", r, steps.gate(h, 2))))
        return [steps("add", new, steps("mul", z, steps("sub", states[0], new)))]


class Tanh(Cell):
    """Elman 1990."""

    gates, states = 1, 1

    def step(self, steps: Steps, x: Value, h: Value, states: Sequence[Value]) -> list[Value]:
        return [steps("tanh", steps("add", x, h))]


class LstmFunction(Function):
    """lstm(x, hidden, layers=1): a long short-term memory over the steps of ``x``: [B, T, D].

    Gives y: [B, T, hidden], and the last h and c, [layers, B, hidden] each. With ``bidirectional`` a second loop runs
    from the last step to the first: y is [B, T, 2*hidden], and the states are [2*layers, B, hidden]. ``dropout``
    applies to the results of each layer but the last. ``h``, ``c``: the first states, of the shapes of the last ones;
    by default zeros. ``lengths``, i32[B]: how many steps of each row count; beyond them y is 0 and the states stay.
    A length above T is T, a negative one 0.
    Parameters and formulas are PyTorch's: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_ih_l0_reverse and
    so on.

    given: x: [B, 8, 16]
    >>> y, h, c = lstm(x, 32)
    """

    name = "lstm"

    def build(
        self, call: Call, x: Value, hidden: int, *, layers: int = 1, bidirectional: bool = False, dropout: float = 0.0,
        bias: bool = True, h: Value | None = None, c: Value | None = None, lengths: Value | None = None,
    ) -> tuple[Value, ...]:  # fmt: skip
        return Layers("lstm", Lstm(), hidden, layers, bidirectional, dropout, bias).build(call, x, [h, c], lengths)


class GruFunction(Function):
    """gru(x, hidden, layers=1): a gated recurrent unit over the steps of ``x``: [B, T, D].

    Gives y: [B, T, hidden], and the last h: [layers, B, hidden]. The arguments are those of [`lstm`](#lstm), without
    ``c``; parameters and formulas are PyTorch's.

    given: x: [B, 8, 16]
    >>> y, h = gru(x, 32)
    """

    name = "gru"

    def build(
        self, call: Call, x: Value, hidden: int, *, layers: int = 1, bidirectional: bool = False, dropout: float = 0.0,
        bias: bool = True, h: Value | None = None, lengths: Value | None = None,
    ) -> tuple[Value, ...]:  # fmt: skip
        return Layers("gru", Gru(), hidden, layers, bidirectional, dropout, bias).build(call, x, [h], lengths)


class RnnFunction(Function):
    """rnn(x, hidden, layers=1): ``h = tanh(W x + b + V h + d)`` over the steps of ``x``: [B, T, D].

    Gives y: [B, T, hidden], and the last h: [layers, B, hidden]. The arguments are those of [`lstm`](#lstm), without
    ``c``; parameters are PyTorch's.

    given: x: [B, 8, 16]
    >>> y, h = rnn(x, 32)
    """

    name = "rnn"

    def build(
        self, call: Call, x: Value, hidden: int, *, layers: int = 1, bidirectional: bool = False, dropout: float = 0.0,
        bias: bool = True, h: Value | None = None, lengths: Value | None = None,
    ) -> tuple[Value, ...]:  # fmt: skip
        return Layers("rnn", Tanh(), hidden, layers, bidirectional, dropout, bias).build(call, x, [h], lengths)


for each in (LstmFunction(), GruFunction(), RnnFunction()):
    function(each)
