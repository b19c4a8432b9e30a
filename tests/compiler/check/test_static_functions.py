"""Functions of numbers and sizes at compile time, against Python's."""

from __future__ import annotations

import pytest
from sources.in_memory import files

from dslc.base.errors import BuildError
from dslc.compiler.check.model import check_program
from dslc.dsl.diagnostics import CompileError

HEAD = "nn 1\ndim B in 1..64 = 8\ndim T in 8..256 = 16\n"

VALUES = [
    ("min(3, 2)", 2), ("max(3, 2.5)", 3), ("min([4, 1, 7])", 1), ("max(1, 2, 3)", 3),
    ("abs(-3)", 3), ("abs(-2.5)", 2.5),
    ("sum([1, 2, 3])", 6), ("round(2.5)", round(2.5)), ("round(3.5)", 4), ("floor(-1.5)", -2), ("ceil(1.2)", 2),
    ("int(-1.9)", -1), ("float(2)", 2.0),

    ("len([1, 2])", 2), ("round(8 * 1.5 / 8) * 8", round(1.5) * 8), ("max(T, 8) - T", 0), ("min(T, 300) - T", 0),
    ("abs(-T) - T", 0), ("round(T) - T", 0), ("max(T, T.max)", 256),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_value(text: str, value: float) -> None:
    source = f'{HEAD}model M(x: [B, 2]) -> [_, _] {{\n  check {text} == {value!r}, "differs"\n  return x\n}}\n'
    check_program(files(source))
    with pytest.raises(CompileError, match="E0206"):
        check_program(files(source.replace("==", "!=")))


def test_widths_and_lists_are_computed() -> None:
    text = "block scaled(x: [N, C], factor: float) -> [N, _] {\n"
    text += "  return x |> linear(max(8, round(C * factor / 8) * 8))\n}\n"
    text += "model M(x: [B, 40], widths: float = 1.3) -> [B, _] {\n  sizes = [8, 16]\n"
    text += (
        "  for i in 0..len(sizes) as s { x = x |> linear(sizes[i]) as f |> relu }\n  return x |> scaled(widths)\n}\n"
    )
    assert str(check_program(files(HEAD + text)).graph.outputs["result.output"].type) == "[B, 24]"


def test_a_tensor_among_the_arguments_makes_it_an_operation() -> None:
    found = check_program(files(HEAD + "model M(x: [B, 2]) -> [B, 2] { return abs(x) + max(x) + round(x) }\n"))
    assert {node.op.name for node in found.graph.nodes} >= {"abs", "round", "max"}


def test_a_list_of_tensors_has_a_length() -> None:
    text = "model M(x: [B, 2]) -> [B, 2] {\n  kept = [x, x]\n  return x * len(kept)\n}\n"
    check_program(files(HEAD + text))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("min(T, 20)", "E0205"), ("float(T)", "E0205"), ("abs(T - 20)", "E0205"),
        ("abs(1, 2)", "E0201"), ("len(3)", "E0202"), ('max(1, "a")', "E0202"),
        ("abs(true)", "E0202"),
        ("int(1e30)", "E0005"), ("min([])", "E0201"),
    ],
)  # fmt: skip
def test_errors(text: str, code: str) -> None:
    with pytest.raises(CompileError, match=code):
        check_program(files(f"{HEAD}model M(x: [B, 2]) -> [B, 2] {{ return x * ({text}) }}\n"))


def test_tensors_of_a_list_are_added_in_order() -> None:
    def graph(expr: str) -> list[str]:
        checked = check_program(
            files(f"{HEAD}model M(x: [B, 2], y: [B, 2]) -> [B, 2] {{\n  check len([x, y]) == 2\n  return {expr}\n}}\n")
        )
        return [f"{n.op.name} {n.types}" for n in checked.graph.nodes]

    assert graph("sum([x, 2, y, 3 * x])") == graph("x + 2 + y + 3 * x")
    assert graph("sum([1, 2, x])") == graph("3 + x")
    assert graph("sum([i * x for i in 1..4])") == graph("1 * x + 2 * x + 3 * x")
    for expr, said in (("sum([x, y], over=1)", "a list"), ("sum([x, y[:, 0]])", "E0301"), ("sum([x, [y]])", "a list")):
        with pytest.raises(CompileError, match=said):
            graph(expr)


