"""The version of dslc, in one place, which both wheels read; and which distributions are installed.

The distribution `dslc-runtime` holds all but the compiler; `dslc` adds it.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"

#: The packages of the distribution `dslc`.
COMPILER: Final = ("dslc.compiler", "dslc.dsl", "dslc.own_ops", "dslc.testing", "dslc.tune")


def has_compiler() -> bool:
    """True if the compiler is installed; imports nothing of it."""
    from importlib.util import find_spec

    return find_spec(COMPILER[0]) is not None


def install_extra(name: str) -> str:
    """The line that installs an extra of what is installed here."""
    return f"pip install '{'dslc' if has_compiler() else 'dslc-runtime'}[{name}]'"
