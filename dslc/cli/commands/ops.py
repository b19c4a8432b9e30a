"""``dslc ops``"""

from __future__ import annotations

from typing import Any

import click

from dslc.base.errors import EXIT_DIFFERENCE, EXIT_OK
from dslc.cli.app import Command
from dslc.cli.output import emit, table
from dslc.cli.views.manual import Page, every_page, pages_of


@click.command(cls=Command)
@click.argument("name", required=False)
@click.option("--package", metavar="ENTRY", help="Those of an installed package, by its entry point.")
@click.option("--test", is_flag=True, help="Run the laws of ops over the examples of the package.")
def command(name: str | None, package: str | None, test: bool) -> int:
    """List the language's functions, or print the page of one."""
    if test and (package is None or name is not None):
        raise click.UsageError("--test needs --package, and no NAME")
    if package is not None and test:
        return _test(package)
    head, data, pages = ("", {}, every_page()) if package is None else _of_package(package)
    if name is None:
        rows = [(page.name, page.kind, page.summary) for page in pages.values()]
        emit({**data, "ops": [page.as_json() for page in pages.values()]}, head + table(("name", "kind", ""), rows))
        return EXIT_OK
    if name not in pages:
        from dslc.dsl.diagnostics import did_you_mean
        from dslc.dsl.other_calls import method_hint
        from dslc.dsl.other_names import function_hint

        begun = [page for page in sorted(pages, key=len) if name and page.startswith(name)]
        close = begun[0] if begun else did_you_mean(name, pages)
        last = name.rpartition(".")[2]
        elsewhere = function_hint(last) or method_hint(last)  # before a near name, which means something else
        hint = elsewhere or (f"did you mean {close}?" if close else "`dslc ops` lists them")
        raise click.UsageError(f"no op {name!r}; {hint}")
    page = pages[name]
    emit(page.as_json(), page.text())
    return EXIT_OK


def _of_package(entry: str) -> tuple[str, dict[str, Any], dict[str, Page]]:
    """The lines before the list, the data, and the pages of a package."""
    from dslc.compiler.ops.packages.find import package_or_error
    from dslc.compiler.ops.registry import load_all

    load_all()
    found = package_or_error(entry)
    head = (
        f'{found.name} {found.version}, sha256:{found.digest}\nuse "entry:{entry}" ({", ".join(found.functions)})\n\n'
    )
    return head, {"package": found.provenance}, pages_of(found.functions)


def _test(entry: str) -> int:
    """Runs the laws; exit code 1 if one is broken."""
    from dslc.compiler.ops.registry import load_all
    from dslc.testing import check_package

    load_all()
    broken = check_package(entry)
    lines = [str(each) for each in broken] or [f"all laws hold for the examples of `{entry}`"]
    data = [
        {"function": b.function, "example": b.example, "law": b.law, "device": b.device, "why": b.why} for b in broken
    ]
    emit({"broken": data}, "\n".join(lines))
    return EXIT_DIFFERENCE if broken else EXIT_OK
