"""Sizes that differ because a division rounds: the help declares a multiple with which the program is right."""

from __future__ import annotations

import re

import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.dsl.diagnostics import CompileError

HEAD = """nn 1
dim B in 1..8 = 2
dim H in 16..300 = 30
dim W in 8..64 = 12
block both(x: [B, C, h, w], y: [B, C, h, w]) -> [B, C, h, w] { return x + y }
model Net(x: [B, 3, H, W]) -> [B, 4, _, _] {
  a = x |> conv(4, 3, pad=1) as a
  u = a |> conv(4, 3, stride=2, pad=1) as b |> maxpool(2) |> conv_transpose(4, 4, stride=4) as c
"""
TRAIN = "train Net(y: [B, 4, H, W]) {\n  loss = mse(output, y)\n  optimizer = sgd(lr=0.1)\n}\n"
FOUR = "they are equal if `H` is `4*KH`, with `dim KH in 4..75 = 7`, and `W` is `4*KW`, with `dim KW in 2..16 = 3`"


def declared(text: str, help: str) -> str:
    """The program with what the help declares."""
    for name, size, dim in re.findall(r"`(\w+)` is `([^`]+)`, with `(dim [^`]+)`", help):
        text = re.sub(rf"dim {name} in .*\n", f"{dim}\n", text)
        text = re.sub(rf"\b{name}\b", f"({size})" if " " in size else size, text)
    return text


@pytest.mark.parametrize(
    ("code", "body", "help"),
    [
        ("E0301", "return a + u\n}\n", FOUR),
        ("E0301", "return where(u > 0, u, a)\n}\n", FOUR),
        ("E0302", "return concat([a[:, :1], u[:, :3]], axis=1)\n}\n", FOUR),
        ("E0302", "return u\n}\n" + TRAIN, FOUR),
        ("E0302", "return both(a[:, :, :, :4], u[:, :, :, :4])\n}\n", "if `H` is `4*K`, with `dim K in 4..75 = 7`"),
        ("E0205", 'check H % 8 == 0, "eights"\nreturn a\n}\n', "if `H` is `8*K`, with `dim K in 2..37 = 3`"),
        (
            "E0301",
            "return maxpool(x[:, :1], 2)[:, :, :, :4] + conv(x, 4, 2, stride=2, pad=[1, 0])[:, :, :, :4]\n}\n",
            "",
        ),
        (
            "E0301",
            "return maxpool(a, 3, stride=2)[:, :, :, :3] + maxpool(a, 2)[:, :, :, :3]\n}\n",
            "`H` is `2*K + 1`, ",
        ),
    ],
)
def test_the_help_declares_sizes_with_which_the_program_is_right(code: str, body: str, help: str) -> None:
    with pytest.raises(CompileError, match=code) as error:
        check_program(files(HEAD + body))
    [found] = error.value.diagnostics
    assert help in (found.help or "")
    assert bool(help) is ("they are equal" in (found.help or ""))
    if help:
        check_program(files(declared(HEAD + body, found.help or "")))


def test_a_declared_result_says_so_too() -> None:
    text = HEAD.replace("[B, 4, _, _]", "[B, 4, H, W]") + "return u\n}\n"
    with pytest.raises(CompileError, match="is declared") as error:
        check_program(files(text))
    [found] = error.value.diagnostics
    assert found.help == FOUR
    check_program(files(declared(text, FOUR)))


@pytest.mark.parametrize(
    ("item", "dim"),
    [("T - 5", "T in 5..64 = 8"), ("7:", "T in 7..64 = 8"), (":20", "T in 20..64 = 20"), ("T:T - 1", "")],
)
def test_a_position_that_some_sizes_lack_names_the_lower_bound(item: str, dim: str) -> None:
    text = f"nn 1\ndim T in 1..64 = 8\nmodel M(x: [4, T]) -> RESULT {{ return x[:, {item}] }}\n"
    with pytest.raises(CompileError, match="E0304") as error:
        check_program(files(text.replace("RESULT", "[4]" if item == "T - 5" else "[4, _]")))
    [found] = error.value.diagnostics
    assert (f"raise the lower bound of the dim: `dim {dim}`" in (found.help or "")) is bool(dim)
