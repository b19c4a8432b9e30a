"""W014: what the checked file declares and nothing reads is told once, at its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_all, check_file, check_program
from dslc.dsl.diagnostics import CompileError, Diagnostic

NET = """nn 1
dim B in 1..64 = 6
{items}
model Net(x: [B, 4]{params}) -> [B, 3] {{
  {body}
  return x |> linear(3) as head
}}
train Net(label: i32[B]{given}) {{
  {entries}
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}}
"""


def found(
    items: str = "", params: str = "", body: str = "", given: str = "", entries: str = "", code: str = "W014"
) -> list[Diagnostic]:
    text = NET.format(items=items, params=params, body=body, given=given, entries=entries)
    return [w for w in check_program(files(text)).warnings if w.code == code]


@pytest.mark.parametrize(
    ("where", "text", "title", "place"),
    [
        ("items", "const WIDTH = 3", "the constant `WIDTH` is never used", "WIDTH"),
        ("items", "dim T in 1..9 = 2", "the dim `T` is never used", "T"),
        ("items", "block twice(x: [N, C]) -> [N, C] { return 2 * x }", "the block `twice` is never used", "twice"),
        ("params", ", classes: int = 3", "`classes` of `Net` is never read", "classes"),
        ("body", "layer first = linear(4)", "the layer `first` is never used", "first"),
        ("body", "y = relu(x)", "the variable `y` is never used", "y"),
        ("given", ", weight: float = 0.5", "`weight` of `train` is never read", "weight"),
        ("entries", "more = 2 * 3", "`more` of `train` is never read", "more"),
    ],
)
def test_it_is_told_at_its_place(where: str, text: str, title: str, place: str) -> None:
    [warning] = found(**{where: text})
    assert warning.title == title and warning.label.span.text == place and warning.help


@pytest.mark.parametrize(
    ("entry", "help"),
    [
        ("epochs = 10", "dslc.yaml sets it: `train: {epochs: ...}`"),
        ("batch_size = 32", "build: {sizes: {train: {B: 64}}}"),
        ("scheduler = 1", "cosine"),
        ("other = 1", "use it, or remove it"),
    ],
)
def test_a_setting_of_the_configuration_in_the_train_section(entry: str, help: str) -> None:
    [warning] = found(entries=entry)
    assert help in str(warning.help)


@pytest.mark.parametrize(
    "parts",
    [
        {"items": "const K = 2\ndim T = K\nblock same(x: [N, C]) -> [N, C] { return x }",
         "body": "x = x + mean(same(x)[:, :T])"},
        {"params": ", n: int = 3", "body": "x = x * n"},
        {"params": ", n: float = 3", "entries": "metrics { m = n * mean(output) }"},
        {"body": "_y = relu(x)"},
        {"body": "a, b = split(x, 2)\n  check len(a.shape) == 2"},
        {"body": "param w: [4] = zeros\n  x = x + w"},
        {"body": "x = relu(x)\n  for i in 0..2 { x = x |> linear(4) }"},
        {"given": ", weight: float = 0.5", "entries": "metrics { m = weight * mean(output) }"},
        {"entries": "more = mean(output); metrics { m = more }"},
    ],
)  # fmt: skip
def test_what_is_read_is_not_told(parts: dict[str, str]) -> None:
    assert not found(**parts)


def test_what_w008_tells_is_not_told_again() -> None:
    for body in ("param w: [8] = zeros", "y = x |> linear(4) as aux"):
        assert len(found(body=body, code="W008")) == 1 and not found(body=body)


def test_a_file_that_is_used_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "parts.nn").write_text(
        "nn 1\nconst A = 1\nblock one(x: [N, C], k: int = 1) -> [N, C] { return x }\n"
        "block two(x: [N, C]) -> [N, C] { return x }\n"
    )
    (tmp_path / "net.nn").write_text("nn 1\nuse parts (one, two)\nmodel M(x: [2, 2]) -> [2, 2] { return one(x) }\n")
    [warning] = check_file(tmp_path / "net.nn").warnings
    assert warning.title == "the imported name `two` is never used" and warning.label.span.line == 2


def test_a_block_that_another_model_of_the_file_uses(tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text(
        "nn 1\nblock one(x: [N, C]) -> [N, C] { return x }\nmodel A(x: [2, 2]) -> [2, 2] { return one(x) }\n"
        "model B(x: [2, 2]) -> [2, 2] { return x }\n"
    )
    assert not [w for checked in check_all(tmp_path / "net.nn") for w in checked.warnings]


@pytest.mark.parametrize(
    ("arguments", "result", "body", "unread"),
    [
        ("x: [N, C], like: [M, K]", "[M, C]", "zeros([M, C]) + sum(x)", False),
        ("x: [N, C], like: [M, K]", "[M, _]", "2 * x", False),
        ("x: [N, C], like: [M, K]", "[N, K]", "x @ zeros([C, K])", False),
        ("x: [N, C], like: [N, C]", "[N, C]", "x * C", True),
        ("x: [N, C], like: [M, K]", "[N, C]", "2 * x", True),
    ],
)
def test_an_argument_of_a_block_is_read_if_it_alone_gives_a_size(
    arguments: str, result: str, body: str, unread: bool
) -> None:
    text = NET.format(
        items=f"block f({arguments}) -> {result} {{ return {body} }}",
        params="",
        body="x = f(x, x)",
        given="",
        entries="",
    )
    if unread:
        with pytest.raises(CompileError, match="`like` of `f` is never read"):
            check_program(files(text))
    else:
        check_program(files(text))
