"""Arguments in the shapes of inputs, names of variables, bounds of dims, and initialisers of parameters."""

from __future__ import annotations

import inspect
import math

import pytest
from sources.in_memory import files

from dslc.compiler.check.calls.declared import RESERVED_INPUTS
from dslc.compiler.check.model import Checked, check_program
from dslc.compiler.ir.function import Init
from dslc.dsl.diagnostics import CompileError
from dslc.runtime.session.session import Session

HEAD = "nn 1\ndim B in 1..64 = 8\ndim T in 8..256 = 16\n"


def checked(text: str, **args: str) -> Checked:
    return check_program(files(HEAD + text), args=args)


def output(found: Checked) -> str:
    return str(found.graph.outputs["result.output"].type)


def test_an_int_argument_is_a_size_of_an_input() -> None:
    text = "model M(x: [B, n, 2*n], n: int = 4) -> [B, n, _] { return x + 1 }\n"
    assert output(checked(text)) == "[B, 4, 8]"
    assert output(checked(text, n="6")) == "[B, 6, 12]"
    with pytest.raises(CompileError, match=r"(?s)E0304.*at least 0"):
        checked(text, n="-1")
    with pytest.raises(CompileError, match="E0202"):
        checked("model M(x: [B, f], f: float = 2.5) -> [B, _] { return x }\n")


def test_a_parameter_as_long_as_a_dim_may_be() -> None:
    text = "model M(x: [B, T, 6]) -> [B, T, 6] {\n  param at: [T.max, 6] = normal(0.02)\n  return x + at[:T]\n}\n"
    assert checked(text).params["at"].input.value.type.shape == (256, 6)
    inside = "block b(x: [N, L]) -> [N, _] {\n  param w: [L.max + L.min] = 0\n  return x + sum(w)\n}\n"
    assert checked(inside + "model M(x: [B, T]) -> [B, T] { return b(x) }\n").params["b.w"].input.value.type.shape == (
        264,
    )
    assert checked(inside + "model M(x: [B, 9]) -> [B, 9] { return b(x) }\n").params["b.w"].input.value.type.shape == (
        18,
    )


def test_a_variable_may_have_the_name_of_a_block() -> None:
    block = "block unit(x: [N, C], k: int) -> [N, C] { return x * k }\n"
    loop = "  for unit in 1..3 { x = x |> unit(unit) }\n  return unit(x, 2)\n"
    assert output(checked(block + "model M(x: [B, 4]) -> [B, 4] {\n" + loop + "}\n")) == "[B, 4]"
    assert output(checked(block + "model M(unit: [B, 4]) -> [B, 4] { return unit(unit, 2) }\n")) == "[B, 4]"
    with pytest.raises(CompileError, match=r"(?s)E0112.*`unit` is declared in the file"):
        checked(block + "model M(x: [B, 4]) -> [B, 4] {\n  layer unit = unit(2)\n  return unit(x)\n}\n")


def test_a_variable_may_have_the_name_of_a_function() -> None:
    """A file stays valid when the language gets a function with a name that its variables have."""
    head = "const threshold = 0.5\nmodel M(x: [B, 4], square: float = 2.0, dim: int = 4) -> [B, 4] {\n"
    body = (
        "  mean = mean(x, over=1, keep=true)\n  std = sqrt(mean((x - mean)^2, over=1, keep=true))\n"
        "  for abs in 0..2 { x = x |> linear(4) as fc |> abs }\n"
        "  max = max(2, 3)\n  normal = 0.02\n  param w: [4] = normal(normal)\n"
        "  return relu((x - mean) / std) * square * threshold * max(max, dim) * max(x) + square(w)\n}\n"
    )
    assert output(checked(head + body)) == "[B, 4]"
    metrics = "train M() {\n  loss = mean(output^2)\n  metrics { std = std(output) }\n  optimizer = sgd(lr=0.1)\n}\n"
    assert set(checked(head + body + metrics).train.metrics) == {"std"}


@pytest.mark.parametrize("name", ["relu", "max", "norm", "linear"])
def test_a_block_hides_the_function_of_its_name(name: str) -> None:
    block = f"block {name}(x: [N, C]) -> [N, 3] {{ return x[:, :1] + zeros([N, 3]) }}\n"
    for call in (f"{name}(x)", f"x |> {name}", f"x |> {name} as first"):
        assert output(checked(block + f"model M(x: [B, 4]) -> [B, 3] {{ return {call} }}\n")) == "[B, 3]"


