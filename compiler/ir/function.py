"""What a model may call: functions that make parameters and ops. One function, one class, as for ops.

The arguments in the language are those of ``build``, by name, order, annotation and default. The annotations:

========================  ==========================================================================
``Value``                 a tensor
``Operand``               a tensor, or a number that takes the dtype of the tensors it meets
``int``, ``float``,       a static value; an int is accepted where a float is asked
``bool``, ``str``
``Size``                  an int or a size with dims
``Shape``                 a size or a list of sizes
``Axis``                  an axis number (negative from the end) or a dim's name: an int 0 <= axis < rank of ``x``
``Axes``                  an axis or a list of axes: a tuple of ints, sorted, without repetition; None: all
``Init``                  an initialiser
``Floats``                a number or a list of numbers: a tuple of floats
``Ints``                  an int or a list of ints: a tuple of ints
========================  ==========================================================================

``| None`` makes an argument optional, a value after ``*`` in ``build`` must be given by name.
The first argument is what ``x |> f(...)`` puts in; axes count on it.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from dslc.compiler.ir.graph import Attr, Value
from dslc.compiler.ir.op import Op
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType

Shape: TypeAlias = tuple[Size, ...]
Axis: TypeAlias = int
Axes: TypeAlias = tuple[int, ...]
Floats: TypeAlias = tuple[float, ...]
Ints: TypeAlias = tuple[int, ...]
Operand: TypeAlias = "Value | int | float | bool"


@dataclass(frozen=True, slots=True)
class Init:
    """How a parameter starts: ``constant(value)``, ``uniform(low, high)``, ``normal(mean, std)``,
    ``trunc_normal(mean, std, a, b)`` or ``orthogonal(gain)``; after ``resolve`` one of these. ``kind`` may also name a
    scheme over the fans of the shape, with ``args`` its numbers."""

    kind: str
    args: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{a:g}' for a in self.args)})"


class Call(Protocol):
    """One call in the program, as the checker shows it to a function."""

    def emit(self, op: Op, *inputs: Value, **attrs: Attr) -> Value:
        """Applies an op with one output."""

    def emit_all(self, op: Op, *inputs: Value, **attrs: Attr) -> tuple[Value, ...]:
        """Applies an op, all outputs."""

    def param(self, leaf: str, shape: Shape, init: Init) -> Value:
        """A trained tensor named PATH.leaf; the same one when a shared layer is called again."""

    def buffer(self, leaf: str, shape: Shape, init: Init) -> Value:
        """A tensor that persists and has no gradient; in a later call of a shared layer, as the last call left it."""

    def update(self, leaf: str, new: Value) -> None:
        """In training, ``new`` is the value of the buffer ``leaf`` from this call on."""

    def full(self, value: float, dtype: DType = DType.FLOAT, shape: Shape = ()) -> Value:
        """A constant."""

    def operands(self, *xs: Operand) -> tuple[Value, ...]:
        """Tensors from tensors and numbers: numbers take the dtype of the tensors, float where only numbers meet."""

    def random(self, purpose: str, type_shape: Shape) -> tuple[tuple[Value, Value, Value], dict[str, Attr]]:
        """Inputs (seed, step, row) and attributes (``key``: u64 as int; ``row_elements``: elements of one row of the
        batch, 0 when axis 0 does not run over the batch) for a random op whose result has this shape."""


class Function(ABC):
    """A function of the language. The docstring is the manual page: its first line starts with the name, and an
    example stands behind ``>>>``, in terms of tensors of the page's own ``given:`` line, for instance
    ``given: x: [B, 8], t: i32[B]``. A test compiles it."""

    name: ClassVar[str]
    build: Any  # (self, call: Call, *arguments) -> Value | tuple[Value, ...]

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The arguments as the language sees them, without ``self`` and ``call``."""
        return list(inspect.signature(self.build).parameters.values())[1:]


class Optimizer(ABC):
    """An optimizer of the language: ``optimizer = name(lr=..., ...)``. Arguments are those of ``__init__``-like
    ``defaults``; ``clip_norm``, ``clip_value``, ``weight_decay`` and ``decay_on`` are common to all and handled by the
    autodiff pass (clip) and by ``update`` (decay)."""

    name: ClassVar[str]
    #: argument -> default; None: must be given. ``lr`` is always there and becomes a run-time scalar.
    defaults: ClassVar[dict[str, Any]]

    @abstractmethod
    def slots(self, args: dict[str, Any]) -> tuple[str, ...]:
        """Names of the state tensors per parameter, all of the parameter's type and starting at 0."""

    @abstractmethod
    def update(
        self, emit: Any, args: dict[str, Any], param: Value, grad: Value, slots: Sequence[Value], lr: Value, step: Value
    ) -> tuple[Value, ...]:
        """Emits the update op: ``emit(op, *inputs, **attrs) -> tuple[Value, ...]``. Gives the new parameter, the new
        slots, and last a flag b1[]: whether some element of the gradient was not finite (such elements are left
        alone, in the parameter and in the slots). ``args["weight_decay"]`` is this parameter's, ``lr`` is its scalar
        (already times the group's factor), ``step`` i64 from 0."""


FUNCTIONS: dict[str, Function] = {}
OPTIMIZERS: dict[str, Optimizer] = {}
F = TypeVar("F", bound=Function)
G = TypeVar("G", bound=Optimizer)


def _checked_name(thing: object, table: dict[str, Any]) -> str:
    name: str = getattr(thing, "name", "")
    page = inspect.getdoc(thing) or ""
    if not name or not page.startswith(name):
        raise TypeError(f"{type(thing).__name__} needs a `name` and a docstring that starts with it")
    if name in table:
        raise TypeError(f"{name} is registered already")
    return name


def function(f: F) -> F:
    """Adds the one instance of a function to the table; TypeError when a part is missing or the name is taken."""
    name = _checked_name(f, FUNCTIONS)
    page = inspect.getdoc(f) or ""
    if not callable(getattr(f, "build", None)) or ">>>" not in page:
        raise TypeError(f"{type(f).__name__} needs `build` and an example behind `>>>`")
    FUNCTIONS[name] = f
    return f


def optimizer(o: G) -> G:
    """Adds the one instance of an optimizer to the table; TypeError when a part is missing or the name is taken."""
    OPTIMIZERS[_checked_name(o, OPTIMIZERS)] = o
    return o
