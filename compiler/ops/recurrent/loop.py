"""A recurrent layer as a loop over the steps of a sequence, with parameters named and shaped as PyTorch's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dslc.base.words import of_percentage
from dslc.compiler.ir.function import Call, Init
from dslc.compiler.ir.graph import Body, Graph, Input, Value, order
from dslc.compiler.ir.op import OPS, Mismatch
from dslc.compiler.ir.scan import new_input, scan
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import TensorType


class Cell(ABC):
    """A step: its states and gates. ``gates``: how many tensors [B, H] the products with the weights have."""

    gates: ClassVar[int]
    states: ClassVar[int]

    @abstractmethod
    def step(self, steps: Steps, x: Value, h: Value, states: Sequence[Value]) -> list[Value]:
        """The states after a step, h first. ``x``, ``h``: [B, gates * H], the products of the element and of the last h
        with their weights, and the biases."""


@dataclass(frozen=True)
class Steps:
    """Makes the nodes of a step."""

    call: Call
    hidden: int

    def __call__(self, name: str, *xs: Value, **attrs: Any) -> Value:
        return self.call.emit(OPS[name], *xs, **attrs)

    def gate(self, x: Value, number: int) -> Value:
        """The columns [B, H] of one gate."""
        low, high = number * self.hidden, (number + 1) * self.hidden
        return self("slice", x, starts=(0, low), stops=(x.type.shape[0], high), steps=(1, 1))


@dataclass(frozen=True)
class Layers:
    """The arguments of a recurrent layer. ``x``: [B, T, D]."""

    name: str
    cell: Cell
    hidden: int
    layers: int
    bidirectional: bool
    dropout: float
    bias: bool

    def build(self, call: Call, x: Value, first: Sequence[Value | None], lengths: Value | None) -> tuple[Value, ...]:
        """The results [B, T, H] of the last layer, of [B, T, 2*H] for both directions, and the last states [N, B, H] of
        all layers and directions."""
        self._check(x, lengths)
        batch, count, _ = x.type.shape
        directions = 2 if self.bidirectional else 1
        shape = (self.layers * directions, batch, self.hidden)
        for given in first:
            if given is not None and given.type != TensorType(x.type.dtype, shape):
                raise Mismatch(f"the first state of `{self.name}` is {list(map(str, shape))}, not {given.type}",
                               "its axes are layers and directions, batch, hidden", "E0302")  # fmt: skip
        inside = None if lengths is None else self._inside(call, lengths, batch, count)
        last: list[list[Value]] = [[] for _ in range(self.cell.states)]
        for layer in range(self.layers):
            if layer and self.dropout:
                drawn, attrs = call.random(f"dropout.{layer}", x.type.shape)
                x = call.emit(OPS["dropout"], x, *drawn, p=self.dropout, **attrs)
            ways = []
            for way in range(directions):
                states = [self._first(call, given, layer * directions + way, x) for given in first]
                y, ends = self._run(call, x, f"l{layer}" + ("_reverse" if way else ""), states, inside, way == 1)
                ways.append(y)
                for kept, end in zip(last, ends):
                    kept.append(call.emit(OPS["reshape"], end, shape=(1, *end.type.shape)))
            x = ways[0] if directions == 1 else call.emit(OPS["concat"], *ways, axis=2)
        ends = [kept[0] if len(kept) == 1 else call.emit(OPS["concat"], *kept, axis=0) for kept in last]
        return (x, *ends)

    def _check(self, x: Value, lengths: Value | None) -> None:
        if x.type.rank != 3 or not x.type.dtype.is_float:
            help = "batch, steps, features: `unsqueeze(x, 2)` adds an axis of size 1"
            raise Mismatch(f"`{self.name}` runs over [B, T, D], not {x.type}", help)
        for what, number in (("hidden", self.hidden), ("layers", self.layers)):
            if number < 1:
                raise Mismatch(f"`{self.name}` with {what}={number}", f"{what} is at least 1", "E0209")
        if not 0 <= self.dropout <= 1:
            help = of_percentage(self.dropout) or "it lies between 0 and 1"
            raise Mismatch(f"`{self.name}` with dropout={self.dropout:g}", help, "E0209")
        if lengths is not None and (not lengths.type.dtype.is_int or lengths.type.shape != x.type.shape[:1]):
            raise Mismatch(f"`lengths` is {lengths.type}", f"an integer for each row: i32[{x.type.shape[0]}]", "E0302")

    def _inside(self, call: Call, lengths: Value, batch: Size, count: Size) -> Value:
        """b1[T, B, 1]: whether a step lies inside of a row's length."""
        at = call.emit(OPS["arange"], start=0, step=1, shape=(count,))
        at = at if at.type.dtype is lengths.type.dtype else call.emit(OPS["cast"], at, dtype=lengths.type.dtype)
        at = call.emit(OPS["reshape"], at, shape=(count, 1, 1))
        return call.emit(OPS["lt"], at, call.emit(OPS["reshape"], lengths, shape=(1, batch, 1)))

    def _first(self, call: Call, given: Value | None, number: int, x: Value) -> Value:
        shape = (x.type.shape[0], self.hidden)
        if given is None:
            return call.full(0.0, x.type.dtype, shape)
        starts, stops = (number, 0, 0), (number + 1, *given.type.shape[1:])
        found = call.emit(OPS["slice"], given, starts=starts, stops=stops, steps=(1, 1, 1))
        return call.emit(OPS["reshape"], found, shape=shape)

    def _run(
        self, call: Call, x: Value, suffix: str, first: Sequence[Value], inside: Value | None, reverse: bool
    ) -> tuple[Value, Sequence[Value]]:
        """One layer in one direction: its results [B, T, H], and its last states [B, H]."""
        batch, count, features = x.type.shape
        width, start = self.cell.gates * self.hidden, Init("uniform", (-(self.hidden**-0.5), self.hidden**-0.5))
        weights = [call.param(f"weight_{side}_{suffix}", (width, size), start)
                   for side, size in (("ih", features), ("hh", self.hidden))]  # fmt: skip
        biases = [call.param(f"bias_{side}_{suffix}", (width,), start) for side in ("ih", "hh")] if self.bias else []
        rows = call.emit(OPS["transpose"], x, perm=(1, 0, 2))
        rows = call.emit(OPS["reshape"], rows, shape=(count * batch, features))
        rows = call.emit(OPS["matmul"], rows, weights[0], transpose_a=False, transpose_b=True)
        if biases:
            rows = call.emit(OPS["add"], rows, biases[0])
        sequences = [call.emit(OPS["reshape"], rows, shape=(count, batch, width))]
        sequences += [] if inside is None else [inside]
        captured = [weights[1], *biases[1:]]
        consts = [new_input("const", i, v.type) for i, v in enumerate(captured)]
        carries = [new_input("carry", i, v.type) for i, v in enumerate(first)]
        elements = [new_input("x", i, TensorType(v.type.dtype, v.type.shape[1:])) for i, v in enumerate(sequences)]
        y, after = self._step(call, consts, carries, elements)
        nodes = order([y, *after])
        graph = Graph((*consts, *carries, *elements), nodes, {"y.0": y}, tuple(zip(carries, after)))
        *last, results = call.emit_all(
            scan, *captured, *first, *sequences, loop=Body(graph), consts=len(consts), count=count, reverse=reverse
        )
        return call.emit(OPS["transpose"], results, perm=(1, 0, 2)), last

    def _step(
        self, call: Call, consts: Sequence[Input], carries: Sequence[Input], elements: Sequence[Input]
    ) -> tuple[Value, list[Value]]:
        steps, states = Steps(call, self.hidden), [c.value for c in carries]
        h = steps("matmul", states[0], consts[0].value, transpose_a=False, transpose_b=True)
        if self.bias:
            h = steps("add", h, consts[1].value)
        after = self.cell.step(steps, elements[0].value, h, states)
        y = after[0]
        if len(elements) > 1:  # beyond its end a row gives 0 and keeps its states
            inside = elements[1].value
            y = steps("where", inside, y, call.full(0.0, y.type.dtype))
            after = [steps("where", inside, new, old) for new, old in zip(after, states)]
        return y, after
