"""Names of other frameworks: each is unknown here, and its help names what stands for it."""

from __future__ import annotations

import re

import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.compiler.codegen.targets import ARCHITECTURES, TARGETS
from dslc.compiler.ir.function import FUNCTIONS, OPTIMIZERS
from dslc.compiler.ops.registry import load_all
from dslc.dsl.diagnostics import CompileError
from dslc.dsl.other_names import (
    ARGUMENTS,
    GPU_TARGETS,
    NOT_NEEDED,
    WORDS,
    argument_hint,
    function_hint,
    target_hint,
)
from dslc.dsl.other_names import FUNCTIONS as ELSEWHERE
from dslc.dsl.paper_names import NAMES as OF_PAPERS

load_all()
NET = """nn 1
model M(x: [4, 3, 8, 8]) -> [4] {{
  y = x |> {call}
  return sum(y, over=[1, 2, 3])
}}
"""
PARAMETERS = {p.name for f in FUNCTIONS.values() for p in f.parameters}
PARAMETERS |= {name for optimizer in OPTIMIZERS.values() for name in (*optimizer.defaults, "betas")}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_function_of_another_framework_is_not_one_of_ours(name: str) -> None:
    assert name not in {known.replace("_", "") for known in FUNCTIONS}
    called = re.findall(r"(\w+)\(", ELSEWHERE[name])
    assert all(c in FUNCTIONS or c in OPTIMIZERS for c in called)


_INPUTS = {
    **dict.fromkeys("xytp", "[B, 8]"),
    **dict.fromkeys("ab", "[B, 4]"),
    "d": "[B, 9]",
    "image": "[B, 1, 6, 6]",
    "square": "[8, 8]",
    "points": "[9, 3]",
    "w": "[2, 1, 3, 3]",
    "mask": "b1[B, 8]",
    "ids": "i32[B]",
    "gone": "i32[B, 2]",
    "source": "i32[E]",
    "target": "i32[E]",
}


@pytest.mark.parametrize("name", OF_PAPERS)
def test_the_code_for_a_name_of_papers_compiles(name: str) -> None:
    code = [each for each in re.findall(r"`([^`]+)`", OF_PAPERS[name]) if re.search(r"[(@^]| = ", each)]
    code = [each for each in code if "..." not in each and not each.startswith(("ema", "train:", "clip_"))]
    lines = [each if " = " in each.partition("(")[0] else f"_{i} = {each}" for i, each in enumerate(code)]
    words = {"x"} | set(re.findall(r"\w+", " ".join(lines))) - {each.partition(" = ")[0] for each in lines}
    inputs = ", ".join(f"{n}: {shape}" for n, shape in _INPUTS.items() if n in words)
    body = "\n  ".join([*lines, "return x"])
    check_program(
        files(f"nn 1\ndim B in 1..16 = 4\ndim E in 1..16 = 6\nmodel M({inputs}) -> [B, 8] {{\n  {body}\n}}\n")
    )


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_arguments_help_names_an_argument_and_gives_what_was_written(name: str) -> None:
    own = ARGUMENTS[name]
    assert own in PARAMETERS and name not in NOT_NEEDED
    assert argument_hint(name, ["other"], "7") is None, "a function that has it not"
    help = argument_hint(name.upper(), [own], "7", 7) or ""
    assert re.match(rf"write `{own}=.*\b7\b.*`", help)
    assert "..." in (argument_hint(name, [own], "7 + " * 20) or ""), "a long text is left out"


@pytest.mark.parametrize("name", NOT_NEEDED)
def test_an_argument_that_nothing_stands_for_is_left_out(name: str) -> None:
    assert (argument_hint(name.upper(), ["other"], "7", 7) or "").startswith("leave it out")


@pytest.mark.parametrize(
    ("call", "help"),
    [
        ("Conv2d(3, 8)", "conv(x, out, k)"),
        ("nn_attention(4)", "lists the built-in functions"),
        ("MultiheadAttention(4)", "sdpa(q, k, v)"),
        ("eigh", "docs/own_ops.md"),
        ("conj", "two tensors"),
        ("mode", "sort(x)"),
        ("sinc", "pi * x"),
        ("long", 'cast(x, "i64")'),
        ("nonzero", "depend on the data"),
        ("ReflectionPad2d(1)", "reflect"),
        ("lstm_cell(4)", "`linear`, `sigmoid` and `tanh`"),
        ("batch_norm", "batchnorm"),
        ("BatchNorm2d", "batchnorm(x)"),
        ("Linear(4)", "linear"),
        ("conv(8, kernel_size=5)", "k=5`, or give it without a name"),
        ("conv(8, 3, padding=2)", "write `pad=2`"),
        ("conv(8, 3, padding=[1, 2])", "write `pad=[1, 2]`"),
        ("conv(8, 3, padding=3 - 1)", "write `pad=3 - 1`"),
        ("conv(8, 3, use_bias=false)", "write `bias=false`"),
        ("conv(8, 3, use_bias=False)", "write `false`"),
        ('conv(8, 3, kernel_initializer="he_normal")', "write `init=normal(0.02)`"),
        ("conv(8, 3, in_channels=3)", "leave it out"),
        ("conv(8, 3, bias=False)", "`false`"),
        ("dropout(rate=0.3)", "p=0.3"),
        ("sum(dim=1)", "over=[1]"),
        ("sum(axis=2)", "over=[2]"),
        ("sum(axes=[2, 3])", "over=[2, 3]"),
        ("softmax(dim=2)", "axis=2"),
        ("softmax(dim=[1, 2])", "axis=1"),
        ("add(uniform([4]))", "`rand` and `randn`"),
        ("concat(x, axis=1)", "concat([x, y])"),
        ('gather(cast(x[:, :2, 0, 0], "i32"), axis=1)', "rows = reshape(arange(4), [4, 1])"),
        ('gather(cast(x[0, 0, 0], "i32"), axis=0)', "x[index]"),
        ("softmax(dim=1)", "axis=1"),
        ("relu(inplace=true)", "leave it out"),
    ],
)
def test_what_newcomers_write(call: str, help: str) -> None:
    with pytest.raises(CompileError) as raised:
        check_program(files(NET.format(call=call)))
    assert help in raised.value.render()


