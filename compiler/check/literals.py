"""Parses arguments given as text on the command line or in a configuration: ``-D classes=10``."""

from __future__ import annotations

import math
import re

from dslc.base.errors import BuildError

_INT = re.compile(r"[-+]?\d[\d_]*")


def parse_argument(name: str, kind: str, text: str) -> int | float | bool | str:
    """``text`` as the declared type ``int``, ``float``, ``bool`` or ``str``; BuildError E0605."""
    place = f"-D {name}={text}"
    match kind:
        case "int" if _INT.fullmatch(text) and len(text) <= 24 and abs(int(text)) < 2**63:
            return int(text)
        case "bool" if text in ("true", "false"):
            return text == "true"
        case "str":
            return text
        case "float":
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if math.isfinite(value):
                return value
    wanted = {"int": "an int", "float": "a finite number", "bool": "true or false"}[kind]
    raise BuildError("E0605", f"`{name}` must be {wanted}, not `{text}`", place=place, help=f"-D {name}=...")
