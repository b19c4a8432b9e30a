"""Mistakes that people bring from other frameworks: each is told what to write, none is read as something else."""

from __future__ import annotations

import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.dsl.diagnostics import CompileError, Diagnostic

HEAD = "nn 1\ndim B in 1..64 = 8\n"
TRAIN = "train M(label: i32[B]) {\n  loss = cross_entropy(output, label)\n  optimizer = adam(lr=0.001)\n}\n"


def told(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(CompileError) as error:
        check_program(files(text))
    return error.value.diagnostics


def body(*lines: str, x: str = "[B, 8]") -> str:
    return f"{HEAD}model M(x: {x}) -> [B, _] {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


@pytest.mark.parametrize(
    ("expression", "code", "help"),
    [
        ("x |> batchnorm(8)", "E0201", "leave out `8`, the size of the input, which is known: write `batchnorm(x)`"),
        ("x |> layernorm(8)", "E0306", "leave out `8`, the size of the input, which is known: write `layernorm(x)`"),
        (
            "groupnorm(x, 2, 8)",
            "E0201",
            "leave out `8`, the size of the input, which is known: write `groupnorm(x, 2)`",
        ),
        ("nn.LayerNorm(8)(x)", "E0101", "write `x |> layernorm()`"),
        ("nn.Linear(8, 4)(x)", "E0101", "write `x |> linear(4)`"),
        ("nn.Linear(4)(x)", "E0101", "write `x |> linear(4)`"),
        ("linear(4)", "E0202", "`layer name = linear(4)` makes a layer that is called later"),
        ("linear(x, 7 / 2)", "E0202", "`T // 2`"),
        ('linear(x, "4")', "E0202", "write it without quotes: `4`"),
        ('dropout(x, "0.5")', "E0202", "write it without quotes: `0.5`"),
        ('linear(x, 4, init="xavier")', "E0202", "write `init=xavier_normal`"),
        ('linear(x, 4, init="normal")', "E0202", "write `init=normal(0.02)`"),
        ('linear(x, 4, init="kaiming_unform")', "E0202", "write `init=kaiming_uniform`"),
        ("linear(x, 4, init=xavier)", "E0102", "did you mean `xavier_normal`?"),
        ('conv(reshape(x, [B, 2, 4]), 3, 3, pad="same")', "E0202", "`pad=1` keeps the sizes under a window of 3"),
        ('conv(reshape(x, [B, 2, 4]), 2, 3, pad="same")', "E0202", "`pad=1` keeps the sizes under a window of 3"),
        ('kl_div(x, x, reduce="batchmean")', "E0209", 'sum each row of `reduce="none"`: `sum(..., over=1)`'),
        ("x |> linear(4) |> relu |> reshape(B, 2, 2)", "E0201", "write `reshape(x, [B, 2, 2])`"),
        ("x[:, None]", "E0102", "write `unsqueeze(x, 1)`"),
        ("x[None, :, None, 0]", "E0102", "write `unsqueeze(x[:, 0], [0, 2])`"),
        ("x[0, None, 2:, None]", "E0102", "write `unsqueeze(x[0, 2:], [0, 2])`"),
        ("x[np.newaxis, ..., None, -1]", "E0102", "write `unsqueeze(x[..., -1], [0, -1])`"),
        ("x[arange(2), None]", "E0102", "write `unsqueeze(x, axis)`, whose axis counts in the result"),
        ("split(x, 2) |> linear(4)", "E0202", "give each of them a name, as `a, b = ...`"),
        ("x[:, 9:]", "E0304", "bounds of a slice from 0 to 8"),
        ("x[:, 8]", "E0304", "positions from 0 to 7"),
        ("[1, 2][3]", "E0209", "the indices 0 to 1"),
        ("zip([1], [2])", "E0101", "`a[i]` and `b[i]`"),
        ("unheard", "E0102", "declare it with the arguments of the block, model or section: `unheard: [B, 8]`"),
    ],
)
def test_an_expression_is_told_what_to_write(expression: str, code: str, help: str) -> None:
    [found] = told(body(f"y = {expression}", "return x"))
    assert found.code == code and found.help is not None and help in found.help


@pytest.mark.parametrize(
    ("loss", "help"),
    [
        ("mean(hidden)", "return `hidden` from the model and name the results: `-> (output: [...], hidden: [B, 4])`"),
        (
            "mean(hidden) + w",
            "return `hidden` from the model and name the results: `-> (output: [...], hidden: [B, 4])`",
        ),
    ],
)
def test_a_train_section_that_reads_a_name_of_the_models_body(loss: str, help: str) -> None:
    source = f"""nn 1
dim B in 1..8 = 4
model M(x: [B, 8]) -> [B, 3] {{
  param w: [8, 4] = normal(0.1)
  layer head = linear(3)
  hidden = x @ w
  return head(hidden)
}}
train M(t: i32[B]) {{
  loss      = cross_entropy(output, t) + {loss}
  optimizer = sgd(lr=0.1)
}}
"""
    [found] = told(source)
    assert found.code == "E0102" and "not visible in its train section" in found.title
    assert found.help is not None and help in found.help


@pytest.mark.parametrize(
    "use",
    [
        "linear(transpose(x), 4)",
        "dft(x, axis=1)[0]",
        "conv(transpose(x), weight=zeros([1, 8, T]))",
        "avgpool(transpose(x), 2, count_include_pad=false, dilation=2)",
        "instancenorm(x)",
    ],
)
def test_a_size_that_the_source_must_say_is_told_how_to_fix_it(use: str) -> None:
    [found] = told(f"nn 1\ndim B in 1..8 = 4\ndim T in 4..32 = 16\nmodel M(x: [B, T, 8]) -> [...] {{ return {use} }}")
    assert found.help == "the build chooses this size; fix it, which makes it an int: `dim T = 16`"


def test_a_tensor_after_an_argument_that_a_layer_gives_goes_by_name() -> None:
    block = "block f(x: [B, N], heads: int, mask: [B, N]) -> [B, N] { return x * mask * heads }\n"
    [found] = told(body("layer f2 = f(2)", "return f2(x, x)") + block)
    assert found.code == "E0205"
    assert found.help == "the order is x, heads, mask: give what follows `heads` by name, as `mask=...`"


@pytest.mark.parametrize("value", ["@freeze linear(x, 3)", "linear(@freeze x, 3)", "[@freeze linear(x, 3)]"])
def test_an_attribute_inside_of_an_expression(value: str) -> None:
    [found] = told(body(f"y = {value}", "return x"))
    assert found.code == "E0001" and "stands before a statement or a stage" in found.title
    assert found.help == "write `@freeze` before the whole statement, or `x |> @freeze f(a)`"


@pytest.mark.parametrize("layer", ["lstm", "gru", "rnn"])
def test_the_number_of_layers_is_given_by_name(layer: str) -> None:
    """`LSTM(8, 64)` of PyTorch has an input of 8; a third number by position made 64 layers."""
    [found] = told(body(f"y = {layer}(x, 8, 64)", "return y", x="[B, 3, 8]"))
    assert (
        found.code == "E0201"
        and f"leave out `8`, the size of the input, which is known: write `{layer}(x, 64)`" in (found.help or "")
    )
    [found] = told(body(f"y = {layer}(x, 64, 2)", "return y", x="[B, 3, 8]"))
    assert found.code == "E0201" and "it takes x, hidden, and by name layers, bidirectional" in (found.help or "")


def test_several_values_have_no_axes() -> None:
    [found] = told(body("y = gru(x, 4)", "return y[:, -1]", x="[B, 3, 8]"))
    assert found.title == "these are 2 values, no tensor" and found.help is not None and "`a, b = ...`" in found.help


@pytest.mark.parametrize(
    ("optimizer", "help"),
    [
        ("sgd(0.001)", "write `lr=0.001`"),
        ('adam(lr="0.001")', "write it without quotes: `0.001`"),
        ('adam(decay_on="weights")', 'write `decay_on="all"` or `decay_on="matrices"`'),
        ("adam", "optimizer = adam(lr=0.01)"),
        ('"adm"', "optimizer = adam(lr=0.01)"),
        ("3", "optimizer = sgd(lr=0.01)"),
    ],
)
def test_an_optimizer_is_told_what_to_write(optimizer: str, help: str) -> None:
    [found] = told(body("return linear(x, 4)") + TRAIN.replace("adam(lr=0.001)", optimizer))
    assert found.help == help


def test_metrics_stand_in_braces() -> None:
    """Before, this was a variable that nothing read, and no metric."""
    [found] = told(body("return linear(x, 4)") + TRAIN.replace("}", "  metrics = accuracy(output, label)\n}"))
    assert found.code == "E0113" and found.help == "write `metrics { NAME = value }`: each metric has a name"


def test_a_label_is_declared() -> None:
    [found] = told(body("return linear(x, 4)") + TRAIN.replace("(label: i32[B])", ""))
    assert found.code == "E0102" and found.help is not None and "`label: [B, 8]`" in found.help


def test_a_model_without_a_return_is_told_once() -> None:
    assert [found.code for found in told(body("y = linear(x, 4)") + TRAIN)] == ["E0208"]


@pytest.mark.parametrize(
    ("dim", "help"),
    [
        ("dim T = 1..64", "write `dim B in 1..64 = 8` with bounds and a default, or `dim T = 35` for a fixed size"),
        ("dim T in [2, 64]", "write `dim T in 2..64 = 64`: both bounds, and the default"),
        ("dim T in 64", "write `dim T in 1..64 = 64`: both bounds, and the default"),
    ],
)
def test_a_dim_is_told_its_form(dim: str, help: str) -> None:
    assert told(f"{HEAD}{dim}\n" + body("return x").removeprefix(HEAD))[0].help == help


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("[1, 2, 3][1:]", [2, 3]),
        ("[1, 2, 3][:-1]", [1, 2]),
        ("[1, 2, 3][::-1]", [3, 2, 1]),
        ("[1, 2, 3, 4][1:4:2]", [2, 4]),
        ("[1, 2, 3][3:]", []),
        ("[1, 2, 3][2:1]", []),
    ],
)
def test_lists_have_slices(written: str, wanted: list[int]) -> None:
    """As Python's, for bounds within the list."""
    lines = [f"values = {written}", f'check len(values) == {len(wanted)}, "length"']
    lines += [f'check values[{i}] == {value}, "element"' for i, value in enumerate(wanted)]
    check_program(files(body(*lines, "return x")))
    with pytest.raises(CompileError, match="E0206"):
        check_program(files(body(*lines, f'check len(values) != {len(wanted)}, "no"', "return x")))


@pytest.mark.parametrize(("written", "code"), [("[1, 2][3:]", "E0209"), ("[1, 2][:-3]", "E0209"), ("[1][::0]", "E0209"),
                                               ("[1][:x]", "E0202"), ("[1][0.5]", "E0202")])  # fmt: skip
def test_bounds_of_a_list_lie_within_it(written: str, code: str) -> None:
    assert told(body(f"y = {written}", "return x"))[0].code == code


def test_parts_of_a_split_have_slices_and_the_sum_of_nothing_is_zero() -> None:
    """Offsets of tables, as a recommender has them, and the tail of a list of tensors."""
    text = "const SIZES = [10, 20, 7]\n" + body(
        "offsets = [sum(SIZES[:i]) for i in 0..len(SIZES)]",
        'check offsets[0] == 0 and offsets[1] == 10 and offsets[2] == 30, "offsets"',
        "return concat(split(x, 4)[1:3])",
    ).removeprefix(HEAD)
    checked = check_program(files(HEAD + text))
    assert checked.graph.outputs["result.output"].type.shape[1] == 4