@pytest.mark.parametrize("name", ["square", "linear", "max"])
def test_a_layer_hides_the_function_of_its_name(name: str) -> None:
    model = checked(f"model M(x: [B, 4]) -> [B, 3] {{\n  layer {name} = linear(3)\n  return x |> {name}\n}}\n")
    assert set(model.params) == {f"{name}.weight", f"{name}.bias"}
    assert output(checked("model M(x: [B, 3]) -> [B] {\n  square = logsumexp\n  return square(x, 1)\n}\n")) == "[B]"


def test_a_block_that_calls_the_function_it_hides() -> None:
    source = "block norm(x: [N]) -> [N] { return x / norm(x) }\nmodel M(x: [B]) -> [B] { return norm(x) }\n"
    with pytest.raises(CompileError, match=r"(?s)E0105.*`norm` hides the built-in function: rename it"):
        checked(source)


@pytest.mark.parametrize(
    ("init", "std"),
    [
        ("kaiming_normal", math.sqrt(2 / 8)),
        ("kaiming_normal()", math.sqrt(2 / 8)),
        ('kaiming_normal(mode="fan_in")', math.sqrt(2 / 8)),
        ('kaiming_normal(mode="fan_out")', math.sqrt(2 / 2)),
        ('kaiming_normal(a=1, mode="fan_out")', math.sqrt(1 / 2)),
        ("xavier_normal", math.sqrt(2 / 10)),
    ],
)
def test_initialisers_of_fans(init: str, std: float) -> None:
    for text in (
        f"  return x |> linear(2, init={init})\n",
        f"  param weight: [2, 8] = {init}\n  return x @ weight.T\n",
    ):
        params = checked("model M(x: [B, 8]) -> [B, 2] {\n" + text + "}\n").params
        found = next(info.init for name, info in params.items() if name.endswith("weight"))
        assert found.kind == "normal" and found.args == pytest.approx((0.0, std))


@pytest.mark.parametrize(
    "layer", ["linear(2, bias_init=0.5)", "conv(2, 3, bias_init=0.5)", "conv_transpose(2, 3, bias_init=0.5)"]
)
def test_initialisers_of_biases(layer: str) -> None:
    found = checked(f"model M(x: [B, 3, 8, 8]) -> [_, _, _, _] {{ return x |> {layer} as f }}\n").params
    assert found["f.bias"].init == Init("constant", (0.5,)) and found["f.weight"].init.kind == "uniform"


@pytest.mark.parametrize(
    ("init", "told"),
    [
        ("normal", r"(?s)E0201.*`normal` needs its arguments.*write normal\(std\)"),
        ('kaiming_normal(mode="fan")', r'(?s)E0209.*mode="fan_in" or mode="fan_out"'),
        ("kaiming_normal(mode=1)", r'(?s)E0209.*mode="fan_in" or mode="fan_out"'),
        ('normal(mode="fan_in", std=1)', "E0201"),
    ],
)
def test_wrong_initialisers(init: str, told: str) -> None:
    with pytest.raises(CompileError, match=told):
        checked(f"model M(x: [B, 8]) -> [B, 2] {{ return x |> linear(2, init={init}) }}\n")


def test_a_dim_is_bound_where_it_stands_alone() -> None:
    model = "model M(x: [B, 4]) -> [B, 2] { return f(x) }\n"
    with pytest.raises(CompileError, match=r"(?s)E0102.*no argument tells the dim `D`.*not by `2\*D`"):
        checked("block f(x: [B, 2*D]) -> [B, D] { return x[:, ::2] }\n" + model)
    assert output(checked("block f(x: [B, N]) -> [B, N/2] { return x[:, ::2] }\n" + model)) == "[B, 2]"
    twice = "block f(x: [B, 2*D], y: [D]) -> [B, D] { return x[:, ::2] + y }\n"
    assert output(checked(twice + "model M(x: [B, 4], y: [2]) -> [B, 2] { return f(x, y) }\n")) == "[B, 2]"


