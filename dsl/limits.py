"""The limits of a source; each limit is checked before the work that it bounds."""

from __future__ import annotations

from typing import Final

MAX_SOURCE_BYTES: Final = 96 * 1024  # all files of a program together
MAX_NESTING: Final = 200  # open brackets, and levels of the tree
MAX_TABLE_BYTES: Final = 64 * 2**20  # all files of numbers of a program together
MAX_FILES: Final = 256
MAX_USE_DEPTH: Final = 16
MAX_INTEGER: Final = 2**63 - 1
MAX_NUMBER_LENGTH: Final = 64  # characters
MAX_NAME_LENGTH: Final = 64
MAX_STRING_LENGTH: Final = 1024
MAX_SHOWN: Final = 20  # diagnostics of one run
MAX_FOUND: Final = 100  # errors after which checking of a text stops

EDITIONS: Final = (1,)