def test_optimizers_arguments_and_words() -> None:
    head = "nn 1\nmodel M(x: [4, 3]) -> [4, 2] { return linear(x, 2) }\ntrain M(y: [4, 2]) {\n  loss = mse(output, y)\n"
    for text, help in (
        ("adamw(learning_rate=0.1)", "write `lr=0.1`"),
        ("adam(lr=0.1, beta1=0.5)", "betas=(0.5, 0.999)"),
        ("adam(lr=0.1, beta2=0.99)", "betas=(0.9, 0.99)"),
        ("sgd(momentum=0.9)", "add `lr=0.01`"),
    ):
        with pytest.raises(CompileError, match=re.escape(help)):
            check_program(files(f"{head}  optimizer = {text}\n}}\n"))
    assert function_hint("relu") is None and all(word not in WORDS.values() for word in WORDS)


@pytest.mark.parametrize("name", sorted(GPU_TARGETS))
def test_a_devices_name_as_a_target(name: str) -> None:
    assert name not in TARGETS
    help = str(target_hint(name.upper()))
    assert set(re.findall(r"sm_\d+", help)) <= set(ARCHITECTURES)
    assert target_hint("sm_9") is None


@pytest.mark.parametrize(
    ("source", "help"),
    [
        ("dim T in 35 = 8\n", "`dim T in 1..35 = 8`"),
        ("dim T in 35\n", "`dim T in 1..35 = 35`"),
        ("budget { memory = 3 }\n", "memory = 3 GiB"),
        ("budget { memory = 0.5 }\n", "memory = 0.5 GiB"),
        ("budget { memroy = 80 GB }\n", "memory = 80 GB"),
        ("budget { memory = 2 epochs }\n", "memory = 2 GiB"),
        ("budget { memory = 0 }\n", "memory = 20 GiB"),
        ("mesh { shards = 3 }\n", "shards = 2"),
        ("mesh { shards = 5000 }\n", "shards = 1024"),
        ("mesh { parts = 16 }\n", "shards = 16"),
        ("mesh { shards = 0 }\n", "shards = 8"),
    ],
)
def test_a_hint_keeps_the_number_that_was_written(source: str, help: str) -> None:
    net = "model M(x: [4, 3]) -> [4, 3] { return x }\n"
    with pytest.raises(CompileError, match=re.escape(f"help: {help}" if "`" not in help else help)):
        check_program(files(f"nn 1\n{source}{net}"))


def test_a_layer_that_is_declared_first_gets_the_same_hint() -> None:
    source = "nn 1\nmodel M(x: [4, 3, 8, 8]) -> [4, 8, 8, 8] {\n  layer c = conv(8, 3, padding=2)\n  return c(x)\n}\n"
    with pytest.raises(CompileError, match=re.escape("write `pad=2`")):
        check_program(files(source))


def test_a_size_of_several_axes_names_their_numbers() -> None:
    loop = "scan a in x * 1 along T carry s {\n    s = s + a\n  }"
    source = (
        f"nn 1\ndim T in 1..8 = 4\nmodel M(x: [2, T, T]) -> [2, T] {{\n  s = zeros([2, T])\n  {loop}\n  return s\n}}\n"
    )
    with pytest.raises(CompileError, match=re.escape("`along 1` or `along 2`")):
        check_program(files(source))


def test_a_layer_that_is_called_at_once_keeps_what_was_written() -> None:
    source = (
        "nn 1\nmodel M(x: [4, 3, 8, 8]) -> [4, 8, 8, 8] {\n  return nn.Conv(8, 3, padding=2, use_bias=False)(x)\n}\n"
    )
    with pytest.raises(CompileError, match=re.escape("pad=2, bias=false)`")):
        check_program(files(source))


@pytest.mark.parametrize(("name", "near"), [("adan", None), ("SOAP", None), ("lbfgs", None), ("adamm", "adam")])
def test_an_unknown_optimizer(name: str, near: str | None) -> None:
    text = "nn 1\nmodel M(x: [4, 3]) -> [4, 3] { return x |> linear(3) as f }\n"
    text += f"train M() {{\n  loss = mean(output)\n  optimizer = {name}(lr=0.1)\n}}\n"
    with pytest.raises(CompileError) as raised:
        check_program(files(text))
    found = raised.value.render()
    assert ("An optimizer of your own" in found) is (near is None)
    assert (f"did you mean `{near}`" in found) is (near is not None)
