"""The allowed names of an artifact: it becomes a Python module, and must not hide another one."""

from __future__ import annotations

import keyword
import re
import sys
from typing import Final

IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

#: Imports of the compiler and the runtime: with ``build/`` first on ``sys.path``, `import numpy` would find the model.
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
        "wandb",
        "trackio",
        "mlflow",
    }
)


def module_name_problem(name: str) -> str | None:
    """The problem with a module name, as the end of a sentence that begins with the name; None if the name is
    allowed."""
    if not IDENTIFIER.fullmatch(name) or name.startswith("__"):
        return "is not an identifier of at most 64 letters, digits and underscores"
    if keyword.iskeyword(name):
        return "is a Python keyword"
    if name in sys.stdlib_module_names or name in _OURS:
        return "is the name of a Python module, which `import` would hide"
    return None
