"""`_` in a signature: a result has the size that the body gives it, an argument of a block any size."""

from __future__ import annotations

import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.dsl.diagnostics import CompileError

HEAD = "nn 1\ndim B in 1..64 = 8\ndim T in 8..256 = 16\n"


def shapes(text: str) -> dict[str, str]:
    """The types of the results of the model in a source."""
    found = check_program(files(HEAD + text)).graph.outputs
    return {name: str(value.type) for name, value in found.items()}


def test_sizes_of_results_of_models_and_blocks_are_inferred() -> None:
    block = "block down(x: [N, C, H, W]) -> [N, C, _, _] { return x |> maxpool(2) }\n"
    model = "model M(x: [B, 3, 32, 32]) -> [_, 3, _, _] { return x |> down |> down }\n"
    assert shapes(block + model) == {"result.output": "[B, 3, 8, 8]"}


def test_named_results_and_integer_results() -> None:
    text = "model M(x: [B, 6]) -> (best: i32[_], all: [_, _]) { return argmax(x, 1), x |> linear(T.max) }\n"
    text = text.replace("T.max", "9")
    assert shapes(text) == {"result.best": "i32[B]", "result.all": "[B, 9]"}


def test_two_inferred_sizes_of_arguments_may_differ() -> None:
    block = "block glue(x: [N, _], y: [N, _]) -> [N, _] { return concat([x, y], axis=1) }\n"
    model = "model M(x: [B, 3], y: [B, 5]) -> [B, _] { return glue(x, y) }\n"
    assert shapes(block + model) == {"result.output": "[B, 8]"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model M(x: [B, 6]) -> [B, 4, _] { return x }", r"(?s)E0302.*declared \[B, 4, _\], but is \[B, 6\]"),
        ("model M(x: [B, 6]) -> [4, _] { return x }", r"(?s)E0302.*declared \[4, _\].*or `_` to have it inferred"),
        ("model M(x: [B, 6]) -> i32[B, _] { return x }", r"(?s)E0302.*declared i32\[B, _\], but is \[B, 6\]"),
        ("model M(x: [B, 6]) -> [B, K] { return x }", r"(?s)E0307.*`K`.*result is \[B, 6\].*`_` to have it inferred"),
        ("model M(x: [B, _]) -> [B, _] { return x }", r"(?s)E0307.*an input's size cannot be inferred.*dim T in"),
        ("const N = 3\nblock f(x: [B, 2*N]) -> [B, _] { return x }\nmodel M(x: [B, 4]) -> [B, _] { return f(x) }",
         r"(?s)E0302.*const N = 3.*rename one of them"),
    ],
)  # fmt: skip
def test_errors(text: str, told: str) -> None:
    with pytest.raises(CompileError, match=told):
        check_program(files(HEAD + text + "\n"))


def test_a_size_that_is_written_is_checked_in_every_call() -> None:
    block = "block half(x: [N, D]) -> [N, D//2] { return x[:, 0:2] }\n"
    assert shapes(block + "model M(x: [B, 4]) -> [B, _] { return half(x) }\n") == {"result.output": "[B, 2]"}
    with pytest.raises(CompileError, match="E0302"):
        shapes(block + "model M(x: [B, 8]) -> [B, _] { return half(x) }\n")


@pytest.mark.parametrize(
    "body",
    [
        "maps, score = judge(x, 3); return concat(maps + [score])",
        "layer d = judges(); real, fake = d(x), d(-x); return concat(real[0][0] + [fake[1][1]])",
        "return concat([y for (maps, score) in judges(x) for y in maps[:1] + [score]]) |> linear(9)",
    ],
)
def test_its_results_may_be_lists_next_to_tensors_and_lists_of_these(body: str) -> None:
    judge = "block judge(x: [N, C], d: int) { f = x |> towers([d, d + 2]); return f, f[1] |> linear(1) as out }\n"
    judges = "block judges(x: [N, C]) { return [x |> judge(3) as a, x |> judge(4) as b] }\n"
    text = LISTS + judge + judges + f"model M(x: [B, 4]) -> [B, 9] {{ {body} }}\n"
    assert shapes(text) == {"result.output": "[B, 9]"}


