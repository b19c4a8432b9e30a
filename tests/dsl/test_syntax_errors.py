"""Golden files: a source and what is said about it, so that a reader can judge the message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from places import GOLDEN

from dslc.dsl.diagnostics import CompileError
from dslc.dsl.load import decode, load
from dslc.dsl.parser import parse

HEAD = "nn 1\ndim B in 1..4 = 2\n\n"


def model(body: str) -> str:
    return f"{HEAD}model M(x: [B, 4]) -> [B, 4] {{\n{body}}}\n"


CASES: dict[str, str | bytes] = {
    "edition_missing": "block double(x: [B, D]) -> [B, D] {\n  return 2 * x\n}\n",
    "edition_missing_in_empty_file": "",
    "edition_unknown": "nn 7\nblock double(x: [B, D]) -> [B, D] {\n  return 2 * x\n}\n",
    "edition_not_alone": "nn 1 const a = 3\n",
    "brace_not_closed_in_loop": model("  for i in 0..3 {\n    x = relu(x)\n  return x\n")
    + "\nconst a = 3\n",
    "brace_not_closed_at_end": model("  return x\n")[:-2],
    "brace_closes_nothing": model("  return x\n") + "}\nconst a = 3\n",
    "parenthesis_not_closed": model("  y = conv(x, 3\n  z = relu(y)\n  return z\n"),
    "bracket_of_another_kind": model("  y = x[0:(B - 1]\n  return y\n"),
    "bracket_closes_nothing": model("  y = relu(x))\n  return y\n"),
    "equals_in_condition": model("  if B = 2 { x = relu(x) }\n  y = x if B = 2 else -x\n  return y\n"),
    "comma_between_statements": HEAD
    + "model M(x: [B, 4]) -> [B, 4] {\n  y = relu(x), z = y\n  return y\n}\n\n"
    + "train M(t: [B, 4]) {\n  loss = mse(output, t)\n  metrics { a = mean(t), b = mean(output) }\n}\n",
    "python_function": model("  def f(x):\n    return x\n  return x\n"),
    "python_body": model("  for i in 0..3:\n    x = relu(x)\n  return x\n"),
    "python_import": HEAD + "import torch\nfrom torch import nn\n",
    "python_class": HEAD + "class Net(Module):\n  pass\n",
    "python_self": model("  self.fc = linear(3)\n  return x\n"),
    "python_operators": model("  y = x ** 2\n  y += 1\n  z = !y && y || x\n  return y\n"),
    "python_quotes": model("  y = x |> rearrange('B D -> D B')\n  return y\n"),
    "python_type": model("  n: int = 3\n  return x\n"),
    "word_misspelt": model("  fro i in 0..3 { x = relu(x) }\n  retrun x\n")
    + "modle N(x: [B, 4]) -> [B, 4] {\n  return x\n}\n",
    "while_loop": model("  while true { x = relu(x) }\n  return x\n"),
    "word_as_name": model("  y = check\n  block = 3\n  yield = 4\n  return y\n"),
    "value_alone": model("  relu(x)\n  x |> relu\n  x + 1\n  return x\n"),
    "line_begins_with_operator": model("  y = x\n    + 1\n  return y\n"),
    "nothing_follows": model("  y = x +\n  z = relu(y)\n  y = x *\n  return z\n"),
    "comma_missing": model("  y = conv(x, 6 5)\n  return y\n"),
    "two_statements_on_a_line": model("  y = relu(x) z = y\n  return z\n"),
    "choice_without_else": model("  y = x if B == 2\n  return y\n"),
    "comparison_chain": model("  y = x if 1 < B < 3 else -x\n  return y\n"),
    "declarations_on_lines_of_a_body": model(
        "  const k = 3\n  y = k * x\n  block f(x: [B, D]) -> [B, D] { return x }\n  use \"a.nn\"\n  return f(y)\n"
    ),
    "dictionary_returned": model("  return {logits: x, probs: softmax(x)}\n"),
    "number_forms": model("  y = .5 * x\n  z = +1 * x\n  w = 2x\n  v = 1_000_\n  return y\n"),
    "numbers_of_other_bases": model("  y = 0x9E37_79B9 * x\n  z = 0b101 * x + 0o17\n  w = 0xy + 0b2\n  return y\n"),
    "number_too_large": model(
        "  y = 9223372036854775808 * x\n  z = 1e400 * x + 1e-400\n  w = 18446744073709551616 * x\n"
        "  v = 11400714819323198485\n  return y\n"
    ),
    "number_too_long": model(f"  y = {'9' * 5000} * x\n  return y\n"),
    "text_not_closed": model('  check B == 2, "two rows\n  return x\n'),
    "text_escape": model('  check B == 2, "two\\qrows"\n  return x\n'),
    "operator_after_a_pipe": model(
        "  y = x |> relu() * x\n  z = relu(y |> linear(4) as fc @ x)\n  w = x |> conv(3, [3, 3]) |> relu[:, 0]\n"
        "  v = [1, x |> sum(over=1) / 2, x |> relu == 3]\n  return x |> softplus\n    |> linear(8, bias=false) as one"
        "\n    |> linear(4) as two - 1\n"
    ),
    "label_on_no_call": model("  return x + relu(x) as y\n"),
    "label_before_an_operator": model("  y = relu(x) as a + relu(x) as b\n  return y\n"),
    "label_in_quotes": model('  for i in 0..3 as f"layer{i}" { x = relu(x) }\n  return x |> relu as "last"\n'),
    "pipe_missing": model("  y = x relu(x)\n  return y\n"),
    "word_processor": model(
        "  y = einsum(\u201cbi,bi->b\u201d, x, x)\n  z = relu(x\uff0c 1)\n  w = x\u2013\u00a01\n  return \u03bb\n"
    ),
    "comment_of_c": model("  // relu\n  % relu\n  return x\n"),
    "objects_and_lists": model("  w.append(x)\n  self.fc = relu(x)\n  c = {a: 1}\n  int n = 3\n  return x\n"),
    "words_inside": model("  f = lambda z: 2 * z\n  if true { x = relu(x) } elif false { x = -x }\n  return x\n"),
    "heads_of_loops": model(
        "  for a, b in [(1, 2)] { x = relu(x) }\n  for i in 0:3 { x = relu(x) }\n"
        "  for (int i = 0; i < 3; i++) { x = x }\n  scan xt in x carry h { yield xt }\n  return x\n"
    ),
    "heads_of_parameters": model(
        "  layer fc: linear(4)\n  param w = 3\n  param v: 3, 4 = 0\n  state h: [B]\n  layer g =\n  return x\n"
    ),
    "heads_of_models": "dim B: 4\nnn 1\nmodel M(x) -> [B, 4] {\n  return x\n}\n"
    + "model N(x: [B], n = 3) -> [B] {\n  return x\n}\nmodel O(x: [B=8]) [B] {\n  return x\n}\n",
    "entries": HEAD
    + "train M(t: [B]) {\n  loss == mse(output, t)\n  metrics: { a = t }\n  metrics = { a = t }\n  metrics { a }\n"
    + "  scan xt in t along 0 { yield xt }\n}\n",
    "statements_at_the_top": HEAD + "a = 3\nreturn a\n",
    "declaration_inside": model("  y = x; const a = 3\n  return y\n"),
    "return_nothing": model("  return\n"),
    "body_missing": HEAD + "model M(x: [B, 4]) -> [B, 4]\n\nconst a = 3\n",
    "else_alone": model("  else { x = relu(x) }\n  return x\n"),
    "entry_with_colon": HEAD + "train M(label: i32[B]) {\n  loss: cross_entropy(output, label)\n}\n",
    "types": HEAD + "block f(x: float32[B], y: f32, z: float[B], n: integer) -> int {\n  return x\n}\n",
    "dim_bounds": HEAD + "dim T in 35 = 35\n",
    "use_path": HEAD + 'use "blocks/resnet"\nuse blocks.resnet.nn\n',
    "several_at_once": model("  y = relu(x\n  z = y ** 2\n  w = z z\n  return w\n") + "}\nconst = 3\n",
    "more_than_twenty": model("".join(f"  y{i} = {i} {i}\n" for i in range(24)) + "  return x\n"),
    "nesting_brackets": HEAD + f"const a = {'(' * 201}1{')' * 201}\n",
    "nesting_signs": HEAD + f"const a = {'-' * 201}1\n",
    "nesting_chain": HEAD + f"const a = 1{' + 1' * 201}\n",
    "nesting_choice": HEAD + f"const a = {'1 if true else ' * 201}1\n",
    "nesting_power": HEAD + f"const a = {'2^' * 201}1\n",
    "nul": b"nn 1\nconst a = \x003\n",
    "not_utf8": b"nn 1\nconst a = 3  # gr\xfc\xdfe\n",
    "hidden_characters": "nn 1\nconst a = 3  # \u202ereversed\nconst b\u200b = 4\n",
    "carriage_return": b"nn 1\nconst a = 3\rconst b = 4\n",
    "letters_of_other_scripts": "nn 1\nconst größe = 3\nconst b = 3 − 1\n",
    "tabs_and_wide_characters": 'nn 1\nmodel M(x: [B]) -> [B] {\n\tcheck "漢字" ==\t3 3\n\treturn x\n}\n',
    "source_too_long": b"nn 1\n" + b"# filler\n" * 12_000,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_message(name: str, golden: Callable[[str, str], None]) -> None:
    text = CASES[name]
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(CompileError) as error:
        parse(decode("model.nn", data))
    shown = data.decode("utf-8", "backslashreplace") if len(data) < 3000 else f"({len(data)} bytes)\n"
    for char in "\x00\r\u202e\u200b":
        shown = shown.replace(char, f"<U+{ord(char):04X}>")
    golden(
        f"diagnostics/{name}.txt",
        f"{shown}\n----- is refused with exit code {error.value.exit_code}:\n\n{error.value.render()}\n",
    )


IMPORTS: dict[str, dict[str, str]] = {
    "use_missing": {"main": "nn 1\nuse lib.blokcs\nuse nothing.here (a)\n", "lib/blocks": "nn 1\n"},
    "use_circle": {"main": "nn 1\nuse a\n", "a": "nn 1\nuse b\n", "b": "nn 1\n\nuse a (f)\n"},
    "use_outside": {"main": 'nn 1\nuse "../a.nn"\nuse "/etc/a.nn"\nuse "https://host/a.nn"\n', "../a": "nn 1\n"},
    "use_of_a_broken_file": {"main": "nn 1\nuse a\nuse b\n", "a": "nn 1\nconst = 3\n", "b": "nn 2\n"},
}


@pytest.mark.parametrize("name", IMPORTS)
def test_import_message(
    name: str, golden: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    for stem, text in IMPORTS[name].items():
        (project / f"{stem}.nn").parent.mkdir(parents=True, exist_ok=True)
        (project / f"{stem}.nn").write_text(text)
    monkeypatch.chdir(project)
    with pytest.raises(CompileError) as error:
        load("main.nn")
    files = "".join(f"{stem}.nn\n{text}\n" for stem, text in IMPORTS[name].items())
    shown = error.value.render().replace(str(project), "PROJECT")
    golden(f"diagnostics/{name}.txt", f"{files}----- is refused with exit code {error.value.exit_code}:\n\n{shown}\n")


def test_no_word_of_the_grammar_reaches_the_user() -> None:
    for path in (GOLDEN / "diagnostics").glob("*.txt"):
        message = path.read_text().partition("----- is refused")[2]
        for word in ("__ANON", "_NL", "$END", "NAME", "NUMBER", "LBRACE", "RPAR", "postfix", "stmt"):
            assert word not in message, path
