"""Which names an artifact may have: it becomes a Python module, and must hide no other."""

from __future__ import annotations

import keyword
import re
import sys
from typing import Final

IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

#: What the compiler and the runtime import: with ``build/`` first on ``sys.path``, `import numpy` would find the model.
_OURS: Final = frozenset(
    {
        "dslc",
        "numpy",
        "safetensors",
        "llvmlite",
        "numba",
        "lark",
        "click",
        "rich",
        "yaml",
        "cuda",
        "PIL",
        "tensorboardX",
    }
)


def module_name_problem(name: str) -> str | None:
    """What is wrong with a module's name, as the end of a sentence that begins with it; None if nothing is."""
    if not IDENTIFIER.fullmatch(name) or name.startswith("__"):
        return "is no identifier of at most 64 letters, digits and underscores"
    if keyword.iskeyword(name):
        return "is a word of Python"
    if name in sys.stdlib_module_names or name in _OURS:
        return "is the name of a Python module, which `import` would hide"
    return None
