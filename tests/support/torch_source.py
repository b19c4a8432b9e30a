"""A program of the language, run statement by statement with PyTorch: loops are Python's, gradients are autograd's.

It reads the parser's tree alone, so what the checker, the graph and the passes make of a loop does not enter. It knows
the part of the language that ``random_loops.py`` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dslc.dsl import syntax
from dslc.dsl.parser import parse
from dslc.dsl.span import Source

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "tanh": torch.tanh,
    "sin": torch.sin,
    "sigmoid": torch.sigmoid,
    "where": torch.where,
    "softmax": lambda x: torch.softmax(x, -1),
    "mean": lambda x, over: torch.mean(x, over),
    "sum": lambda x, over: torch.sum(x, over),
    "stack": lambda xs, axis=0: torch.stack(xs, axis),
    "concat": lambda xs, axis: torch.cat(xs, axis),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "@": lambda a, b: a @ b,
    ">": lambda a, b: a > b,
}


@dataclass
class _Body:
    """Where statements run: ``names``: variables; ``layers``: the calls of layers; ``path``: of parameters."""

    path: str
    names: dict[str, Any]
    layers: dict[str, syntax.Call] = field(default_factory=dict)
    yielded: tuple[Any, ...] = ()


class TorchSource:
    """``weights``: the parameters by name, with their leaves' shapes."""

    def __init__(self, text: str, weights: Mapping[str, Any]) -> None:
        file = parse(Source("net.nn", text))
        self.weights = weights
        self.consts: dict[str, Any] = {}
        for item in file.items:
            if isinstance(item, syntax.Const):
                self.consts[item.name] = self._value(item.value, _Body("", {}))
        self.blocks = {item.name: item for item in file.items if isinstance(item, syntax.Block)}

    def __call__(self, model: str, **inputs: Any) -> Any:
        """What the model returns: one value."""
        return self._run_block(self.blocks[model], "", [inputs[p.name] for p in self.blocks[model].params])

    def _run_block(self, block: syntax.Block, path: str, given: Sequence[Any]) -> Any:
        return self._run(block.body, _Body(path, dict(zip((p.name for p in block.params), given, strict=True))))

    def _run(self, statements: Sequence[syntax.Stmt], body: _Body) -> Any:
        for each in statements:
            match each:
                case syntax.ParamStmt(name=name):
                    body.names[name] = self.weights[body.path + name]
                case syntax.LayerStmt(name=name, value=syntax.Call() as call):
                    body.layers[name] = call
                case syntax.Assign(targets=(syntax.Name(name),), value=value):
                    body.names[name] = self._value(value, body)
                case syntax.For(names=(name,), values=syntax.Range(low, high), body=inner):
                    for i in range(self._value(low, body), self._value(high, body)):
                        body.names[name] = i
                        self._run(inner, body)
                case syntax.Scan():
                    self._scan(each, body)
                case syntax.Yield(value=syntax.Tuple(items)):
                    body.yielded = tuple(self._value(item, body) for item in items)
                case syntax.Yield(value=value):
                    body.yielded = (self._value(value, body),)
                case syntax.Return(value=value):
                    return self._value(value, body)
                case _:
                    raise NotImplementedError(type(each).__name__)
        return None

    def _scan(self, loop: syntax.Scan, body: _Body) -> None:
        axis = self._value(loop.along, body)
        sequences = [self._value(value, body) for value in loop.values]
        steps = range(sequences[0].shape[axis])
        carried = [body.names[name] for name in loop.carry]
        results: dict[int, tuple[Any, ...]] = {}
        for at in reversed(steps) if loop.reverse else steps:
            inner = _Body(body.path, dict(body.names), body.layers)
            inner.names |= zip(loop.names, (x.select(axis, at) for x in sequences), strict=True)
            inner.names |= zip(loop.carry, carried, strict=True)
            self._run(loop.body, inner)
            carried = [inner.names[name] for name in loop.carry]
            results[at] = inner.yielded
        body.names |= zip(loop.carry, carried, strict=True)
        for number, name in enumerate(loop.into):
            kept = [results[at][number] for at in steps]
            body.names[name] = torch.stack(kept, axis) if kept else torch.zeros_like(sequences[0])

    def _value(self, expr: syntax.Expr, body: _Body) -> Any:
        match expr:
            case syntax.Number(value=value):
                return value
            case syntax.Name(name):
                return body.names[name] if name in body.names else self.consts[name]
            case syntax.Unary("-", value):
                return -self._value(value, body)
            case syntax.Binary(op, left, right):
                return BINARY[op](self._value(left, body), self._value(right, body))
            case syntax.List(items):
                return [self._value(item, body) for item in items]
            case syntax.Call(syntax.Name(name), args):
                return self._call(expr, name, args, body)
            case _:
                raise NotImplementedError(f"{type(expr).__name__}: {expr.span.text}")

    def _call(self, call: syntax.Call, name: str, args: Sequence[syntax.Arg], body: _Body) -> Any:
        if name in body.layers:
            made = body.layers[name].function
            assert isinstance(made, syntax.Name)
            given = [self._value(arg.value, body) for arg in args]
            return self._layer(made.name, f"{body.path}{name}.", given)
        given = [self._value(arg.value, body) for arg in args if arg.name is None]
        if name in self.blocks:
            return self._run_block(self.blocks[name], f"{body.path}{call.label or name}.", given)
        return FUNCTIONS[name](*given, **{arg.name: self._value(arg.value, body) for arg in args if arg.name})

    def _layer(self, made: str, path: str, given: Sequence[Any]) -> Any:
        if made == "linear":
            return torch.nn.functional.linear(given[0], self.weights[path + "weight"], self.weights[path + "bias"])
        return self._run_block(self.blocks[made], path, given)