def test_lists_that_double_again_and_again_return_at_once() -> None:
    block = "block f(x: [N, C]) { m = [x]; for i in 0..3000 { m = [m, m] }; return m }\n"
    assert shapes(block + "model M(x: [B, 3]) -> [B, 3] { a, b = f(x); return x }\n") == {"result.output": "[B, 3]"}


def test_sizes_of_a_tensor_are_a_list() -> None:
    block = "block f(x: [N, _, _], k: list) -> [_, _, _] { return x + zeros([k[0].shape[0], x.shape[1], 1]) }\n"
    model = "model M(x: [B, T, 4]) -> [B, T, _] { return f(x, [x, x]) |> linear(2*len(x.shape)) }\n"
    assert shapes(block + model) == {"result.output": "[B, T, 6]"}


def test_several_results_are_returned_as_a_list_too() -> None:
    block = "block f(x: [N, D], y: [N, D]) -> ([N, D], [N, D]) { return [-u for u in [x, y]] }\n"
    model = "model M(x: [B, 3]) -> [B, 3] { a, b = f(x, x); return a + b }\n"
    assert shapes(block + model) == {"result.output": "[B, 3]"}
    for given in ("[x]", "[x, x, x]"):
        with pytest.raises(CompileError, match="E0208"):
            shapes(f"block f(x: [N, D]) -> ([N, D], [N, D]) {{ return {given} }}\n{model}".replace("f(x, x)", "f(x)"))
    with pytest.raises(CompileError, match=r"(?s)E0202.*`f` returns tensors, this is a list"):
        shapes("block f(x: [N, D]) -> [N, D] { return [x] }\nmodel M(x: [B, 3]) -> [B, 3] { return f(x) }\n")


def test_a_layer_that_is_not_called_says_how() -> None:
    with pytest.raises(CompileError, match=r"(?s)E0207.*`layer ln = rmsnorm\(\)`"):
        shapes("model M(x: [B, 3]) -> [B, 3] { layer ln = rmsnorm; return ln(x) }\n")


