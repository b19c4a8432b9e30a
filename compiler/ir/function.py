"""The functions that a model may call: they create parameters and ops. One function is one class, as for ops.

The arguments in the language are those of ``build``: name, order, annotation and default. The annotations:

========================  ==========================================================================
``Value``                 a tensor
``Operand``               a tensor, or a number that takes the dtype of the tensors it meets
``int``, ``float``,       a static value; an int is accepted for a float
``bool``, ``str``
``Size``                  an int or a size with dims
``Number``                an int, a float or a size
``Numbers``               a number, a bool, a size, or a list of them or of such lists, as written
``Shape``                 a size or a list of sizes
``Axis``                  an axis number (negative from the end) or a dim's name: an int 0 <= axis < rank of ``x``
``Axes``                  an axis or a list of axes: a tuple of ints, sorted, without repetition; None: all
``Init``                  an initialiser
``Floats``                a number or a list of numbers: a tuple of floats
``Ints``                  an int or a list of ints: a tuple of ints
========================  ==========================================================================

``| None`` makes an argument optional; a parameter after ``*`` in ``build`` must be passed by name. ``x |> f(...)``
passes ``x`` as the first argument; axes refer to it.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from dslc.compiler.ir.graph import Attr, Value
from dslc.compiler.ir.op import Builder, Mismatch, Op, page_of
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType

Shape: TypeAlias = tuple[Size, ...]
Axis: TypeAlias = int
Axes: TypeAlias = tuple[int, ...]
Floats: TypeAlias = tuple[float, ...]
Ints: TypeAlias = tuple[int, ...]
Operand: TypeAlias = "Value | int | float | bool"
Number: TypeAlias = "int | float | Size"
Numbers: TypeAlias = "int | float | bool | Size | list[Any] | tuple[Any, ...]"

#: What the numbers of a tensor are.
LOGITS: Final = "logits"
LOG_PROBS: Final = "log-probabilities"
PROBS: Final = "probabilities"

#: The annotations, each also with ``| None``.
ANNOTATIONS: Final = ("Value", "Operand", "list[Value]", "tuple[Value, ...]", "int", "float", "bool", "str", "Size",
                      "Number", "Numbers", "Shape", "Axis", "Axes", "Init", "Floats", "Ints")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Init:
    """The initial value of a parameter: ``constant(value)``, ``uniform(low, high)``, ``normal(mean, std)``,
    ``trunc_normal(mean, std, a, b)``, ``orthogonal(gain)`` or ``values``; after ``resolve``, one of these. ``kind`` may
    also name a scheme that depends on the fans of the shape, with the numbers ``args``. ``values``: a tensor that is
    computed from constants alone."""

    kind: str
    args: tuple[float, ...] = ()
    values: Value | None = None

    def __str__(self) -> str:
        if self.values is not None:
            return f"{self.kind}({self.values.type})"
        return f"{self.kind}({', '.join(f'{a:g}' for a in self.args)})"


class Call(Protocol):
    """One call in the program, as the checker presents it to a function."""

    def emit(self, op: Op, *inputs: Value, **attrs: Attr) -> Value:
        """Applies an op with one output."""

    def emit_all(self, op: Op, *inputs: Value, **attrs: Attr) -> tuple[Value, ...]:
        """Applies an op, all outputs."""

    def param(self, leaf: str, shape: Shape, init: Init) -> Value:
        """A trained tensor named PATH.leaf; the same tensor if a shared layer is called again."""

    def buffer(self, leaf: str, shape: Shape, init: Init) -> Value:
        """A tensor that persists and has no gradient. A later call of a shared layer gets its value after the last
        call."""

    def update(self, leaf: str, new: Value) -> None:
        """In training, ``new`` is the value of the buffer ``leaf`` from this call on; in evaluation, what reads ``new``
        reads the buffer."""

    def full(self, value: Number, dtype: DType = DType.FLOAT, shape: Shape = ()) -> Value:
        """A constant."""

    def constant(self, numbers: Any, dtype: DType = DType.FLOAT) -> Value:
        """A constant of the numbers of a numpy array: floats for a float dtype, which are rounded once."""

    def operands(self, *xs: Operand) -> tuple[Value, ...]:
        """Tensors from tensors and numbers: numbers take the dtype of the tensors; without a tensor
        bools are b1 and numbers floats."""

    def random(self, purpose: str, type_shape: Shape) -> tuple[tuple[Value, Value, Value], dict[str, Attr]]:
        """Inputs (seed, step, row) and attributes for a random op with a result of this shape. ``key``: u64 as int;
        ``row_elements``: elements of one row of the batch, 0 if axis 0 is not the batch."""


def operands_of(call: Call, xs: Sequence[Operand]) -> tuple[Value, ...]:
    """Tensors from tensors and numbers, as ``Call.operands`` promises. Raises Mismatch E0204."""
    usual = DType.B1 if all(isinstance(x, bool) for x in xs) else DType.FLOAT
    dtype = next((x.type.dtype for x in xs if isinstance(x, Value)), usual)
    found: list[Value] = []
    for x in xs:
        if isinstance(x, float) and not dtype.is_float:
            raise Mismatch(
                f"the number {x:g} is combined with {dtype} tensors", "write an int, or `cast` the tensor", "E0204"
            )
        found.append(x if isinstance(x, Value) else call.full(x, dtype))
    return tuple(found)


class Function(ABC):
    """A function of the language. The docstring is the manual page: its first line starts with the name. An example
    follows ``>>>``, in terms of the tensors in the page's ``given:`` line, for instance ``given: x: [B, 8], t:
    i32[B]``. A test compiles it."""

    name: ClassVar[str]
    #: The gradient is not the derivative, on purpose, so that tests do not compare it with differences.
    surrogate: ClassVar[bool] = False
    #: The names of float arguments that may be `inf`, `-inf` or `nan`.
    not_finite: ClassVar[frozenset[str]] = frozenset()
    #: What arguments must hold for the result to be right: LOGITS, LOG_PROBS or PROBS.
    takes: ClassVar[Mapping[str, str]] = {}
    #: The help for a call without what is required, if other frameworks have another function of this name; else "".
    elsewhere: ClassVar[str] = ""
    build: Any  # (self, call: Call, *arguments) -> Value | tuple[Value, ...]

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The arguments as seen by the language, without ``self`` and ``call``."""
        return list(inspect.signature(self.build).parameters.values())[1:]


