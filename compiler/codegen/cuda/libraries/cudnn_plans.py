"""The names of cuDNN's plans, by which an artifact says how it is to compute an operation graph."""

from __future__ import annotations

import re
from typing import Final

#: A plan is an engine and its knobs, ``eng62_k2=5_k13=0``.
PLAN: Final = re.compile(r"eng(0|[1-9][0-9]{0,8})((?:_k(?:0|[1-9][0-9]{0,8})=(?:0|-?[1-9][0-9]{0,8}))*)", re.ASCII)


def engine_and_knobs(plan: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The numbers in the name of a plan; -1 and none for cuDNN's choice."""
    match = PLAN.fullmatch(plan)
    if match is None:
        return -1, ()
    pairs = [text.split("=") for text in match[2].split("_k")[1:]]
    return int(match[1]), tuple((int(knob), int(value)) for knob, value in pairs)
