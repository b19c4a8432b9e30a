"""One op, one class: what a class must say before it can be registered.

To add an op: one class in one file of ``compiler/ops``, with the parts below, and one ``register(...)`` line.
Tests, documentation and ``dslc ops`` come from the registry.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dslc.compiler.ir.graph import NO_ATTRS, Attr, Attrs, Node, Phase, Value
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.dsl.span import Span

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


class Mismatch(Exception):
    """An op does not fit its arguments. ``why`` says what is wrong, ``help`` what would work.

    The checker adds the place. ``code`` is a key of the error table: E0203 in general, E0301 for broadcasting,
    E0302 to E0308 for shapes.
    """

    def __init__(self, why: str, help: str | None = None, code: str = "E0203") -> None:
        super().__init__(why)
        self.why = why
        self.help = help
        self.code = code


class NoGradient(Exception):
    """Raised by ``grad`` of an op through which no gradient can flow; the text says why."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Floating point operations, and bytes read and written when each tensor moves once."""

    flops: int
    bytes: int


class Op(ABC):
    """An operation on tensors, without side effects.

    The docstring is the manual page: its first line starts with the op's name.
    """

    name: ClassVar[str]
    #: (input, output) pairs whose bytes may be the same when the input dies here: output element i is written after
    #: input element i was read and no other input element is read later than that.
    inplace: ClassVar[tuple[tuple[int, int], ...]] = ()
    #: output 0 has the very bytes of input 0 (reshape): no work at all.
    view: ClassVar[bool] = False
    #: What the gradient reads, as alternatives in order of preference: names ``x0, x1, ...`` of inputs, ``y0, ...`` of
    #: outputs. ``grad`` uses the first; the mirror pass may choose another.
    needs: ClassVar[tuple[frozenset[str], ...]] = (frozenset(),)
    #: Inputs that stay in f32 beside tensors of 16 bits: weights of a normalisation, statistics.
    statistics: ClassVar[tuple[int, ...]] = ()
    #: Cheap enough to compute a second time from its inputs rather than to keep: the mirror pass may.
    mirror: ClassVar[bool] = False
    #: Random ops read the scalars seed, step and row as their last three inputs.
    random: ClassVar[bool] = False

    @abstractmethod
    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        """Types of the outputs; raises Mismatch. Sizes may be symbolic."""

    @abstractmethod
    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        """Gradients of the inputs (None: no gradient, integer or not needed) from those of the outputs.

        ``dys[i]`` is None when nothing flows into output i; at least one is not None. Sizes are ints here.
        """

    @abstractmethod
    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        """The outputs in numpy: computed in f32 (f64 for f64) inside, rounded once to the outputs' dtypes."""

    @abstractmethod
    def cost(self, node: Node) -> Cost:
        """FLOPs and bytes for int sizes."""

    def in_eval(self, node: Node, b: Builder) -> Sequence[Value] | None:
        """What stands for the outputs outside training (dropout: its input); None: the op is the same there."""
        return None

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        """Where the rows of the batch lie in the outputs, given the axis along which they lie in each input.

        An axis holds rows when each row of the batch is a contiguous block along it; None in ``axes`` or in the
        result: the tensor holds no rows. The result None: rows are mixed, or it is not known (the default).
        """
        return None

    def rows_of(self, node: Node, axes: Sequence[int | None], count: int) -> tuple[int | None, ...] | None:
        """As ``rows``, when it is known that there are ``count`` rows."""
        return self.rows(node, axes)

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        """The values [low, high) that integer input ``index`` may have; None: any."""
        return None


