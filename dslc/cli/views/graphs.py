"""Text views of graphs: the changes of a pass, the memory addresses of values."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dslc.compiler.ir.program import Program

_VALUE: Final = re.compile(r"%\d+")
_CONTEXT: Final = 2  # unchanged lines shown around a change


def difference(before: str, after: str) -> str:
    """Removed lines (``-``) and new ones (``+``). Lines that differ only in value numbers count as equal."""
    old, new = before.splitlines(), after.splitlines()
    matcher = difflib.SequenceMatcher(
        None, [_VALUE.sub("%", line) for line in old], [_VALUE.sub("%", line) for line in new], autojunk=False
    )
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        lines.append("...")
        for tag, i, j, k, m in group:
            if tag == "equal":
                lines += [f"  {line}" for line in new[k:m]]
            else:
                lines += [f"- {line}" for line in old[i:j]]
                lines += [f"+ {line}" for line in new[k:m]]
    return "\n".join(lines[1:]) + "\n" if lines else "the graph did not change\n"


def memory_text(program: Program) -> str:
    """The address of each value after the memory pass; before it an empty text."""
    from dslc.compiler.ir.text import numbering

    memory = program.memory
    if memory is None:
        return ""
    number = numbering(program.graph)
    rows = sorted((number[value], place, value.type) for value, place in memory.places.items() if value in number)
    lines = [f"%{index} at {place.region}+{place.offset} : {type}" for index, place, type in rows]
    lines.append(f"io {memory.io_bytes} bytes, work {memory.work_bytes} bytes, lower bound {memory.lower_bound} bytes")
    return "\n".join(["", *lines]) + "\n"
