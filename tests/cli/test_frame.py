"""The frame of the command line: help, exit codes, errors in both forms, start-up time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module

import click
import pytest
from pace import started, within

from dslc import __version__
from dslc.base.errors import CODES, DslcError
from dslc.cli import app, table


def test_help_names_every_command(dslc: Callable) -> None:
    ran = dslc("--help")
    assert ran.code == 0
    for name, entry in table.COMMANDS.items():
        assert entry.section in table.SECTIONS
        assert f"  {name} " in ran.out and entry.summary in ran.out  # on one line


@pytest.mark.parametrize("name", table.COMMANDS)
def test_every_command_has_the_help_of_the_table(name: str, dslc: Callable) -> None:
    command = import_module(f"dslc.cli.commands.{table.COMMANDS[name].module}").command
    assert isinstance(command, click.Command) and command.name in (name, "command")
    assert (command.help or "").split("\n")[0] == table.COMMANDS[name].summary
    ran = dslc(name, "--help")
    assert ran.code == 0 and "--json" in ran.out


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_help_fits_the_terminal(columns: int, dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in ("", *table.COMMANDS):
        text = dslc(*([name] if name else []), "--help").out
        assert text.startswith("Usage: dslc") and "--json" in text
        assert max(map(len, text.splitlines())) <= columns, (name, max(text.splitlines(), key=len))


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys\nfrom dslc.cli.app import run\nrun(['--help'])\n"
        "heavy = {'numpy', 'lark', 'numba', 'rich', 'yaml', 'safetensors', 'cuda'}\n"
        "found = [m for m in sys.modules if m.partition('.')[0] in heavy or m.startswith('dslc.cli.commands')"
        " or m.startswith(('dslc.compiler', 'dslc.runtime', 'dslc.dsl'))]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("command", "reference"),
    [(["-m", "dslc", "--help"], "import click"), (["-c", "import dslc"], "pass")],
    ids=["help", "import"],
)
def test_the_start_takes_little_more_than_python_s(command: list[str], reference: str) -> None:
    """0.06 s for the help on a core of an AMD EPYC of 2023, of which click takes 0.02 s and Python itself the rest:
    1.05 times the reference; 1.03 for the import."""
    assert within(started(*command), started("-c", reference), 1.6)


def test_version(dslc: Callable) -> None:
    assert dslc("--version").out == f"dslc {__version__}\n"
    assert dslc("--json", "--version").json == dslc("--version", "--json").json == {"dslc": __version__}


def test_an_unknown_command_names_the_nearest(dslc: Callable) -> None:
    ran = dslc("explan")
    assert ran.code == 2 and "did you mean `dslc explain`?" in ran.err and not ran.out
    assert dslc("--json", "explan").json["errors"][0]["code"] == "usage"
    assert dslc("explan", "--json").json["errors"][0]["help"] == "dslc --help"
    assert dslc("train", "--epoch", "3", "--json").json["errors"][0]["help"] == "dslc train --help"
    assert dslc("explain", "E9999", "--json").json["errors"][0]["help"] == "dslc explain --help"


def raise_in_explain(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(code: str) -> str:
        raise error

    monkeypatch.setattr("dslc.cli.commands.explain.page", fail)


def test_a_users_error_has_the_exit_code_of_its_family(dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, status in (("E0301", 2), ("E0402", 6), ("R101", 3), ("R201", 4), ("R301", 5), ("R402", 6), ("R501", 7)):
        raise_in_explain(monkeypatch, DslcError(code, "cause", place="here", help="do this"))
        ran = dslc("explain", "E0001")
        assert ran.code == status
        assert ran.err == f"error[{code}]: cause\n  --> here\n  = help: do this\n" and not ran.out
        data = dslc("explain", "E0001", "--json").json
        assert data == {
            "errors": [{"code": code, "message": "cause", "place": "here", "help": "do this"}],
            "exit_code": status,
        }
        assert "Traceback" in dslc("--debug", "explain", "E0001").err


def test_a_bug_ends_in_one_line_and_70(dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in_explain(monkeypatch, ZeroDivisionError("planted"))
    ran = dslc("explain", "E0001")
    assert ran.code == 70 and ran.err.count("\n") == 1
    assert ran.err.startswith("internal error: ZeroDivisionError: planted") and "report it" in ran.err
    ran = dslc("explain", "--debug", "E0001")
    assert ran.code == 70 and "Traceback" in ran.err
    assert dslc("--json", "explain", "E0001").json["errors"][0]["code"] == "internal"


def test_out_of_memory_and_interrupts(dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in_explain(monkeypatch, MemoryError())
    ran = dslc("explain", "E0001")
    assert ran.code == 6 and ran.err.startswith("error[R401]")
    raise_in_explain(monkeypatch, KeyboardInterrupt())
    assert dslc("explain", "E0001").code == 130


@pytest.mark.parametrize("args", [["explain"], ["--help"], ["--json", "explain", "E9999"]])
def test_a_reader_that_goes_away_is_no_bug(args: list[str]) -> None:
    command = [sys.executable, "-m", "dslc", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()  # long before it has started
        said = process.stderr.read()
    assert process.returncode == app.EXIT_PIPE == 141 and said == ""


def test_an_interrupt_before_it_has_begun_leaves_no_traceback() -> None:
    # what is imported first for a command is where the interrupt comes
    text = (
        "import builtins, sys\nreal = builtins.__import__\n"
        "def interrupted(name, *args, **named):\n"
        "    if name == 'dslc.cli.output': raise KeyboardInterrupt\n"
        "    return real(name, *args, **named)\n"
        "builtins.__import__ = interrupted\nfrom dslc.cli import main\nmain()\n"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 130 and ran.stderr == ""


def test_explain_lists_and_prints(dslc: Callable) -> None:
    assert dslc("explain", "--json").json["codes"] == CODES
    ran = dslc("explain", "e0301")
    assert ran.code == 0 and ran.out.startswith(f"# E0301: {CODES['E0301']}\n")
    assert dslc("explain", "R501", "--json").json["exit_code"] == 7
    assert dslc("explain", "E9999").code == 2


def test_colour_only_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    from dslc.cli.output import error_text

    error = DslcError("E0301", "cause", place="here", help="do this")
    assert click.unstyle(error_text(error, color=True)) == error.render() != error_text(error, color=True)


def test_lines_of_a_table_are_aligned() -> None:
    from dslc.cli.output import size_text, table

    assert table(("a", "bytes"), [("x", "1"), ("long", "100")], right=(1,)) == "a     bytes\nx         1\nlong    100"
    assert [size_text(n) for n in (0, 1023, 1536, 1 << 20, 5 << 40)] == ["0 B", "1023 B", "1.5 KiB", "1 MiB", "5 TiB"]


def test_json_has_no_numbers_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    from dslc.cli.output import print_json

    print_json({"a": [float("nan"), 1.5], "b": {"c": float("-inf")}})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"a": ["nan", 1.5], "b": {"c": "-inf"}}


def test_a_warning_is_one_line_with_its_code(dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    from dslc.base.errors import DslcWarning

    def warn(code: str) -> str:
        warnings.warn(DslcWarning("W002", "the folder is not ours"), stacklevel=1)
        return "page"

    monkeypatch.setattr("dslc.cli.commands.explain.page", warn)
    for _ in range(2):
        ran = dslc("explain", "E0001")
        assert ran.code == 0 and ran.err == "warning[W002]: the folder is not ours\n"