class Pointwise(Op):
    """Element i of the output depends on element i of the (broadcast) inputs. Shapes broadcast as numpy's do.

    Subclasses give ``arity``, ``result`` (the output's dtype), ``scalar``, ``meaning`` and ``grad``; gradients may have
    the output's shape, the autodiff pass sums them to the input's.
    """

    arity: ClassVar[int]
    mirror = True

    @property
    def inplace(self) -> tuple[tuple[int, int], ...]:  # type: ignore[override]
        return tuple((i, 0) for i in range(self.arity))

    @abstractmethod
    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        """The expression of one element."""

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        """The output's dtype; by default all inputs must agree and give it."""
        if dtypes.count(dtypes[0]) != len(dtypes):
            listed = " and ".join(dict.fromkeys(str(d) for d in dtypes))
            raise Mismatch(f"`{self.name}` of {listed}", "convert one side with `cast`", "E0204")
        return dtypes[0]

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert len(types) == self.arity, f"{self.name} takes {self.arity} inputs, got {len(types)}"
        return (_typed(self.result([t.dtype for t in types], attrs), tuple([t.shape for t in types])),)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        rank = node.types[0].rank
        found = {a + rank - t.rank for a, t in zip(axes, node.input_types) if a is not None}
        return None if len(found) > 1 else (found.pop() if found else None,)

    def operations(self, attrs: Attrs) -> int:
        """Arithmetic operations for one element."""
        return max(1, _operations(self.scalar(attrs, *_arguments(self.arity))))

    def cost(self, node: Node) -> Cost:
        elements = node.types[0].bytes // node.types[0].dtype.itemsize
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(elements * self.operations(node.attrs), moved)


@lru_cache(4096)  # a model has few shapes
def _typed(dtype: DType, shapes: tuple[tuple[Size, ...], ...]) -> TensorType:
    return TensorType(dtype, broadcast(shapes))


def _arguments(count: int) -> list[Expr]:
    return [Expr("arg", index=i) for i in range(count)]


def _operations(expr: Expr) -> int:
    return 0 if not expr.args else 1 + sum(_operations(a) for a in expr.args)


def broadcast(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """numpy's broadcasting of shapes; a symbolic size never counts as 1. Raises Mismatch E0301 naming the axes."""
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    rank = max(len(s) for s in shapes)
    result: list[Size] = []
    wrong: list[int] = []
    for axis in range(-rank, 0):
        sizes = dict.fromkeys(s[axis] for s in shapes if len(s) >= -axis)
        others = [s for s in sizes if s != 1]
        if len(others) > 1:
            wrong.append(axis + rank)
        result.append(others[0] if others else 1)
    if wrong:
        axes = (
            f"axis {wrong[0]} differs"
            if len(wrong) == 1
            else ("axes " + ", ".join(map(str, wrong[:-1])) + f" and {wrong[-1]} differ")
        )
        raise Mismatch(axes, None, "E0301")
    return tuple(result)


class Builder:
    """Makes nodes. ``name``, ``span`` and ``phase`` are given to every node it makes."""

    def __init__(self, *, name: str = "", span: Span | None = None, phase: Phase = Phase.FORWARD) -> None:
        self.name = name
        self.span = span
        self.phase = phase

    def at(self, node: Node, phase: Phase | None = None) -> Builder:
        """A builder for nodes that stand where ``node`` stands."""
        return Builder(name=node.name, span=node.span, phase=phase or self.phase)

    def node(self, op: Op, *inputs: Value, **attrs: Attr) -> Node:
        """Applies an op; raises Mismatch."""
        types = op.infer([v.type for v in inputs], attrs)
        return Node(op, inputs, types, attrs, name=self.name, span=self.span, phase=self.phase)

    def __call__(self, op: Op, *inputs: Value, **attrs: Attr) -> Value:
        """Applies an op with one output."""
        return self.node(op, *inputs, **attrs).out


OPS: dict[str, Op] = {}
T = TypeVar("T", bound=Op)


def register(op: T) -> T:
    """Adds the one instance of an op to the table. A class with an abstract part cannot come this far (TypeError).

    Raises TypeError for a missing name or manual page, or a name taken twice.
    """
    name = getattr(op, "name", "")
    page = inspect.getdoc(type(op)) or ""
    if not name or not page.startswith(name):
        raise TypeError(f"{type(op).__name__} needs a `name` and a docstring that starts with it")
    if name in OPS:
        raise TypeError(f"an op named {name} is registered already")
    OPS[name] = op
    return op


__all__ = ["NO_ATTRS", "OPS", "Attr", "Attrs", "Builder", "Cost", "Expr", "Mismatch", "NoGradient", "Op", "Pointwise",
           "broadcast", "register"]  # fmt: skip
