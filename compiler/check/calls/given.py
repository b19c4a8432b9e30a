"""The arguments of a call, evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Static
from dslc.dsl import syntax
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


@dataclass(frozen=True, slots=True)
class Given:
    """An argument of a call: its name or None, its value, its place."""

    name: str | None
    value: Static
    span: Span
    expr: syntax.Expr

    @property
    def written(self) -> str:
        """The source text of the value."""
        text = self.span.text
        return text if self.name is None else text.partition("=")[2].strip()


def take_arguments(args: tuple[syntax.Arg, ...], frame: Frame, expander: Expander) -> list[Given]:
    """Evaluates the arguments in order."""
    given = []
    for arg in args:
        given.append(Given(arg.name, expander.evaluate(arg.value, frame), arg.span, arg.value))
    return given
