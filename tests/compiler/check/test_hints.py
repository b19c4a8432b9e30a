"""Hints that name the tensor to convert."""

from __future__ import annotations

import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.dsl.diagnostics import CompileError


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("arange(4) * pi", '`arange(4, dtype="float")`'),
        ("x * arange(4)", '`arange(4, dtype="float")`'),
        ("x + tensor([1, 2, 3, 4])", '`tensor([1, 2, 3, 4], dtype="float")`'),
        ('0.5 * arange(4, dtype="i64")', '`cast(arange(4, dtype="i64"), "float")`'),
        ("n * 0.5", '`cast(n, "float")`'),
        ("n / 2", '`cast(n, "float")`'),
        ("n * 2.0", 'write 2, or convert the tensor: `cast(n, "float")`'),
        ("maximum(n, 0.5)", '`cast(n, "float")`'),
        ("sin(n)", '`cast(n, "float")`'),
        ("n |> sin", '`cast(n, "float")`'),
        ("x @ n", '`cast(n, "float")`'),
        ("mean(x > 0)", '`cast(x > 0, "float")`'),
        ("where(x > 0, x, n)", '`cast(n, "float")`'),
        ("not (x > 0)", "`logical_not(a)`"),
        ("n + wide", "`+` mixes i32 and i64"),
        ("n + wide", '`cast(n, "i64")`'),
        ("wide == arange(4)", '`cast(arange(4), "i64")`'),
        ("(x > 0) + n", '`cast((x > 0), "i32")`'),
        ('cast(x, "bf16") * x', "`*` mixes bf16 and float"),
        ('x - cast(x, "f64")', '`cast(cast(x, "f64"), "float")`'),
        ("x > 0 and n > 0", "`logical_and(a, b)`"),
        ("(x > 0) or n > 0", "`logical_or(a, b)`"),
    ],
)
def test_a_hint_names_the_tensor(expression: str, hint: str) -> None:
    text = f"nn 1\nmodel M(x: [4], n: i32[4], wide: i64[4]) -> [_] {{\n  y = n\n  z = {expression}\n  return x\n}}\n"
    with pytest.raises(CompileError) as error:
        check_program(files(text))
    assert hint in str(error.value)


def test_a_convolution_with_a_weight_for_each_row() -> None:
    head = "nn 1\nmodel M(x: [2, 4, 8, 8], w: [2, 6, 4, 3, 3]) -> [2, 6, 36] {\n"
    with pytest.raises(CompileError, match="E0203") as error:
        check_program(files(f"{head}  return conv(x, weight=w)\n}}\n"))
    assert "`reshape(w, [B, out, 9*C]) @ unfold(x, 3)`" in str(error.value)
    check_program(files(f"{head}  return reshape(w, [2, 6, 9*4]) @ unfold(x, 3)\n}}\n"))
    with pytest.raises(CompileError, match="the same number of spatial axes"):
        check_program(files(f"{head}  return conv(x, weight=w[0, 0])\n}}\n"))
    with pytest.raises(CompileError, match="the same number of spatial axes"):
        check_program(files(f"{head}  return conv_transpose(x, weight=w)\n}}\n"))


def test_a_size_that_the_build_chooses_is_no_int() -> None:
    text = "nn 1\ndim B in 1..8 = 2\nmodel M(x: [B, 4]) -> [B, 2] { return topk(x, B)[0] }\n"
    with pytest.raises(CompileError, match="E0205") as error:
        check_program(files(text))
    assert "fix it, which makes it an int: `dim B = 2`" in str(error.value)
    check_program(files(text.replace("in 1..8 ", "")))


@pytest.mark.parametrize("text", ["pad(x, [1, 2], 0)", "pad(x, [1, 2], [0])", "pad(x, [1, 2], [0, 0])"])
def test_one_number_pads_all_axes(text: str) -> None:
    checked = check_program(files(f"nn 1\nmodel M(x: [4, 4]) -> [5, 6] {{ return {text} }}\n"))
    assert checked.graph.outputs["result.output"].type.ints == (5, 6)


