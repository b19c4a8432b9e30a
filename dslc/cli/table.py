"""The commands: name, section of ``dslc --help``, one line of help. The modules are in ``dslc.cli.commands``.

The lines stand here so that ``dslc --help`` imports no command; a test holds them equal to the commands' own help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Entry:
    """``module`` is below dslc.cli.commands and defines ``command``."""

    section: str
    module: str
    summary: str


COMMANDS: Final[dict[str, Entry]] = {
    "new": Entry("Write", "new", "Make a project that trains at once."),
    "explain": Entry("Write", "explain", "Print the page of an error code."),
    "config": Entry("Look", "config", "Print every value of the configuration and where it comes from."),
}

SECTIONS: Final = ("Write", "Build", "Run", "Look")
