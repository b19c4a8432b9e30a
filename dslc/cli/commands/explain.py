"""``dslc explain``"""

from __future__ import annotations

import click

from dslc.base.errors import CODES, exit_code
from dslc.base.explain import page
from dslc.cli.app import Command
from dslc.cli.output import emit, table


@click.command(cls=Command)
@click.argument("code", required=False)
def command(code: str | None) -> None:
    """Print the page of an error code.

    Without CODE, list all codes.
    """
    if code is None:
        rows = [(name, title) for name, title in CODES.items()]
        emit({"codes": dict(rows)}, table(("code", "title"), rows))
        return
    name = code.upper()
    if name not in CODES:
        from difflib import get_close_matches

        close = get_close_matches(name, CODES, 1)
        raise click.UsageError(
            f"no error code {code!r}; " + (f"did you mean {close[0]}?" if close else "`dslc explain` lists them")
        )
    text = page(name)
    status = None if name.startswith("W") else exit_code(name)
    emit({"code": name, "title": CODES[name], "exit_code": status, "page": text}, text.rstrip("\n"))