class Optimizer(ABC):
    """An optimizer of the language: ``optimizer = name(lr=..., ...)``. Its arguments are those in ``defaults``. Common
    to all are ``clip_norm``, ``clip_value``, ``weight_decay`` and ``decay_on``: the autodiff pass handles clipping, and
    ``update`` handles decay."""

    name: ClassVar[str]
    #: whether a step looks at more of a parameter than one element at a time
    of_whole_tensors: ClassVar[bool] = False
    #: the argument that holds patterns of names of parameters, whose default is the empty tuple
    patterns: ClassVar[str | None] = None
    #: argument -> default; None: required. ``lr`` always exists and becomes a run-time scalar.
    defaults: ClassVar[dict[str, Any]]

    @abstractmethod
    def slots(self, args: dict[str, Any]) -> tuple[str, ...]:
        """Names of the state tensors per parameter, which start at 0."""

    def slot_type(self, slot: str, param: TensorType) -> TensorType:
        """The type of a state tensor of a parameter of this type: by default the same."""
        return param

    def rule(self, args: dict[str, Any], param: TensorType, named: bool) -> tuple[Optimizer, dict[str, Any]]:
        """The optimizer that updates a parameter of this type, and its arguments: by default itself. ``named``:
        whether one of the patterns of the argument ``patterns`` selects the parameter."""
        return self, args

    @abstractmethod
    def update(
        self,
        b: Builder,
        args: dict[str, Any],
        param: Value,
        grad: Value,
        slots: Sequence[Value],
        lr: Value,
        step: Value,
    ) -> tuple[Value, ...]:
        """Builds the nodes of an update. Returns the new parameter, the new slots, and last a flag b1[] that is true if
        some element of the gradient was not finite. Such elements are not updated, in the parameter and in the slots
        (of a slot with fewer elements: those that such an element is part of). ``args["weight_decay"]`` is this
        parameter's, ``lr`` is its scalar (already multiplied by the group's factor), ``step`` is i64 from 0."""


FUNCTIONS: dict[str, Function] = {}
OPTIMIZERS: dict[str, Optimizer] = {}
F = TypeVar("F", bound=Function)
G = TypeVar("G", bound=Optimizer)


def _checked_name(thing: object, table: dict[str, Any]) -> str:
    name: str = getattr(thing, "name", "")
    if not name or not page_of(thing).startswith(name):
        raise TypeError(f"{type(thing).__name__} needs a `name` and a docstring that starts with it")
    if name in table:
        raise TypeError(f"{name} is registered already")
    return name


def checked_function(f: Function, table: dict[str, Any]) -> str:
    """The name of a function; TypeError if a part is missing or the name is taken in the table."""
    name = _checked_name(f, table)
    if not callable(getattr(f, "build", None)) or ">>>" not in page_of(f):
        raise TypeError(f"{type(f).__name__} needs `build` and an example after `>>>`")
    return name


def function(f: F) -> F:
    """Adds the only instance of a function to the table; TypeError if a part is missing or the name is taken."""
    FUNCTIONS[checked_function(f, FUNCTIONS)] = f
    return f


def optimizer(o: G) -> G:
    """Adds the only instance of an optimizer to the table; TypeError if a part is missing or the name is taken."""
    OPTIMIZERS[_checked_name(o, OPTIMIZERS)] = o
    return o
