"""The name of an artifact: an identifier that hides no module of Python's own."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

from dslc.base.errors import BuildError
from dslc.compiler.check.model import Checked

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def artifact_name(checked: Checked, wanted: str | None) -> str:
    """``wanted``; else the file's stem when it holds one model, else the model's name in lower case. E0604."""
    if wanted is not None:
        name = wanted
    else:
        models = sum(1 for item in checked.module.file.items if getattr(item, "kind", None) == "model")
        stem = re.sub(r"[^A-Za-z0-9_]", "_", Path(checked.module.source.path).stem)
        name = stem if models == 1 else checked.name.lower()
    problem = None
    if not _IDENTIFIER.fullmatch(name) or name.startswith("__"):
        problem = "is no identifier of at most 64 letters, digits and underscores"
    elif keyword.iskeyword(name):
        problem = "is a word of Python"
    elif name in sys.stdlib_module_names or name == "dslc":
        problem = "is the name of a Python module, which `import` would hide"
    if problem:
        raise BuildError("E0604", f"`{name}` {problem}", place="--name", help="choose another with --name")
    return name
