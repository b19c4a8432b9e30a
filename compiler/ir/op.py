"""One op is one class: the parts that a class must define before it can be registered.

To add an op, write one class in one file of ``compiler/ops``, with the parts below, and one ``register(...)`` line.
Tests, documentation and ``dslc ops`` come from the registry.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

from dslc.compiler.ir.fault import PackageFault
from dslc.compiler.ir.graph import NO_ATTRS, Attr, Attrs, Node, Phase, Value
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.dsl.span import Span

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


class Mismatch(Exception):
    """An op does not fit its arguments. ``why`` states the problem, ``help`` a fix.

    The checker adds the place. ``code`` is a key of the error table: E0203 in general, E0301 for broadcasting,
    E0302 to E0308 for shapes.
    """

    def __init__(self, why: str, help: str | None = None, code: str = "E0203") -> None:
        super().__init__(why)
        self.why = why
        self.help = help
        self.code = code


class NoGradient(Exception):
    """Raised by ``grad`` of an op that has no gradient; the text states the reason."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Floating point operations, and bytes read and written if each tensor moves once."""

    flops: int
    bytes: int


#: Kinds of kernels, for the cost model; ``gradient`` is that of a convolution's input.
KernelKind: TypeAlias = Literal[
    "product", "gradient", "weight gradient", "attention", "attention gradient",
    "elements", "sums", "copies", "windows", "updates", "transforms", "rest",
]  # fmt: skip
#: Matrix products and convolutions, with their gradients.
PRODUCT_KINDS: Final = frozenset({"product", "gradient", "weight gradient"})


class Op(ABC):
    """An operation on tensors, without side effects.

    The docstring is the manual page: its first line starts with the op's name.
    """

    name: ClassVar[str]
    #: (input, output) pairs that may share bytes if the input is not used later: output element i is written after
    #: input element i was read, and no other input element is read after that.
    inplace: ClassVar[tuple[tuple[int, int], ...]] = ()
    #: Output 0 is the bytes of input 0 (reshape), or a ``part`` of them from ``first_byte`` on (piece): no work.
    view: ClassVar[bool] = False
    part: ClassVar[bool] = False
    #: Values that the gradient reads, as alternatives in order of preference: ``x0, x1, ...`` are inputs, ``y0, ...``
    #: are outputs. ``grad`` uses the first; the mirror pass may choose another.
    needs: ClassVar[tuple[frozenset[str], ...]] = (frozenset(),)
    #: Inputs that stay in f32 when tensors have 16 bits: weights of a normalisation, statistics.
    statistics: ClassVar[tuple[int, ...]] = ()
    #: The op computes nothing in between that f32 would hold more exactly than 16-bit floats do, and every target has
    #: kernels of 16 bits for it. The same is true of views and of ops that only move elements, without this flag.
    in_halves: ClassVar[bool] = False
    #: The group of the ops that compute in f32 in a 16-bit model by default (``lower/dtypes/wide.py``); "" for others.
    wide: ClassVar[str] = ""
    #: Each output element is an input element or a constant: nothing is computed.
    moves: ClassVar[bool] = False
    #: The attributes with a number for each axis, of an op that moves elements along axes, such as a slice.
    by_axis: ClassVar[tuple[str, ...]] = ()
    #: Cheap enough that the mirror pass may recompute it from its inputs instead of keeping it.
    mirror: ClassVar[bool] = False
    #: The kind of kernel that runs the op (``cost.kind``).
    kernel_kind: ClassVar[KernelKind] = "rest"
    #: As a step of a GPU kernel that waits for memory it takes almost no time, so several kernels may compute it.
    cheap: ClassVar[bool] = False
    #: How often the op's GPU kernel reads each element of its inputs, if it can compute pointwise neighbours of the op
    #: (``fuse/reduction/row_bodies.py``); 0 if it cannot.
    input_reads: ClassVar[int] = 0
    #: Random ops read the scalars seed, step and row as their last three inputs.
    random: ClassVar[bool] = False

    def in_place(self, node: Node) -> tuple[tuple[int, int], ...]:
        """``inplace`` of a node; an op with a body looks at it."""
        return self.inplace

    def first_byte(self, node: Node) -> int:
        """Of a view: the byte of input 0 at which output 0 begins."""
        return 0

    @abstractmethod
    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        """Types of the outputs; raises Mismatch. Sizes may be symbolic."""

    @abstractmethod
    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        """Gradients of the inputs from those of the outputs (None: no gradient, because integer or not needed).

        ``dys[i]`` is None if no gradient reaches output i; at least one is not None. Sizes are ints here.
        """

    def summed_grad(
        self, node: Node, dys: Sequence[Value | None], b: Builder, total: Callable[[Sequence[Value]], Value]
    ) -> Sequence[Value | None]:
        """``grad`` for an op that differentiates a graph of its own; ``total`` adds the summands of a gradient."""
        return self.grad(node, dys, b)

    @abstractmethod
    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        """Reference implementation in numpy: computes in f32 (f64 for f64), then rounds once to the outputs' dtypes."""

    @abstractmethod
    def cost(self, node: Node) -> Cost:
        """FLOPs and bytes for int sizes."""

    def in_eval(self, node: Node, b: Builder) -> Sequence[Value] | None:
        """The values that replace the outputs in evaluation (dropout: its input); None: the op does not change."""
        return None

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None] | None:
        """The values whose gradients are taken instead of the outputs' by the function ``gradient``, whose result may
        be differentiated again: equal to the outputs, and composed of ops whose gradients have gradients. None for an
        output that is not composed; by default ``grad`` itself consists of such ops."""
        return None

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        """The batch axis of each output, given the batch axis of each input.

        An axis is a batch axis if each row of the batch is a contiguous block along it; None in ``axes`` or in the
        result: the tensor has no batch axis. Returns None if rows are mixed, or if that is unknown (the default).
        """
        return None

    def rows_of(self, node: Node, axes: Sequence[int | None], count: int) -> tuple[int | None, ...] | None:
        """Like ``rows``, if the number of rows is known to be ``count``."""
        return self.rows(node, axes)

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        """The allowed values [low, high) of integer input ``index``; None: any."""
        return None