@pytest.mark.parametrize(("text", "told"), [("[1, 2, 3]", "`before` has 3"), ("[1, 2], [1, 2, 3]", "`after` has 3")])
def test_numbers_of_other_axes_are_refused(text: str, told: str) -> None:
    with pytest.raises(CompileError, match="E0306") as error:
        check_program(files(f"nn 1\nmodel M(x: [4, 4]) -> [_, _] {{ return pad(x, {text}) }}\n"))
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("ij,jj->i", "'jj' takes the diagonal of [4, 5], whose axes must be equal"),
        ("ij,ij->i", "a letter has one size"),
        ("ij,kl->ijj", "`unsqueeze(x, -1) * eye(n)` makes diagonal matrices"),
        ("i...,k...->ik", "write a letter for each axis"),
    ],
)
def test_a_pattern_of_einsum_that_does_not_fit(pattern: str, told: str) -> None:
    text = f'nn 1\nmodel M(x: [4, 4], y: [4, 5]) -> [4, 4] {{\n  z = einsum("{pattern}", x, y)\n  return x\n}}\n'
    with pytest.raises(CompileError) as error:
        check_program(files(text))
    assert told in str(error.value)


def test_an_axis_of_an_open_size_does_not_split() -> None:
    text = 'nn 1\ndim N in 1..8 = 4\nmodel M(x: [N]) -> [_, 4] { return rearrange(x, "(n k) -> n k", k=4) }\n'
    with pytest.raises(CompileError, match="E0303") as error:
        check_program(files(text))
    assert "`4*K` for the size N" in str(error.value)


def test_the_place_of_an_assignment_that_a_loop_does_not_carry() -> None:
    loop = "  scan t in x along 0 into y {\n    z = 2 * t\n    a, q = z, z\n    yield z\n  }\n"
    with pytest.raises(CompileError, match="E0112") as error:
        check_program(files(f"nn 1\nmodel M(x: [4]) -> [4] {{\n  a = x\n{loop}  return y\n}}\n"))
    assert "net.nn:6:5" in str(error.value)


@pytest.mark.parametrize(
    ("expression", "place", "told"),
    [
        ("pad(x, 0, [0, T])", "T", r"(?s)this is the size `T` in a list.*not an int\n.*an int: `dim T = "),
        ("pad(x, 0, [0, -T % 3])", "-T % 3", "(?s)in a list.*an int: `dim T = "),
        ("pad(x, 0, T)", "T", "(?s)this is the size `T`\n.*an int: `dim T = "),
        ("pad(x, 0, [0, 0.5])", "0.5", "this is a float in a list"),
        ("reshape(x, [2.0, T])", "2.0", "this is a float in a list"),
        ("concat([x, 3])", "3", r"this is an int in a list"),
        ("reshape(x, [T / 2, 2, 4])", "/", r"(?s)rounds down.*declare a multiple: `dim K in 1..64` and `2\*K`"),
        (
            "split(x, 2, axis=0)",
            "split(x, 2, axis=0)",
            r"declare a multiple: `dim K in 1..64` and `2\*K` for the size T",
        ),
    ],
)
def test_what_a_list_holds_and_sizes_that_do_not_divide(expression: str, place: str, told: str) -> None:
    text = f"nn 1\ndim T in 1..64 = 4\nmodel M(x: [T, 4]) -> [_, _] {{\n  return {expression}\n}}\n"
    with pytest.raises(CompileError, match=told) as caught:
        check_program(files(text))
    assert caught.value.diagnostics[0].label.span.text == place


