"""The values of names during the check of a model, and the exceptions that carry a problem to its statement."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, Union

from dslc.compiler.ir.fault import Signal
from dslc.compiler.ir.function import Function, Init
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import Poly
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label
from dslc.dsl.other_calls import unsqueezed
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.scope import ModuleScope


class Problem(Signal):
    """An error at a place. Each statement catches it once and makes it a diagnostic; the statement's targets are
    poisoned."""

    def __init__(
        self,
        code: str,
        title: str,
        span: Span,
        text: str = "",
        *,
        help: str | None = None,
        also: tuple[Label, ...] = (),
        final: bool = False,
    ) -> None:
        super().__init__(title)
        self.code = code
        self.title = title
        self.label = Label(span, text)
        self.help = help
        self.also = also
        self.final = final  # a limit is reached: checking stops


class Poisoned(Signal):
    """A poisoned name was read. Its cause has already been reported: one cause, one error."""


@dataclass(frozen=True)
class Poison:
    """The value of a name whose statement failed."""


@dataclass(eq=False)
class BlockRef:
    """A block or model of a file."""

    block: syntax.Block
    scope: ModuleScope


@dataclass(eq=False)
class Layer:
    """``layer name = call``: static arguments are set, tensors are not. Shapes are bound at the first call."""

    call: syntax.Call
    callee: BlockRef | Function
    args: tuple[tuple[str | None, Static, Span], ...]
    path: str
    calls: int = 0
    groups: Groups = field(default_factory=lambda: Groups())
    node_path: str = ""


@dataclass(frozen=True, slots=True)
class Average:
    """``@ema(source, decay)`` at a layer: each parameter below ``layer`` is a running average of its counterpart below
    ``source``. Both are paths of layers."""

    source: str
    decay: float
    span: Span
    layer: str = ""

    def counterpart(self, name: str) -> str:
        """The name of the parameter that a parameter of the layer averages."""
        return self.source + name.removeprefix(self.layer)


@dataclass(frozen=True, slots=True)
class Groups:
    """Attributes in force: learning rate factor, weight decay (None: the optimizer's), frozen, recomputation,
    precision, and the average that a layer is."""

    lr: float = 1.0
    decay: float | None = None
    freeze: bool = False
    average: Average | None = None
    mirror: str = "auto"
    precision: str | None = None

    @property
    def trainable(self) -> bool:
        """True if the loss may train the parameters."""
        return not self.freeze and self.average is None


Static: TypeAlias = Union[
    int, float, bool, str, Poly, Init, "Value", "list[Static]", "tuple[Static, ...]", BlockRef, Function, Layer, Poison
]


#: numbers with a name, which a file may give to something else
NAMED_NUMBERS: Final = {"inf": math.inf, "nan": math.nan, "pi": math.pi}


def require_finite(value: object, what: str, span: Span) -> None:
    """E0209 for `inf`, `-inf` or `nan` in a number or a list."""
    for each in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(each, float) and not math.isfinite(each):
            raise Problem("E0209", f"{what} is finite, this is {each}", span, "not finite")


def kind_of(value: Static) -> str:
    """The name of a value's kind in errors."""
    match value:
        case bool():
            return "a bool"
        case int():
            return "an int"
        case float():
            return "a float"
        case str():
            return "a string"
        case Poly():
            return f"the size `{value}`"
        case Init():
            return "an initialiser"
        case Value():
            return f"a tensor {value.type}"
        case list():
            return "a list"
        case tuple():
            return f"{len(value)} values"
        case BlockRef():
            return f"the {value.block.kind} `{value.block.name}`"
        case Function():
            return f"the function `{value.name}`"
        case Layer():
            return "a layer"
    return "an error"


def declare_hint(name: str) -> str:
    """The help for a name that nothing is similar to."""
    return f"give it a value first, or declare it with the arguments of the block, model or section: `{name}: [B, 8]`"


def label_hint(name: str) -> str:
    """The help for a label that is read as a value."""
    return f"`{name}` labels a call, for the names of its parameters; to read its result, write `h = ... as {name}`"


def added_axis(expr: syntax.Index, span: Span) -> Problem:
    """The error for an index such as `x[:, None]`, told at its first `None`."""
    return Problem("E0102", f"`{span.text}` in an index", span, "adds no axis here", help=unsqueezed(expr))