class Pointwise(Op):
    """Element i of the output depends only on element i of the (broadcast) inputs. Shapes broadcast as in numpy.

    Subclasses define ``arity``, ``result`` (the output's dtype), ``scalar``, ``meaning`` and ``grad``. Gradients may
    have the output's shape; the autodiff pass sums them to the input's shape.
    """

    arity: ClassVar[int]
    mirror = True
    kernel_kind = "elements"

    @property
    def inplace(self) -> tuple[tuple[int, int], ...]:  # type: ignore[override]
        return tuple((i, 0) for i in range(self.arity))

    @abstractmethod
    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        """The expression of one element."""

    def scalar_of(self, dtype: DType, attrs: Attrs, *xs: Expr) -> Expr:
        """The expression for values that are computed in ``dtype``: f32 may need fewer terms than f64."""
        return self.scalar(attrs, *xs)

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        """The output's dtype; by default that of the inputs, which must be equal."""
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
        """Arithmetic operations per element."""
        return max(1, _operations(self.scalar(attrs, *(Expr("arg", index=i) for i in range(self.arity)))))

    def cost(self, node: Node) -> Cost:
        elements = node.types[0].bytes // node.types[0].dtype.itemsize
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(elements * self.operations(node.attrs), moved)


@lru_cache(4096)  # a model has few shapes
def _typed(dtype: DType, shapes: tuple[tuple[Size, ...], ...]) -> TensorType:
    return TensorType(dtype, broadcast(shapes))


def _operations(expr: Expr) -> int:
    return 0 if not expr.args else 1 + sum(_operations(a) for a in expr.args)


def broadcast(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Broadcasts shapes as numpy does; a symbolic size never counts as 1. Raises Mismatch E0301 naming the axes."""
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
    """Creates nodes. Each node gets ``name``, ``span`` and ``phase``."""

    def __init__(self, *, name: str = "", span: Span | None = None, phase: Phase = Phase.FORWARD) -> None:
        self.name = name
        self.span = span
        self.phase = phase

    def at(self, node: Node, phase: Phase | None = None) -> Builder:
        """A builder for nodes with the name and the place of ``node``."""
        return Builder(name=node.name, span=node.span, phase=phase or self.phase)

    def node(self, op: Op, *inputs: Value, **attrs: Attr) -> Node:
        """Applies an op; raises Mismatch, and PackageFault for an op of a package, whose name has a dot."""
        try:
            types = op.infer([v.type for v in inputs], attrs)
        except PackageFault as fault:
            raise fault.at(self.span) from fault.__cause__
        except Mismatch as wrong:
            if "." not in op.name:
                raise
            types_given = " and ".join(str(v.type) for v in inputs)
            help = wrong.help or "use other dtypes or sizes, or ask the package's author"
            raise PackageFault(f"the op `{op.name}` refuses {types_given}: {wrong.why}", help).at(self.span) from wrong
        return Node(op, inputs, types, attrs, name=self.name, span=self.span, phase=self.phase)

    def __call__(self, op: Op, *inputs: Value, **attrs: Attr) -> Value:
        """Applies an op with one output."""
        return self.node(op, *inputs, **attrs).out


def page_of(thing: object) -> str:
    """The docstring of an object, its class or a base class, as it is written: `inspect.getdoc` alone aligns its lines,
    which takes most of the time to register all ops."""
    return (thing.__doc__ or inspect.getdoc(thing) or "").lstrip()


OPS: dict[str, Op] = {}
T = TypeVar("T", bound=Op)


def register(op: T) -> T:
    """Adds the only instance of an op to the table. A class with an abstract method cannot be instantiated (TypeError).

    Raises TypeError for a missing name or manual page, or a name taken twice.
    """
    name = getattr(op, "name", "")
    if not name or not page_of(type(op)).startswith(name):
        raise TypeError(f"{type(op).__name__} needs a `name` and a docstring that starts with it")
    if name in OPS:
        raise TypeError(f"an op named {name} is registered already")
    OPS[name] = op
    return op


__all__ = ["NO_ATTRS", "OPS", "PRODUCT_KINDS", "Attr", "Attrs", "Builder", "Cost", "Expr", "KernelKind", "Mismatch",
           "NoGradient", "Op", "Pointwise", "broadcast", "register"]  # fmt: skip
