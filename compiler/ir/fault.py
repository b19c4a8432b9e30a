"""Exceptions that meet the code of packages: its faults, and the checker's signals, which pass through it."""

from __future__ import annotations

from dslc.base.errors import DslcError
from dslc.dsl.span import Span


class Signal(Exception):
    """Raised by the checker below a call of a function, for the checker above it."""


class PackageFault(DslcError):
    """E0115: a function or an op of a package raised an error, or returned what the compiler cannot use.

    The message names the package's file and line. ``span``: the place in the model, once it is known.
    """

    def __init__(self, message: str, help: str) -> None:
        super().__init__("E0115", message, help=help)
        self.span: Span | None = None

    def at(self, span: Span | None) -> PackageFault:
        """The same error, with this place in the model if it has none yet."""
        if self.span is None and span is not None:
            self.span, self.place = span, str(span)
        return self
