"""No command lets text of a file, of whatever kind, reach a terminal as it is: not in results, errors or warnings."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile.hostile_text import ALL, CASES, FILE, NASTY, lay_out, safetensors

from dslc.base.errors import CODES, DslcError, DslcWarning
from dslc.base.visible import one_line, visible
from dslc.cli.app import app

#: What stands in the output in place of the first escape: by its number, as Python quotes it, or as JSON does.
MARKS = ("<U+001B>", "\\x1b", "\\u001b")


def faults(text: str) -> list[str]:
    """The characters of an output that a terminal would obey or hide, and lines that a file has forged."""
    found = [repr(c) for c in text if c not in "\n" and (unicodedata.category(c)[0] == "C" or c in "\u2028\u3164")]
    return found + re.findall(r"(?m)^\s*FORGED.*$", text)


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dslc.cli.app import run

    folder = tmp_path_factory.mktemp("hostile")

    def built() -> Path:
        if not (folder / "build").exists():
            assert run(["train"]) == 0
            (folder / "build/net/net.safetensors").rename(folder / "sound.safetensors")
        return folder / "build/net/net.dslc"

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lay_out(folder, built)
    return folder


def test_every_command_has_cases() -> None:
    assert set(CASES) == set(app.list_commands(None)), "a new command: what hostile text can come to it?"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "form"),
    [
        pytest.param(command, form, marks=[pytest.mark.slow] if command == "bench" and form != "text" else [])
        for command in CASES
        for form in ("text", "json", "debug")
    ],
)
def test_no_command_prints_it(
    dslc: Callable, laid_out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, form: str
) -> None:
    import shutil

    shutil.copytree(laid_out, tmp_path / "p", symlinks=True)
    monkeypatch.chdir(tmp_path / "p")
    if command == "cache":
        monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / FILE))
    met = 0
    for call in CASES[command]:
        ran = dslc(*call, *([] if form == "text" else [f"--{form}"]))
        assert ran.code != 70, (call, ran)
        assert not faults(ran.out), (call, faults(ran.out), ran.out)
        assert not faults(ran.err), (call, faults(ran.err), ran.err)
        if form == "json":
            assert isinstance(json.loads(ran.out), dict), call
        met += any(mark in ran.out + ran.err for mark in MARKS)
    assert met * 2 >= len(CASES[command]), "hardly any of it came to the command"


@pytest.mark.parametrize("command", ["train", "check", "info", "config"])
def test_nor_on_a_terminal(laid_out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Where colours and a bar of progress are drawn: nothing else of ours may be told from them."""
    import pty
    import shutil
    import subprocess
    import sys

    shutil.copytree(laid_out, tmp_path / "p", symlinks=True)
    for call in CASES[command][:2]:
        leader, follower = pty.openpty()
        ran = subprocess.Popen(
            [sys.executable, "-m", "dslc", *call], stdin=follower, stdout=follower, stderr=follower, cwd=tmp_path / "p",
            env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": ""},
        )  # fmt: skip
        os.close(follower)
        parts = []
        while True:
            try:
                part = os.read(leader, 1 << 16)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
        os.close(leader)
        ran.wait(timeout=60)
        text = b"".join(parts).decode()
        ours = re.sub(r"\x1b\[([0-9;]*m|\?25[lh]|2?K|[0-9]*A)|\r", "", text)  # rich's and our own
        assert not faults(ours.replace("\t", "")), (call, faults(ours), text)
        assert "n\x1b[31m" not in text, "a colour of theirs"
        assert "💀" not in text and "\x1b]8" not in text


def test_nor_do_files_that_are_written_for_people(dslc: Callable, laid_out: Path, tmp_path: Path) -> None:
    os.chdir(laid_out)
    assert dslc("show", f"{FILE}.nn", "--svg", tmp_path / "g.svg").code == 0
    assert dslc("build", "net.nn", "--report", tmp_path / "r.html", "-o", tmp_path / "b").code == 0
    for name in ("g.svg", "r.html", "b/net/__init__.pyi", "b/net/report.html"):
        text = (tmp_path / name).read_text()
        assert not faults(text) and "<b onload" not in text, name