LISTS = """block joined(xs: list, widths: list = [2, 3], more: int = 0) -> [_, _] {
  check len(widths) == 2, "two"
  for w in widths as w { xs = xs + [xs[-1] |> linear(w + more) as f] }
  return concat(xs)
}
"""


@pytest.mark.parametrize(
    ("call", "size"),
    [
        ("joined([x, x])", 2 + 2 + 2 + 3),
        ("joined([x], [4, 5], 1)", 2 + 5 + 6),
        ("joined(split(x, 2))", 1 + 1 + 2 + 3),
        ("[x] |> joined(widths=[T - T + 7, 1])", 2 + 7 + 1),
        ("concat(split(x, 2) + [x])", 4),
        ("concat([x] + split(x, 2))", 4),
    ],
)
def test_blocks_take_lists(call: str, size: int) -> None:
    text = f"{HEAD}{LISTS}model M(x: [B, 2], t: [B, T]) -> [B, _] {{ return ({call}) + sum(t) }}\n"
    assert str(check_program(files(text)).graph.outputs["result.output"].type) == f"[B, {size}]"


def test_a_layer_takes_a_list_for_all_its_calls() -> None:
    text = "block f(x: [N, D], widths: list) -> [N, _] { for w in widths as w { x = x |> linear(w) as f }; return x }\n"
    text += "model M(x: [B, 2]) -> [B, 3] {\n  layer g = f([2, 3])\n  return g(x) + g(-x)\n}\n"
    assert set(check_program(files(HEAD + text)).params) == {
        f"g.w.{i}.f.{n}" for i in (0, 1) for n in ("weight", "bias")
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("block f(x: [N, D], w: list) -> [N, D] { return x * len(w) }\nmodel M(x: [B, 2]) -> [B, 2] { return f(x, 3) }",
         "`w` of `f` is a list, this is an int"),
        ("block f(x: [N, D], w: int) -> [N, D] { return x * w }\nmodel M(x: [B, 2]) -> [B, 2] { return f(x, [3]) }",
         "`w` of `f` is an int, this is a list"),
        ("model M(x: [B, 2], w: list = [1]) -> [B, 2] { return x * len(w) }", "only blocks take lists"),
        ("model M(x: [B, 2]) -> [B, 2] { return x }\ntrain M(w: list = [1]) { loss = mean(output) * len(w)\n"
         "optimizer = sgd(lr=0.1) }", "only blocks take lists"),
    ],
)  # fmt: skip
def test_what_is_no_list(text: str, says: str) -> None:
    with pytest.raises(CompileError, match="E0202") as caught:
        check_program(files(f"{HEAD}{text}\n"))
    assert says in str(caught.value)


def test_a_list_of_a_model_is_not_set_from_outside() -> None:
    text = "model M(x: [B, 2], w: list = [1]) -> [B, 2] { return x * len(w) }\n"
    with pytest.raises(BuildError, match="E0605"):
        check_program(files(HEAD + text), None, {"w": "[1]"})


def test_a_result_has_the_size_of_the_argument_that_the_body_reassigns() -> None:
    text = "block f(x: [N, D], d: int) -> [N, d] {\n  y = x |> linear(d) as f\n  d = relu(y)\n  return d\n}\n"
    text += "model M(x: [B, 2], v: int = 5) -> [B, v] {\n  v = x |> f(v)\n  return v\n}\n"
    assert str(check_program(files(HEAD + text)).graph.outputs["result.output"].type) == "[B, 5]"
