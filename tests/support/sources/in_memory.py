"""A program of one file that needs no disk."""

from __future__ import annotations

from dslc.dsl.load import Module, Program
from dslc.dsl.parser import parse
from dslc.dsl.span import Source


def files(text: str, name: str = "net.nn") -> Program:
    """A file that needs no disk."""
    source = Source(name, text)
    module = Module(source, parse(source), "0" * 64, ())
    return Program(module, (module,))
