"""``dslc mem``"""

from __future__ import annotations

import click

from dslc.cli.app import Command
from dslc.cli.artifacts import (
    PROGRAM_HEAD,
    PROGRAM_RIGHT,
    find_artifact,
    largest_buffers,
    program_data,
    program_row,
    state_bytes,
)
from dslc.cli.output import emit, size_text, table


@click.command(cls=Command)
@click.argument("artifact", required=False)
@click.option("--top", type=click.IntRange(0, 1000), default=5, metavar="N", help="Show the N largest buffers; 5.")
def command(artifact: str | None, top: int) -> None:
    """Show planned memory, its lower bound, the largest buffers.

    ARTIFACT is a .dslc file or its folder; without it, that of ./dslc.yaml.
    """
    from dslc.runtime.artifact import read_artifact

    path = find_artifact(artifact)
    found = read_artifact(path)
    programs = found.all_programs()
    state = found.header["state"]["bytes"]
    context = max(p.io_bytes + p.work_bytes for p in programs)
    kinds = state_bytes(found)
    largest = max(programs, key=lambda p: p.io_bytes + p.work_bytes)
    buffers = largest_buffers(found.plan(largest), top)
    lines = [
        table(PROGRAM_HEAD, [program_row(p) for p in programs], PROGRAM_RIGHT),
        "",
        f"state    {size_text(state)}  ({', '.join(f'{kind} {size_text(n)}' for kind, n in kinds.items())})",
        f"context  {size_text(context)}  (io and work of the largest entry, {largest})",
        f"in all   {size_text(state + context)}",
    ]
    if buffers:
        rows = [(size_text(size), type, where) for size, type, where in buffers]
        lines += ["", f"largest buffers of {largest}:", table(("bytes", "type", "written by"), rows, (0,))]
    data = {
        "path": str(path),
        "state_bytes": state,
        "context_bytes": context,
        "programs": [program_data(p) for p in programs],
        "largest": [{"bytes": size, "type": type, "where": where} for size, type, where in buffers],
    }
    emit(data, "\n".join(lines))
