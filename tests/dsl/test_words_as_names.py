"""Words of the language as names: labels and fields take any word, other names say that it is one."""

from __future__ import annotations

import pytest

from dslc.compiler.check.model import check_program
from dslc.dsl.diagnostics import CompileError
from dslc.dsl.format.printer import format_file
from dslc.dsl.lexer import DECLARING_WORDS, SOFT_WORDS
from dslc.dsl.load import Module, Program
from dslc.dsl.parser import parse
from dslc.dsl.span import Source
from dslc.dsl.tables import load_tables

WORDS = sorted(word for word in load_tables().words if word.isalpha())


def params(text: str) -> set[str]:
    source = Source("net.nn", text)
    module = Module(source, parse(source), "0" * 64, ())
    return set(check_program(Program(module, (module,))).params)


LABELS = """nn 1
block unit(x: [N, D]) -> [N, D] {{
  return x |> linear(D) as {word} |> relu
}}

model Net(x: [4, 8]) -> [4, 2] {{
  for i in 0..2 as {word} {{
    x = x |> unit as {word}
  }}
  for s in [2, 4] as {word}_ {{ x = unit(s * x) as {word} }}
  return (x |> linear(2) as {word}2
    |> linear(2) as {word}3)
}}
"""


@pytest.mark.parametrize("word", WORDS)
def test_a_label_may_be_any_word(word: str) -> None:
    text = LABELS.format(word=word)
    found = params(text)
    assert {f"{word}.1.{word}.{word}.weight", f"{word}_.0.{word}.{word}.bias", f"{word}2.weight"} <= found
    formatted = format_file(Source("net.nn", text))
    assert format_file(Source("net.nn", formatted)) == formatted and params(formatted) == found


#: the other places of names; with `tok` in the place of `{word}` each of them is right
PLACES = {
    "argument": "model Net({word}: [4, 8]) -> [4, 2] {{\n  return linear({word}, 2)\n}}",
    "number": "model Net(x: [4, 8], {word}: int = 2) -> [4, 2] {{\n  return linear(x, {word})\n}}",
    "result": "model Net(x: [4, 8]) -> ({word}: [4, 2], b: [4, 8]) {{\n  return linear(x, 2), x\n}}",
    "variable": "model Net(x: [4, 8]) -> [4, 2] {{\n  {word} = linear(x, 2)\n  return {word}\n}}",
    "layer": "model Net(x: [4, 8]) -> [4, 2] {{\n  layer {word} = linear(2)\n  return {word}(x)\n}}",
    "param": "model Net(x: [4, 8]) -> [4, 8] {{\n  param {word}: [8] = constant(1)\n  return x * {word}\n}}",
    "block": "block {word}(x: [N, D]) -> [N, D] {{\n  return relu(x)\n}}\nmodel Net(x: [4, 8]) -> [4, 8] {{\n"
             "  return x |> {word}\n}}",
    "loop": "model Net(x: [4, 8]) -> [4, 8] {{\n  for {word} in [1, 2] {{ x = x + {word} }}\n  return x\n}}",
    "dim": "dim {word} = 8\nmodel Net(x: [4, {word}]) -> [4, {word}] {{\n  return relu(x)\n}}",
    "const": "const {word} = 8\nmodel Net(x: [4, 8]) -> [4, 8] {{\n  return x * {word}\n}}",
    "model": "model {word}(x: [4, 8]) -> [4, 8] {{\n  return relu(x)\n}}",
    "named argument": "block f(x: [N, D], {word}: int) -> [N, D] {{\n  return x * {word}\n}}\n"
                      "model Net(x: [4, 8]) -> [4, 8] {{\n  return f(x, {word}=2)\n}}",
    "metric": "model Net(x: [4, 8]) -> [4, 2] {{\n  return linear(x, 2)\n}}\ntrain Net() {{\n  loss = mean(output)\n"
              "  metrics {{ {word} = sum(output) }}\n  optimizer = sgd(lr=0.1)\n}}",
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_other_names_are_no_words_of_the_language(place: str) -> None:
    params("nn 1\n" + PLACES[place].format(word="tok"))
    for word in WORDS:
        text = "nn 1\n" + PLACES[place].format(word=word)
        if word in SOFT_WORDS | DECLARING_WORDS:
            params(text)
            continue
        with pytest.raises(CompileError) as caught:
            params(text)
        found = caught.value.diagnostics
        assert {d.code for d in found} == {"E0001"}, caught.value.render()
        assert f"`{word}`" in caught.value.render() or "expected a name" in caught.value.render()


@pytest.mark.parametrize("word", sorted(DECLARING_WORDS))
def test_declarations_of_names_that_are_words(word: str) -> None:
    body = (
        f"  layer {word} = linear(8)\n  y = {word}(x) if n > 1 else x\n  @freeze layer scale = linear(8)\n"
        f"  {word}_1, h = y, y\n  for i in 0..2 {{ h = h |> {word} }}\n  return h + scale(y) - {word}.weight[0]\n"
    )
    text = f"nn 1\nmodel Net(x: [4, 8], n: int = 2) -> [4, 8] {{\n{body}}}\n"
    assert {f"{word}.weight", "scale.weight"} <= params(text)
    formatted = format_file(Source("net.nn", text))
    assert formatted == format_file(Source("net.nn", formatted)) and params(formatted) == params(text)


@pytest.mark.parametrize("word", sorted(SOFT_WORDS | DECLARING_WORDS))
def test_elements_of_a_list_over_several_lines(word: str) -> None:
    """A word first on its line, with `for` after it, begins no declaration."""
    text = f"nn 1\nmodel Net(x: [4, 8]) -> [4, 8] {{\n  return x * sum([\n    {word} for {word} in [1, 2]\n  ])\n}}\n"
    params(text)
    assert format_file(Source("net.nn", format_file(Source("net.nn", text)))) == format_file(Source("net.nn", text))
