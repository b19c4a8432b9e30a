"""How diagnostics are drawn, what they are as data, and which name is suggested."""

from __future__ import annotations

import json

import pytest

from dslc.dsl.diagnostics import CompileError, Diagnostic, Label, did_you_mean, render
from dslc.dsl.span import Source, Span

RESNET = Source("resnet50.nn", "\n" * 13 + "  y = c\n  skip = x\n  return relu(y + skip)\n}\n")


def at(source: Source, text: str, nth: int = 0) -> Span:
    start = -1
    for _ in range(nth + 1):
        start = source.text.index(text, start + 1)
    return Span(source, start, start + len(text))


def test_two_labels_on_a_line_as_the_manual_shows_them() -> None:
    diagnostic = Diagnostic(
        "E0301",
        "`+` cannot broadcast these shapes: axes 1, 2 and 3 differ",
        Label(at(RESNET, "skip", 1), "[B, 256, 56, 56]  from `skip = x`, line 15"),
        (Label(at(RESNET, "y", 1), "[B, 512, 28, 28]  from `cbr(4*mid, 1) as c`, line 14"),),
        help="project it",
        context="in bottleneck(mid=128, s=2) at stage.1.unit.0",
    )
    assert render(diagnostic) == (
        "error[E0301]: `+` cannot broadcast these shapes: axes 1, 2 and 3 differ\n"
        "  --> resnet50.nn:16:15   in bottleneck(mid=128, s=2) at stage.1.unit.0\n"
        "   |\n"
        "16 |   return relu(y + skip)\n"
        "   |               -   ^^^^ [B, 256, 56, 56]  from `skip = x`, line 15\n"
        "   |               |\n"
        "   |               [B, 512, 28, 28]  from `cbr(4*mid, 1) as c`, line 14\n"
        "   = help: project it"
    )
    plain = render(diagnostic)
    colored = render(diagnostic, color=True)
    for code in ("1;31", "1;34", "1"):
        colored = colored.replace(f"\x1b[{code}m", "")
    assert colored.replace("\x1b[0m", "") == plain and "\x1b[1;31m" in render(diagnostic, color=True)


def test_labels_on_other_lines_and_in_other_files() -> None:
    source = Source("sizes.nn", "input x\ninput w\n\n\nh = x @ w\n")
    other = Source("lib/b.nn", "nn 1\nblock b() { }\n")
    diagnostic = Diagnostic(
        "E0203",
        "`@` does not fit its arguments",
        Label(at(source, "x @ w"), "784 and 512"),
        (
            Label(at(source, "x"), "`x` is [32, 784]"),
            Label(at(source, "w"), "`w` is [512, 784]"),
            Label(at(other, "b()"), "used here"),
        ),
    )
    assert render(diagnostic) == (
        "error[E0203]: `@` does not fit its arguments\n"
        " --> sizes.nn:5:5\n"
        "  |\n"
        "1 | input x\n"
        "  |       - `x` is [32, 784]\n"
        "2 | input w\n"
        "  |       - `w` is [512, 784]\n"
        "...\n"
        "5 | h = x @ w\n"
        "  |     ^^^^^ 784 and 512\n"
        " ::: lib/b.nn:2:7\n"
        "  |\n"
        "2 | block b() { }\n"
        "  |       --- used here"
    )


def test_three_labels_and_overlaps() -> None:
    source = Source("a.nn", "f(a, b)\n")
    three = Diagnostic(
        "E0203", "no", Label(at(source, "b"), "c"), (Label(at(source, "f"), "a"), Label(at(source, "a"), "b"))
    )
    assert render(three).splitlines()[4:] == [
        "  | - -  ^ c",
        "  | | |",
        "  | | b",
        "  | a",
    ]
    overlap = Diagnostic("E0203", "no", Label(at(source, "f(a, b)"), "whole"), (Label(at(source, "a"), "part"),))
    assert render(overlap).splitlines()[4:] == [
        "  | ^^^^^^^",
        "  | | |",
        "  | | part",
        "  | whole",
    ]


@pytest.mark.parametrize(
    ("line", "place", "shown", "under"),
    [
        ("\tx\t= y", "y", "    x    = y", "           ^"),
        ("a 漢字 b", "b", "a 漢字 b", "       ^"),
        ("a 漢字 b", "漢字", "a 漢字 b", "  ^^^^"),
        ("e\u0301 b", "b", "e\u0301 b", "  ^"),
        ("\u202ea b", "b", "<U+202E>a b", "          ^"),
    ],
)
def test_underlines_stand_below_what_they_mean(line: str, place: str, shown: str, under: str) -> None:
    source = Source("a.nn", line + "\n")
    lines = render(Diagnostic("E0001", "no", Label(at(source, place), ""))).splitlines()
    assert lines[3] == f"1 | {shown}" and lines[4] == f"  | {under}"


def test_long_lines_are_cut_around_the_place() -> None:
    source = Source("a.nn", "x" * 5000 + "HERE" + "y" * 5000)
    lines = render(Diagnostic("E0001", "no", Label(at(source, "HERE"), "this"))).splitlines()
    assert max(map(len, lines)) < 140
    assert lines[3].index("HERE") == lines[4].index("^^^^")


def test_places_at_the_end_and_over_several_lines() -> None:
    source = Source("a.nn", "ab\ncd")
    assert render(Diagnostic("E0001", "no", Label(Span(source, 5, 5), "end"))).splitlines()[3:] == [
        "2 | cd",
        "  |   ^ end",
    ]
    assert render(Diagnostic("E0001", "no", Label(Span(source, 1, 5), ""))).splitlines()[3:] == ["1 | ab", "  |  ^"]
    assert "1 |" in render(Diagnostic("E0001", "no", Label(Span(Source("e", ""), 0, 0), "")))


def test_as_data() -> None:
    error = CompileError([Diagnostic("E0001", "no", Label(at(RESNET, "skip"), "here"), help="do", context="in f")] * 2)
    data = error.as_json()
    assert json.loads(json.dumps(data)) == data and len(data) == 2
    assert data[0]["code"] == "E0001" and data[0]["place"] == "resnet50.nn:15:3" and data[0]["help"] == "do"
    assert data[0]["label"] == {
        "path": "resnet50.nn", "line": 15, "column": 3, "end_line": 15, "end_column": 7, "text": "here",
    }  # fmt: skip
    assert (error.code, error.message, error.place, error.exit_code) == ("E0001", "no", "resnet50.nn:15:3", 2)


def test_at_most_twenty_are_shown() -> None:
    one = Diagnostic("E0001", "no", Label(at(RESNET, "skip"), ""))
    assert "more" not in CompileError([one] * 20).render()
    assert CompileError([one] * 21).render().endswith("\n\nand 1 more error")
    assert CompileError([one] * 25).render().count("error[E0001]") == 20


def test_did_you_mean() -> None:
    names = ["relu", "gelu", "batchnorm", "maxpool", "B"]
    assert did_you_mean("batch_norm", names) == "batchnorm"
    assert did_you_mean("ReLU", names) == "relu"
    assert did_you_mean("rleu", names) == "relu"
    assert did_you_mean("maxpol", names) == "maxpool"
    assert did_you_mean("b", names) == "B"
    assert did_you_mean("xy", names) is None
    assert did_you_mean("softmax", names) is None
    assert did_you_mean("relu", ["relu"]) is None
    assert did_you_mean("x" * 100_000, ["x" * 100_001]) is None
