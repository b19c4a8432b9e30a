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
from dslc.dsl.other_names import ARGUMENTS, GPU_TARGETS, WORDS, argument_hint, function_hint, target_hint
from dslc.dsl.other_names import FUNCTIONS as ELSEWHERE

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


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_arguments_help_names_an_argument(name: str) -> None:
    named = re.match(r"write `(\w+)=", ARGUMENTS[name])
    assert (named is None and ARGUMENTS[name].startswith("leave it out")) or (named and named[1] in PARAMETERS)
    if named is not None:
        assert argument_hint(name, ["other"]) is None, "a function that has it not"
        assert argument_hint(name.upper(), [named[1]]) == ARGUMENTS[name]


@pytest.mark.parametrize(
    ("call", "help"),
    [
        ("Conv2d(3, 8)", "conv(x, out, k)"),
        ("nn_attention(4)", "lists the built-in functions"),
        ("MultiheadAttention(4)", "sdpa(q, k, v)"),
        ("lstm_cell(4)", "`linear`, `sigmoid` and `tanh`"),
        ("batch_norm", "batchnorm"),
        ("BatchNorm2d", "batchnorm(x)"),
        ("Linear(4)", "linear"),
        ("conv(8, kernel_size=3)", "k=3"),
        ("conv(8, 3, padding=1)", "pad=1"),
        ("conv(8, 3, in_channels=3)", "leave it out"),
        ("conv(8, 3, bias=False)", "`false`"),
        ("dropout(rate=0.5)", "p=0.5"),
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
    for text, help in (("adamw(learning_rate=0.1)", "lr=0.001"), ("adam(lr=0.1, beta1=0.5)", "betas=(0.9, 0.999)")):
        with pytest.raises(CompileError, match=re.escape(help)):
            check_program(files(f"{head}  optimizer = {text}\n}}\n"))
    assert function_hint("relu") is None and all(word not in WORDS.values() for word in WORDS)


@pytest.mark.parametrize("name", sorted(GPU_TARGETS))
def test_a_devices_name_as_a_target(name: str) -> None:
    assert name not in TARGETS
    help = str(target_hint(name.upper()))
    assert set(re.findall(r"sm_\d+", help)) <= set(ARCHITECTURES)
    assert target_hint("sm_9") is None