def test_dots_are_the_axes_that_the_written_sizes_leave() -> None:
    blocks = (
        "block symlog(x: [...]) -> [...] { return sign(x) * log1p(abs(x)) }\n"
        "block mlp(x: [..., D], out: int) -> [..., out] { return x |> linear(2*D) as up |> gelu |> linear(out) }\n"
        "block first(x: [N, ..., D]) -> [N, D] { return mean(reshape(x, [N, -1, D]), over=1) }\n"
        "block both(x: [..., T, D], y: [..., D]) -> [..., _, D] {\n"
        "  return sum(x, over=T, keep=true) + unsqueeze(y, -2)\n}\n"
    )
    for given, out in (("[B, T, 4]", "[B, T, 6]"), ("[B, 4]", "[B, 6]"), ("[B, 2, T, 4]", "[B, 2, T, 6]")):
        assert shapes(f"{blocks}model M(x: {given}) -> {out} {{ return x |> symlog |> mlp(6) }}\n") == {
            "result.output": out
        }
    for given in ("[B, 2, T, 4]", "[B, 4]"):
        assert shapes(f"{blocks}model M(x: {given}) -> [B, 4] {{ return first(x) }}\n") == {"result.output": "[B, 4]"}
    model = "model M(x: [B, 2, T, 4], y: [B, 2, 4]) -> [B, 2, _, 4] { return both(x, y) }\n"
    assert shapes(blocks + model) == {"result.output": "[B, 2, 1, 4]"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("block f(x: [..., 4, D]) -> [..., D] { return sum(x, over=-2) }\nmodel M(x: [B]) -> [B] { return f(x) }",
         r"(?s)E0302.*`x` of `f` has at least 2 axes, this has 1"),
        ("block f(x: [..., D], y: [...]) -> [..., D] { return x * unsqueeze(y, -1) }\n"
         "model M(x: [B, 4, 2], y: [B, 2]) -> [B, 4, 2] { return f(x, y) }",
         r"(?s)E0302.*`\.\.\.` of `f` is \[B, 4\], but \[B, 2\] by `y`"),
        ("block f(x: [..., D]) -> [..., D] { return sum(x, over=0) }\nmodel M(x: [B, 4]) -> [4] { return f(x) }",
         r"(?s)E0302.*`f` is declared \[B, 4\], but is \[4\]"),
        ("block f(x: [..., D]) -> [..., D, 2] { return x }\nmodel M(x: [B, 4]) -> [_, _] { return f(x) }",
         r"(?s)E0302.*`f` is declared \[B, 4, 2\], but is \[B, 4\]"),
        ("block f(x: [..., 5]) -> [..., 5] { return x }\nmodel M(x: [B, 4]) -> [_, _] { return f(x) }",
         r"(?s)E0302.*`x` of `f` must have 5 in axis 1, it has 4"),
        ("block f(x: [N, D]) -> [..., D] { return x }\nmodel M(x: [B, 4]) -> [_, _] { return f(x) }",
         r"(?s)E0307.*`\.\.\.` of the result occurs in no argument"),
        ("block f(x: [..., ...]) -> [_, _] { return x }\nmodel M(x: [B, 4]) -> [_, _] { return f(x) }",
         r"(?s)E0001.*`\.\.\.` stands once in a shape"),
        ("model M(x: [..., 4]) -> [_, _] { return x }", r"(?s)E0307.*stands only in the signature of a block"),
        ("model M(x: [B, 4]) -> [...] { return x }", r"(?s)E0307.*`\.\.\.` of the result occurs in no argument"),
        ("model M(x: [B, 4]) -> [B, 4] { param w: [..., 4] = 0; return x + w }",
         r"(?s)E0307.*stands only in the signature of a block"),
        ("model M(x: [B, 4]) -> [B, 4] { return reshape(x, [..., 4]) }", r"(?s)E0001.*write each axis"),
    ],
)  # fmt: skip
def test_errors_of_dots(text: str, told: str) -> None:
    with pytest.raises(CompileError, match=told):
        check_program(files(HEAD + text + "\n"))


LISTS = """
block towers(x: [N, C], widths: list) {
  found = []
  for w in widths as tower {
    x = x |> linear(w) as fc
    found = found + [x]
  }
  return found
}
block total(xs: list) -> [_, 1] { return sum([mean(x, over=1, keep=true) for x in xs]) }
"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return concat(x |> towers([3, 5]))", "[B, 8]"),
        ("return concat(x |> towers([3]))", "[B, 3]"),
        ("layer f = towers([3, 5]); a, b = f(x); return concat([a, f(-x)[1]])", "[B, 8]"),
        ("a = x |> towers([3, 5, 6]) as first; return total(a[1:] + (x |> towers([2]) as second))", "[B, 1]"),
    ],
)
def test_a_block_that_declares_no_result_returns_a_list_of_any_length(body: str, found: str) -> None:
    assert shapes(LISTS + f"model M(x: [B, 4]) -> [B, _] {{ {body} }}\n") == {"result.output": found}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("widths: list) {", "widths: list) -> list {", "(?s)E0202.*leave `-> list` out"),
        ("return found", "return [found, [1]]", r"(?s)E0202.*`towers` returns tensors, this is an int.*in towers\("),
        ("return found", "return [found, found]", "`concat` wants a list of tensors, this is a list in a list"),
        ("return found", "return [w for w in widths]", "(?s)E0202.*`towers` returns tensors, this is an int"),
    ],
)
def test_what_is_no_list_of_tensors_is_told(old: str, new: str, told: str) -> None:
    with pytest.raises(CompileError, match=told):
        shapes(LISTS.replace(old, new) + "model M(x: [B, 4]) -> [B, _] { return concat(x |> towers([3, 5])) }\n")