def test_errors_and_warnings_show_themselves_in_python() -> None:
    error = DslcError("R101", f"it holds {ALL}", place=ALL, help=ALL)
    assert not faults(str(error))
    assert str(error).count("\n") == 2, "one line each for message, place and help"
    assert error.message.endswith(ALL) and error.place == ALL, "a program gets them as they are"
    warning = DslcWarning("W004", ALL)
    assert not faults(str(warning)) and "\n" not in str(warning)


@pytest.mark.parametrize("code", CODES)
def test_no_code_is_without_an_escape(code: str) -> None:
    assert not faults(DslcError(code, ALL, place=ALL, help=ALL).render())


def test_lines_of_a_run() -> None:
    from dslc.runtime.train.progress import Lines

    stream = io.StringIO()
    lines = Lines(stream)
    lines.line(ALL)
    lines.warn(ALL)
    assert not faults(stream.getvalue()) and stream.getvalue().count("\n") == 2


def test_what_a_stream_cannot_hold_is_written_by_number() -> None:
    from dslc.runtime.train.progress import Lines

    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Lines(stream).line("Größe \u00e9")
    stream.flush()
    assert raw.getvalue() == b"Gr\\xf6\\xdfe \\xe9\n"


def test_every_character(fuzz_seed: int) -> None:
    """All of the basic plane; of the planes above it a part that the seed decides, all of them with DSLC_SOAK=1."""
    share = 1 if os.environ.get("DSLC_SOAK") == "1" else 16
    for number in (*range(0x10000), *range(0x10000 + fuzz_seed % share, 0x110000, share)):
        char = chr(number)
        shown = visible(char)
        assert not (faults(shown) if char not in "\t" else []), hex(number)
        assert one_line(char) == (f"<U+{number:04X}>" if shown != char or char in "\n\t" else char)
        assert one_line(one_line(char)) == one_line(char)
    for plain in ("", "plain", "Grüße", "日本語", "naïve 한글 עברית", "a `b` \\x1b"):
        assert one_line(plain) == visible(plain) == plain


#: Files that may write to a stream, each with why.
WRITERS = {
    "cli/output.py": "the one way to a terminal",
    "cli/progress.py": "draws over its own line, with what it made visible",
    "cli/commands/fmt.py": "`dslc fmt -` gives back the source itself",
    "cli/doctor/probes.py": "answers its parent process in JSON",
    "runtime/data/worker.py": "likewise",
    "runtime/sweep/trial.py": "likewise",
    "runtime/sweep/output.py": "writes a file, as bytes of the training's own lines",
    "dsl/tables.py": "makes a table of the grammar; no command runs it",
    "runtime/ranks/watch.py": "the last words of a process that does not end: an error's visible text",
    "runtime/ranks/launch.py": "what a process wrote, each line made visible",
    "runtime/train/progress.py": "the lines and the bar of a run, which it makes visible",
}


def test_nothing_else_writes_to_a_terminal() -> None:
    import dslc

    found = set()
    for package in dslc.__path__:
        for folder, _, names in os.walk(package, followlinks=True):
            for name in names:
                file = os.path.join(folder, name)
                if name.endswith(".py") and any(_prints(node) for node in ast.walk(ast.parse(Path(file).read_text()))):
                    found.add(os.path.relpath(file, package))
    assert found == set(WRITERS)


def _prints(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return bool(
        re.fullmatch(
            r"print|(click\.)?(echo|secho)|traceback\.print_\w+|(sys\.)?(__)?std(out|err)(__)?\.write(lines)?|stream\.write|"
            r"self\._console\.print",
            called,
        )
    )


def test_the_cases_hold_what_they_are_meant_to() -> None:
    assert all(c in NASTY for c in "\x1b\x7f\x9b\u202e\u200b\n\r[") and "\ud800" in ALL and "\udcff" in FILE
    assert safetensors({}) == b"\x02" + bytes(7) + b"{}"
