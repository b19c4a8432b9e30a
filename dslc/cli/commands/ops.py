"""``dslc ops``"""

from __future__ import annotations

import click

from dslc.cli.app import Command
from dslc.cli.manual import every_page
from dslc.cli.output import emit, table


@click.command(cls=Command)
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the language's functions, or print the page of one."""
    pages = every_page()
    if name is None:
        rows = [(page.name, page.kind, page.summary) for page in pages.values()]
        emit({"ops": [page.as_json() for page in pages.values()]}, table(("name", "kind", ""), rows))
        return
    if name not in pages:
        from dslc.dsl.diagnostics import did_you_mean

        begun = [page for page in sorted(pages, key=len) if name and page.startswith(name)]
        close = begun[0] if begun else did_you_mean(name, pages)
        raise click.UsageError(f"no op {name!r}; " + (f"did you mean {close}?" if close else "`dslc ops` lists them"))
    page = pages[name]
    emit(page.as_json(), page.text())