@pytest.mark.parametrize(
    ("call", "help"),
    [
        ("dropout(30)", "write 0.3"),
        ("alpha_dropout(12.5)", "write 0.125"),
        ("stochastic_depth(20)", "write 0.2"),
        ("lstm(8, dropout=50)", "write 0.5"),
        ("batchnorm(momentum=10)", "write 0.1"),
        ("dropout(100)", "write 1"),
        ("alpha_dropout(100)", "below 1"),
        ("dropout(1.5)", "between 0 and 1"),
        ("dropout(-30)", "between 0 and 1"),
        ("dropout(300)", "between 0 and 1"),
    ],
)
def test_a_percentage_is_told_its_fraction(call: str, help: str) -> None:
    text = f"nn 1\nmodel M(x: [2, 3, 4]) -> [] {{ return sum(x |> {call}) }}\n"
    with pytest.raises(CompileError) as error:
        check_program(files(text))
    [found] = error.value.diagnostics
    assert found.code == "E0209" and help in (found.help or "")


@pytest.mark.parametrize(
    ("entry", "help"),
    [
        ("optimizer = sgd(lr=0.1, momentum=90)", "write 0.9"),
        ("optimizer = adam(betas=(90, 0.999))", "write 0.9"),
        ("optimizer = sgd(lr=0.1); ema = 99.9", "write 0.999"),
        ("optimizer = sgd(lr=0.1); loss = cross_entropy(output, label, smoothing=10)", "write 0.1"),
    ],
)
def test_a_percentage_in_a_train_section_is_told_its_fraction(entry: str, help: str) -> None:
    loss = "" if "loss" in entry else "loss = cross_entropy(output, label); "
    text = "nn 1\nmodel M(x: [2, 3]) -> [2, 4] { return linear(x, 4) as l }\n"
    with pytest.raises(CompileError) as error:
        check_program(files(f"{text}train M(label: i32[2]) {{ {loss}{entry} }}\n"))
    [found] = error.value.diagnostics
    assert found.code == "E0209" and help in (found.help or "")


@pytest.mark.parametrize(
    ("ids", "table", "help"),
    [
        ("arange(10)", "4, 10", "write `embedding(10, 4)`"),
        ("arange(10)", "4, 6", "give it 10 rows: `embedding(10, 6)`"),
        ("arange(T)", "2, 3", "write `embedding(3, 2)`"),
        ("broadcast_to(arange(10), [2, 10])", "9, 3", "give it 10 rows"),
        ("arange(9, -2, -1)", "10, 3", "ids count from 0"),
        ("arange(10)", "10, 4", ""),
        ("arange(T)", "3, 64", ""),
        ('cast(arange(300), "u8")', "256, 3", ""),
        ("arange(10) % 4", "4, 10", ""),
        ("arange(10)[2:4]", "4, 10", ""),
        ("i", "4, 10", ""),
    ],
)
def test_ids_that_the_source_counts_are_rows_of_the_table(ids: str, table: str, help: str) -> None:
    body = f'return sum(embedding({ids}, {table})) + sum(cast(i, "float"))'
    text = f"nn 1\ndim T in 3..64 = 8\nmodel M(i: i32[T]) -> [] {{ {body} }}\n"
    if not help:
        check_program(files(text))
        return
    with pytest.raises(CompileError, match="E0209") as error:
        check_program(files(text))
    assert help in (error.value.diagnostics[0].help or "")


def test_an_axis_that_may_be_empty_names_its_least_size() -> None:
    text = "nn 1\ndim N in 4..9 = 9\nmodel M(x: [N]) -> [] { return mean(x[4:]) }\n"
    with pytest.raises(CompileError, match="E0308") as error:
        check_program(files(text))
    assert "`N - 4` may be 0: raise the lower bound of its dim" in str(error.value)
    assert "`dim N in 5..9 = 9`" in str(error.value)
    check_program(files(text.replace("4..9", "5..9")))


@pytest.mark.parametrize(
    ("dim", "help"),
    [
        ("N in 1..99 = 8", "raise the lower bound of the dim: `dim N in 20..99 = 20`"),
        ("N in 2..9 = 4", "`k` from 1 to 2"),
    ],
)
def test_more_elements_than_all_sizes_have_name_the_lower_bound(dim: str, help: str) -> None:
    text = f"nn 1\ndim {dim}\nmodel M(x: [4, N]) -> [4, 20] {{\n  y, i = topk(x, 20)\n  return y\n}}\n"
    with pytest.raises(CompileError, match="the 20 greatest of N") as error:
        check_program(files(text))
    assert help in str(error.value)


