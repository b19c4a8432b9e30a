"""``dslc fmt``"""

from __future__ import annotations

import difflib
import os
import stat
import sys
from pathlib import Path
from typing import Any, Final

import click

from dslc.base.errors import EXIT_DIFFERENCE, EXIT_OK, DslcError, ResourceError
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.output import emit, note, print_json, report_error, settings

STDIN: Final = "-"


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
def command(paths: tuple[str, ...], check: bool, diff: bool) -> int:
    """Put source files into the canonical layout.

    PATH is a file, a folder (all .nn files below it), or `-`: from stdin to stdout. Comments are kept.
    """
    changed: list[str] = []
    errors: list[DslcError] = []
    diffs: dict[str, str] = {}
    files = [file for path in paths for file in _files(path)]
    for file in files:
        try:
            before, after = _formatted(file)
        except DslcError as error:
            errors.append(error)
            continue
        if before != after:
            changed.append(file)
            diffs[file] = _difference(file, before, after)
        if not (check or diff):
            _write(file, before, after)
    for wrong in errors:
        if not settings().json:
            report_error(wrong, settings())
    code = errors[0].exit_code if errors else EXIT_DIFFERENCE if check and changed else EXIT_OK
    _report(files, changed, diffs if diff else {}, errors, check or diff, code)
    return code


def _files(path: str) -> list[str]:
    """The file itself, or the .nn files below a folder in order of their names; links are not followed."""
    if path == STDIN or not os.path.isdir(path):
        return [path]
    found: list[str] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        listed = (os.path.join(folder, name) for name in sorted(names) if name.endswith(".nn"))
        found += [file for file in listed if not os.path.islink(file)]
    return found


def _formatted(file: str) -> tuple[str, str]:
    """The current text and the formatted text."""
    from dslc.dsl.format.printer import format_file
    from dslc.dsl.limits import MAX_SOURCE_BYTES
    from dslc.dsl.load import decode, read_source

    if file == STDIN:
        # One byte over the limit is enough to be rejected.
        source = decode("<stdin>", sys.stdin.buffer.read(MAX_SOURCE_BYTES + 1))
    else:
        source = read_source(file)
    return source.text, format_file(source)


def _difference(file: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        one_line(file),
        f"{one_line(file)} (formatted)",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _write(file: str, before: str, after: str) -> None:
    """Writes the new text to the file and keeps its permissions; a link stays a link. stdin goes to stdout."""
    if file == STDIN:
        if not settings().json:
            sys.stdout.write(after)
        return
    if before == after:
        return
    from dslc.base.publish import publish_bytes

    target = os.path.realpath(file)
    try:
        mode = stat.S_IMODE(os.stat(target).st_mode)
    except OSError as error:
        raise ResourceError(
            "R402", f"the file is gone: {error.strerror}", place=file, help="find out what removed it"
        ) from error
    publish_bytes(target, after.encode(), verify=lambda temp: _set_mode(temp, mode))


def _set_mode(temp: Path, mode: int) -> None:
    os.chmod(temp, mode)


def _report(
    files: list[str], changed: list[str], diffs: dict[str, str], errors: list[DslcError], dry: bool, code: int
) -> None:
    data: dict[str, Any] = {"files": files, "changed": changed, "written": not dry}
    if diffs:
        data["diffs"] = diffs
    if errors:
        data |= {"errors": [item for error in errors for item in error.as_json()], "exit_code": code}
    if settings().json:
        print_json(data)
        return
    emit(data, "".join(diffs.values()).rstrip("\n"))
    for file in changed:
        if file != STDIN or dry:
            note(one_line(f"{'would change' if dry else 'changed'} {file}"))