def test_truth_values_next_to_b1_tensors() -> None:
    text = "model M(x: [B, 4], on: bool = true) -> b1[B, 4] {\n  m = x > 0\n"
    uses = ("m == true", "on != m", "logical_and(m, false)", "where(m, on, m)", "where(m, true, false)")
    for use in uses:
        assert output(checked(f"{text}  return {use}\n}}\n")) == "b1[B, 4]"
    assert output(checked("model M(x: [B, 4]) -> [B, 4] { return where(x > 0, 0, 1) }\n")) == "[B, 4]"
    for wrong in ("x == true", "m + true", "where(m, x, true)", "where(m, 1, true)"):
        with pytest.raises(CompileError, match=r"E020[234]"):
            checked(f"{text}  return {wrong}\n}}\n")


def test_a_pipe_as_an_operand_needs_parentheses() -> None:
    with pytest.raises(CompileError, match=r"add parentheses: `\(x \|> linear\(8\)\) \* \.\.\.`"):
        checked("model M(x: [B, 8]) -> [B, 8] { return x |> linear(8) * x }\n")


@pytest.mark.parametrize(
    ("name", "given", "code", "says"),
    [
        ("weight", "weight: [B]", "E0103", "has the name of an input"),
        ("x", "", "E0103", "has the name of an input"),
        ("beta", "beta: float = 1.0", "E0103", "has the name of an argument of the train section"),
        *((name, "", "E0112", "has the name of a number of each step") for name in ("step", "lr", "row", "seed")),
    ],
)
@pytest.mark.parametrize("kind", ["param", "buffer", "state"])
def test_what_is_stored_has_a_name_that_no_other_input_has(
    kind: str, name: str, given: str, code: str, says: str
) -> None:
    """Each was an internal error."""
    body = f"  y = x |> linear(3)\n  {kind} {name}: [3] = 1\n  return y * {name}\n"
    if kind != "param":
        body = body.replace("  return", f"  {name} = 0.5 * {name}\n  return")
    read = " * mean(weight)" if given.startswith("weight") else " * beta" if given else ""
    train = f"train M({given}) {{\n  loss = mean(output^2){read}\n  optimizer = adam(lr=0.1)\n}}\n"
    with pytest.raises(CompileError) as caught:
        checked(f"model M(x: [B, 3]) -> [B, 3] {{\n{body}}}\n{train}")
    [found] = caught.value.diagnostics
    assert found.code == code and says in found.title and found.help == f"choose another name, such as `{name}_`"


@pytest.mark.parametrize("name", ["train.loss_scale", "train.epoch.m", "train.state.h"])
def test_a_parameter_has_no_name_of_the_training_step(name: str) -> None:
    first, *labels, last = name.split(".")
    body = f"block f(x: [B, D]) -> [B, D] {{\n  param {last}: [D] = 1\n  return x * {last}\n}}\n"
    for at, label in enumerate(labels):
        body += f"block g{at}(x: [B, D]) -> [B, D] {{ return x |> f as {label} }}\n"
    outer = "g0" if labels else "f"
    with pytest.raises(CompileError) as caught:
        checked(f"{body}model M(x: [B, 3]) -> [B, 3] {{ return x |> {outer} as {first} }}\n")
    [found] = caught.value.diagnostics
    assert found.code == "E0112" and found.help == "choose another label than `train`"


@pytest.mark.parametrize(
    ("model", "train"),
    [
        ("model M(B: [B, 3]) -> [B, 3] { return B }\n", ""),
        ("const n = 3\nmodel M(x: [B, n], n: int = n) -> [B, 3] { return x }\n", ""),
        ("model M(x: [B, 3]) -> [B, 3] { return x |> linear(3) as fc }\n", "B: [B]"),
    ],
)
def test_an_argument_with_the_name_of_a_size_in_its_own_type(model: str, train: str) -> None:
    """Its own poison hid the size: the check told nothing, and left the model out."""
    section = f"train M({train}) {{\n  loss = mean(output) * mean(B)\n  optimizer = sgd(lr=0.1)\n}}\n" if train else ""
    with pytest.raises(CompileError) as caught:
        checked(model + section)
    [found] = caught.value.diagnostics
    assert found.code == "E0112" and "is declared in the file" in found.title


def test_an_input_may_have_any_name_that_a_session_leaves_free() -> None:
    """The names that callers use are those of the methods' own arguments, `self`, and the scalars of a program."""
    taken = {"self", "seed"}
    for method in (Session.predict, Session.train_step, Session.evaluate):
        parameters = inspect.signature(method).parameters.values()
        taken |= {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert taken == set(RESERVED_INPUTS)
