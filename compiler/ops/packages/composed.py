"""Ops that a package composes of functions of the language, with a kernel of their own for GPUs if it has one.

The composition gives types, code for every target, cost and gradient. On a GPU the kernel takes its place; elsewhere
the pass ``compose`` replaces the op by its parts, which fuse with their neighbours.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dslc.compiler.ir.function import FUNCTIONS, Call, Init, Number, Operand, Shape, operands_of
from dslc.compiler.ir.graph import Attr, Attrs, Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder, Cost, Mismatch, Op
from dslc.compiler.ir.pull_back import through
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.constants.literal import attributes
from dslc.compiler.ops.packages.cuda import Cuda


@dataclass(frozen=True)
class Parts:
    """The nodes of a composition in topological order, and its results."""

    nodes: tuple[Node, ...]
    results: tuple[Value, ...]


class Composed(Op):
    """An op whose value is that of functions of the language; ``meaning`` says it once more in numpy, for its tests.

    A subclass defines ``compose`` and ``meaning``, and for a kernel of its own ``cuda``. ``grad`` may be replaced, for
    instance by another own op; by default it computes the parts again and differentiates them.
    """

    @property
    def needs(self) -> tuple[frozenset[str], ...]:  # type: ignore[override]
        """All inputs: the gradient computes the parts again."""
        return (frozenset(f"x{i}" for i in range(len(inspect.signature(self.compose).parameters) - 1)),)

    @abstractmethod
    def compose(self, f: Functions, *xs: Any, **attrs: Any) -> Value | tuple[Value, ...]:
        """The results from the inputs: ``f.mul(f.sigmoid(x), x)``. Sizes may be symbolic. Raises Mismatch."""

    def cuda(self, types: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> Cuda | None:
        """The kernel for inputs and results of these types, whose ``ints`` are their shapes; None: the parts compute
        them."""
        return None

    def parts(self, b: Builder, xs: Sequence[Value], attrs: Attrs) -> Parts:
        """The op's composition on these inputs. Raises Mismatch."""
        call = _PartsCall(b, xs)
        found = self.compose(Functions(call), *xs, **attrs)
        return Parts(tuple(call.made), found if isinstance(found, tuple) else (found,))

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self._of_types(types, attrs)[1].results)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        parts = self.parts(b, node.inputs, node.attrs)
        return through(parts.nodes, parts.results, node.inputs, dys, b)

    def cost(self, node: Node) -> Cost:
        _, parts = self._of_types(node.input_types, node.attrs)
        moved = sum(type.bytes for type in (*node.input_types, *node.types))
        return Cost(sum(part.op.cost(part).flops for part in parts.nodes), moved)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return self._rows(node, axes, lambda part, found: part.op.rows(part, found))

    def rows_of(self, node: Node, axes: Sequence[int | None], count: int) -> tuple[int | None, ...] | None:
        return self._rows(node, axes, lambda part, found: part.op.rows_of(part, found, count))

    def _rows(
        self,
        node: Node,
        axes: Sequence[int | None],
        rows: Callable[[Node, list[int | None]], tuple[int | None, ...] | None],
    ) -> tuple[int | None, ...] | None:
        xs, parts = self._of_types(node.input_types, node.attrs)
        where: dict[Value, int | None] = dict(zip(xs, axes))
        for part in parts.nodes:
            read = [where[value] for value in part.inputs]
            found = (None,) * len(part.outputs) if all(axis is None for axis in read) else rows(part, read)
            if found is None:
                return None
            where.update(zip(part.outputs, found))
        return tuple(where[value] for value in parts.results)

    def _of_types(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[list[Value], Parts]:
        xs = [Input(f"x{i}", Kind.DATA, type).value for i, type in enumerate(types)]
        return xs, self.parts(Builder(), xs, attrs)


class Functions:
    """The functions of the language, called from Python: ``f.softmax(x, axis=-1)``, with the arguments of ``dslc ops``.

    ``f.emit(op, *xs, **attributes)`` applies an op, for instance another one of the package.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def emit(self, op: Op, *xs: Value, **attrs: Attr) -> Value:
        return self._call.emit(op, *xs, **attrs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = FUNCTIONS.get(name)
        if function is None:
            raise AttributeError(f"the language has no function `{name}`")
        signature = inspect.Signature(function.parameters)

        def called(*args: Any, **named: Any) -> Any:
            bound = signature.bind(*args, **named)
            first = next(iter(bound.arguments.values()), None)
            for parameter in function.parameters:
                if parameter.name in bound.arguments:
                    given = bound.arguments[parameter.name]
                    kind = str(parameter.annotation).replace(" | None", "")
                    bound.arguments[parameter.name] = _converted(kind, given, first)
            return function.build(self._call, *bound.args, **bound.kwargs)

        return called


def _converted(kind: str, given: Any, first: Any) -> Any:
    """An argument as ``build`` takes it (ir/function.py): axes from 0, sorted, and tuples instead of lists."""
    if given is None or kind not in ("Axis", "Axes", "Shape", "Ints", "Floats"):
        return given
    many = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if kind in ("Axis", "Axes"):
        of = first[0] if isinstance(first, (list, tuple)) else first
        if any(not -of.type.rank <= axis < of.type.rank for axis in many):
            raise Mismatch(f"axis {given} of a tensor with {of.type.rank} axes", None, "E0306")
        many = tuple(sorted({axis % of.type.rank for axis in many}))
    return many[0] if kind == "Axis" else tuple(map(float, many)) if kind == "Floats" else many


class _PartsCall:
    """A call of a function inside a composition (ir/function.py: Call). It creates no parameters."""

    def __init__(self, b: Builder, xs: Sequence[Value]) -> None:
        self.b = b
        self.made: list[Node] = []
        #: Takes the place of the abstract float in attributes, once the inputs have dtypes.
        self.float = next((x.type.dtype for x in xs if x.type.dtype.is_float), DType.FLOAT)

    def emit(self, op: Op, *inputs: Value, **attrs: Attr) -> Value:
        [value] = self.emit_all(op, *inputs, **attrs)
        return value

    def emit_all(self, op: Op, *inputs: Value, **attrs: Attr) -> tuple[Value, ...]:
        concrete = {name: self.float if value is DType.FLOAT else value for name, value in attrs.items()}
        self.made.append(self.b.node(op, *inputs, **concrete))
        return self.made[-1].outputs

    def full(self, value: Number, dtype: DType = DType.FLOAT, shape: Shape = ()) -> Value:
        return self.emit(OPS["full"], value=value, dtype=dtype, shape=shape)

    def constant(self, numbers: Any, dtype: DType = DType.FLOAT) -> Value:
        return self.emit(OPS["literal"], **attributes(numbers, dtype))

    def operands(self, *xs: Operand) -> tuple[Value, ...]:
        return operands_of(self, xs)

    def param(self, leaf: str, shape: Shape, init: Init) -> Value:
        raise TypeError(f"an op has no parameters, such as `{leaf}`: take the tensor as an input")

    def buffer(self, leaf: str, shape: Shape, init: Init) -> Value:
        raise TypeError(f"an op has no buffers, such as `{leaf}`: take the tensor as an input")

    def update(self, leaf: str, new: Value) -> None:
        raise TypeError(f"an op has no buffers, such as `{leaf}`")

    def random(self, purpose: str, type_shape: Shape) -> tuple[tuple[Value, Value, Value], dict[str, Attr]]:
        raise TypeError("an op draws no random numbers: take them as an input")
