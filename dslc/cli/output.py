"""The output of commands: text for people, one JSON object for programs, errors in both forms."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from dslc.base.errors import DslcError
from dslc.base.visible import fitting, one_line, visible
from dslc.base.words import size_text as size_text

if TYPE_CHECKING:
    from dslc.compiler.check.model import Checked

_SLOW: Final = 3  # slow lines told after a build; the report has all


@dataclass
class Settings:
    """The global options. ``json``: print data. ``debug``: print tracebacks."""

    json: bool = False
    debug: bool = False


def settings() -> Settings:
    """The options of the running command."""
    found = click.get_current_context().find_root().obj
    assert isinstance(found, Settings)
    return found


def use_color(stream: TextIO) -> bool:
    """Colour on a terminal, unless NO_COLOR is set (https://no-color.org) or the terminal is dumb."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(text: str, *, err: bool = False) -> None:
    """Prints one or several lines, without characters that a terminal would obey. All terminal output passes here."""
    _write(visible(text), err)


def say_part(text: str) -> None:
    """Prints a part of a line on stdout at once."""
    click.echo(fitting(visible(text), sys.stdout), nl=False)
    sys.stdout.flush()


def say_styled(text: str) -> None:
    """Prints text with our colours on stderr; its parts must have been made visible before they were coloured."""
    _write(text, True)


def _write(text: str, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    click.echo(fitting(text, stream), err=err, color=use_color(stream) or None)


def emit(data: dict[str, Any], text: str) -> None:
    """Prints the result of a command: ``data`` with --json, else ``text``."""
    if settings().json:
        print_json(data)
    elif text:
        say(text)


def print_json(data: dict[str, Any]) -> None:
    """Prints one object on stdout. NaN and infinities, which JSON lacks, become the texts "nan", "inf", "-inf"."""
    text = json.dumps(_finite(data), ensure_ascii=True, allow_nan=False, indent=1)
    say(text.replace("\x7f", "\\u007f"))  # the one control character that JSON does not escape


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data


def note(text: str) -> None:
    """Prints a line on stderr in addition to the result; silent with --json, whose data contain it."""
    if not settings().json:
        say(text, err=True)


def note_styled(text: str) -> None:
    """``note`` for text as ``say_styled`` takes it."""
    if not settings().json:
        say_styled(text)


def tell_warnings(found: Iterable[Checked], codes: Container[str] | None = None) -> None:
    """Prints the check's warnings about models on stderr: those in ``codes``, or all. Models of one file share blocks,
    so each warning is printed once."""
    from dslc.dsl.diagnostics import render

    shown = {(d.code, d.label.span): d for checked in found for d in checked.warnings}
    for diagnostic in shown.values():
        if codes is None or diagnostic.code in codes:
            note_styled(render(diagnostic, use_color(sys.stderr)) + "\n")


def tell_slow(found: Sequence[Mapping[str, Any]]) -> None:
    """Prints warning W011 on stderr for the worst of a build's slow lines; ``found``: as ``facts["slow"]``."""
    from dslc.compiler.report.slow import Slow

    slow = [Slow(**each) for each in found]
    for each in slow[:_SLOW]:
        lines = [f"warning[W011]: {one_line(each.text())}", f"  = help: {one_line(each.help)}"]
        if each.place is not None:
            lines.insert(1, f"  --> {one_line(each.place)}")
        note_styled("\n".join(map(_colored, lines) if use_color(sys.stderr) else lines))
    if len(slow) > _SLOW:
        note(f"{len(slow) - _SLOW} more such lines stand in the report")


def error_text(error: DslcError, color: bool) -> str:
    """The rendered error; the first line of each message is bold and red on a terminal."""
    if not color:
        return error.render()
    language = sys.modules.get("dslc.dsl.diagnostics")  # loaded by whatever raised a CompileError
    if language is not None and isinstance(error, language.CompileError):
        return str(error.render(color=True))
    text = error.render()
    lines = text.split("\n")
    return "\n".join(_colored(line) for line in lines)


def _colored(line: str) -> str:
    kind, bracket, rest = line.partition("[")
    if bracket and kind in ("error", "warning") and "]: " in rest:
        head, _, title = line.partition(": ")
        return click.style(head, fg="red" if kind == "error" else "yellow", bold=True) + click.style(
            f": {title}", bold=True
        )
    if line.lstrip().startswith("= help:"):
        return click.style(line, fg="cyan")
    if line.lstrip().startswith("--> "):
        return click.style(line, fg="blue")
    return line


def report_error(error: DslcError, options: Settings) -> None:
    """Prints an error as JSON on stdout, or as text on stderr."""
    if options.json:
        print_json({"errors": error.as_json(), "exit_code": error.exit_code})
    else:
        say_styled(error_text(error, use_color(sys.stderr)))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns two spaces apart; the columns whose indices are in ``right`` are right-aligned."""
    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "  ".join(cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)