@pytest.mark.parametrize(
    ("dim", "size", "declared"),
    [
        ("N in 1..99 = 8", "N", "N in 16..99 = 16"),
        ("K in 1..9 = 7", "10*K - 5", "K in 3..9 = 7"),
        ("N in 1..9 = 4", "N", ""),
    ],
)
def test_a_window_that_does_not_fit_all_sizes_names_the_lower_bound(dim: str, size: str, declared: str) -> None:
    text = f"nn 1\ndim {dim}\nmodel M(x: [4, 1, {size}]) -> [4, 2, _] {{ return conv(x, 2, 16) }}\n"
    with pytest.raises(CompileError, match="E0308") as error:
        check_program(files(text))
    assert (f"raise the lower bound of the dim: `dim {declared}`" in str(error.value)) is bool(declared)
    assert f"where `{size}` may be " in str(error.value)
    if declared:
        check_program(files(text.replace(dim, declared)))


def test_a_reshape_to_a_size_that_was_rounded_down_says_which_multiple_to_declare() -> None:
    text = """nn 1
dim N in 16..99 = 64
model M(x: [4, 1, N]) -> [4, N] {
  return x |> conv(3, 16, stride=8) |> conv_transpose(1, 16, stride=8) |> reshape([4, N])
}
"""
    with pytest.raises(CompileError, match="E0302") as error:
        check_program(files(text))
    assert "`N//8` rounds down; declare a multiple: `dim K in 1..64` and `8*K` for the size N" in str(error.value)
    check_program(files(text.replace("[4, N]", "[4, 8*K]").replace("1, N]", "1, 8*K]").replace("N in", "K in")))


def test_classes_may_be_a_size_that_the_build_chooses() -> None:
    text = "nn 1\ndim N in 2..9 = 3\nmodel M(x: i32[4], y: [4, N]) -> [4, N] {{\n  h = one_hot(x, {})\n"
    text += "  return h * gumbel_softmax(y, hard=true)\n}}\n"
    checked = check_program(files(text.format("N")))
    assert checked.graph.bind({"N": 5}).outputs["result.output"].type.ints == (4, 5)
    with pytest.raises(CompileError, match="E0308"):
        check_program(files(text.format("N - 2")))


LENGTH = "`x / maximum(norm(x, over=1, keep=true), 1e-12)`"
BY_NAME = "and by name stride, pad, dilation"


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("normalize(x)", LENGTH),
        ("normalize(x, dim=1)", LENGTH),
        ("normalize(x, 2, 1)", LENGTH),  # the norm and the axis in another framework, once taken for mean and std
        ("normalize(x, mean=0.5)", "normalize(x, mean, std, axis=-1)"),
        ("normalize(x, mean=0.5, std=2.0, dim=1)", "write `axis=1`"),
        ("unfold(i, 3, 1, 1, 2)", BY_NAME),  # the order in another framework is dilation, padding, stride
        ("fold(c, [6, 6], 3, 1, 1)", BY_NAME),
        ("conv(i, 8, 3, 1, 1)", BY_NAME),
        ("conv(i, 8, 3, 3)", "write `conv(i, 8, [3, 3])`"),
        ("maxpool(i, 2, 2, 1, 1)", "and by name dilation"),
    ],
)
def test_a_number_without_a_name_is_not_taken_for_another(call: str, hint: str) -> None:
    text = f"nn 1\nmodel M(x: [2, 4], i: [2, 4, 6, 6], c: [2, 9, 16]) -> [_] {{\n  y = [x, i, c]\n  return {call}\n}}\n"
    with pytest.raises(CompileError, match="E0201") as error:
        check_program(files(text))
    assert hint in str(error.value)
