"""Errors about values of ``dslc.yaml`` say where they stand there; an artifact that is there is no way around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MODEL = """nn 1
dim B in 1..64 = 8

model Net(x: [B, 2], hidden: int = 4) -> [B, 2] {
  return x |> linear(hidden) as fc |> relu |> linear(2) as head
}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.nn").write_text(MODEL)
    return tmp_path


WRONG = {
    "args:  {hiden: 3}": ("E0605", "dslc.yaml:2:16"),
    "args:  {hidden: x}": ("E0605", "dslc.yaml:2:17"),
    "build: {target: gpx}": ("E0601", "dslc.yaml:2:17"),
    "build: {precision: f8}": ("E0602", "dslc.yaml:2:20"),
    "build: {providers: none}": ("E0603", "dslc.yaml:2:20"),
    "build: {sizes: {predict: {B: 65}}}": ("E0304", "dslc.yaml:2:16"),
    "build: {sizes: {B: 65}}": ("E0304", "dslc.yaml:2:16"),
    "build: {sizes: {train: 8}}": ("E0603", "dslc.yaml:2:16"),
    "build: {sizes: {train: {B: many}}}": ("E0603", "dslc.yaml:2:16"),
    "build: {streams: 99}": ("E0603", "dslc.yaml:2:18"),
}


@pytest.mark.parametrize(
    ("line", "command"),
    # an artifact of other sizes is taken as it is, so bench does not look at them
    [
        (line, command)
        for line in WRONG
        for command in ("build", "bench")
        if (command, "sizes" in line) != ("bench", True)
    ],
)
def test_the_place_is_the_line_of_the_file(dslc: Callable, project: Path, line: str, command: str) -> None:
    code, place = WRONG[line]
    (project / "dslc.yaml").write_text("model: net.nn\n")
    assert dslc("build").code == 0, "an artifact is there"
    (project / "dslc.yaml").write_text(f"model: net.nn\n{line}\n")
    ran = dslc(command)
    assert ran.code == 2 and f"error[{code}]" in ran.err and f"--> {place}\n" in ran.err, ran.err


def test_a_flag_keeps_its_name(dslc: Callable, project: Path) -> None:
    (project / "dslc.yaml").write_text("model: net.nn\nargs: {hidden: 3}\nbuild: {target: cpu}\n")
    assert "--> -D hidden" in dslc("build", "-D", "hidden=x").err
    assert "--> --target" in dslc("build", "--target", "gpx").err
    assert "--> -D hidden" in dslc("check", "net.nn", "-D", "hidden=x").err


def test_check_and_show_say_it_too(dslc: Callable, project: Path) -> None:
    (project / "dslc.yaml").write_text("model: net.nn\nargs: {hidden: x}\n")
    for command in (("check",), ("show",), ("show", "--after", "fuse")):
        assert "--> dslc.yaml:2:16" in dslc(*command).err


@pytest.mark.parametrize(
    ("command", "help"), [("build", "FILE.nn"), ("check", "FILE.nn"), ("show", "FILE.nn"), ("info", "build/NAME")]
)
def test_without_a_configuration_the_help_is_one_that_the_command_takes(
    dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, help: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = dslc(command)
    assert ran.code == 3 and help in ran.err and "dslc new NAME" in ran.err and "--config" not in ran.err
    assert "--config" in dslc("train").err
