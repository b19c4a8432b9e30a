"""Calls as other frameworks write them: each is an error whose help can be written as it is."""

from __future__ import annotations

import re

import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.compiler.ir.function import FUNCTIONS
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.registry import load_all
from dslc.dsl.diagnostics import CompileError
from dslc.dsl.other_calls import FIELDS, LIBRARIES, METHODS
from dslc.dsl.other_names import key_of

load_all()
NET = """nn 1
dim B in 1..64 = 8
model M(x: [B, 6, 12], ids: i32[B, 6]) -> [B, _, _] {{
  i, z = ids, x
  y = {expression}
  return y
}}
"""


def helps(expression: str) -> list[tuple[str, str]]:
    """The code and the help of each error; none if the model is right."""
    try:
        check_program(files(NET.format(expression=expression)))
    except CompileError as error:
        return [(each.code, each.help or "") for each in error.diagnostics]
    return []


@pytest.mark.parametrize("table", [METHODS, FIELDS])
def test_helps_name_what_exists(table: dict[str, str]) -> None:
    ours = {key_of(name) for name in FUNCTIONS}
    for key, help in table.items():
        assert key == key_of(key) and (table is FIELDS or key not in ours or key == "transpose")
        called = [name for name in re.findall(r"(\w+)\(", help) if name not in ("f", "fc")]
        assert all(name in FUNCTIONS for name in called)
        dtypes = {dtype.value for dtype in DType}
        assert all(dtype in dtypes for dtype in re.findall(r'"(\w+)"', help))
    assert LIBRARIES.isdisjoint(FUNCTIONS)


@pytest.mark.parametrize(
    ("expression", "help"),
    [
        ("x.transpose(1, 2)", "transpose(x, [0, 2, 1])"),
        ("x.permute(0, 2, 1)", "`transpose(x, [0, 2, 1])`"),
        ("x.view(B, -1, 4)", "`reshape(x, [B, -1, 4])`"),
        ("x.reshape(B, 72)", "`reshape(x, [B, 72])`"),
        ("x.expand(B, 6, 12)", "`broadcast_to(x, [B, 6, 12])`"),
        ("x.tile(1, 2)", "`tile(x, [1, 2])`"),
        ("x.repeat(1, 2)", "tile(x, [1, 2])"),
        ("x.relu()", "`x |> relu`"),
        ("x.sum(-1)", "`x |> sum(-1)`"),
        ("x.mean(dim=1, keepdim=true)", "`x |> mean(over=[1], keep=true)`"),
        ("relu(x).mean(dim=-1)", "`relu(x) |> mean(over=[-1])`"),
        ("x.softmax(dim=1)", "`x |> softmax(axis=1)`"),
        ("x.float()", '`cast(x, "float")`'),
        ("x.detach()", "`stop_gradient(x)`"),
        ("x.masked_fill(x > 0, 0)", "`where(mask, value, x)`"),
        ("x.contiguous()", "leave it out"),
        ("x.item()", "leave it out"),
        ("x.size(1)", "write the size itself"),
        ("x.wibble()", "`x |> f`"),
        ("x |> x.relu", "`x |> relu`"),
        ("[relu, tanh][1](x, 4)", "`f = [relu, tanh][1]`, then `f(x, 4)`"),
        ("linear(4)(x)", "`x |> linear(4)`"),
        ("embedding(10, 4)(ids)", "`ids |> embedding(10, 4)`"),
        ("relu(inplace=true)(x)", "`x |> relu(inplace=true)`"),
        ("nn.Linear(12, 4)(x)", "`x |> linear(4)`"),
        ("layers.Dense(4)(x)", "`linear(x, out)`"),
        ("F.relu(x)", "write `relu`"),
        ("x |> F.relu", "write `relu`"),
        ("nn.functional.log_softmax(x)", "write `log_softmax`"),
        ("torch.cat([x, x], axis=1)", "`concat([x, y], axis=1)`"),
        ("torch.wibble(x)", "lists the built-in functions"),
        ("self.fc(x)", "`linear(x, 8) as fc`"),
        ("x |> self.fc", "`linear(x, 8) as fc`"),
        ("[x, x][0](x)", "`f = [x, x][0]`, then `f(x)`"),
        ("(x + x)(x)", "`x |> f`"),
    ],
)
def test_methods_prefixes_and_layers_that_are_called(expression: str, help: str) -> None:
    [(code, found)] = helps(expression)
    assert code == "E0101" and help in found


@pytest.mark.parametrize(
    ("expression", "code", "help"),
    [
        ("x.ndim", "E0102", "`x.shape[0]`"),
        ("x.size[0]", "E0102", "`x.shape[0]`"),
        ("x.mT", "E0102", "`x.T`"),
        ("x.dtype", "E0102", '`"f32"`'),
        ("x.grad", "E0102", "`gradient(y, x)`"),
        ("x.wibble", "E0102", "a tensor has `.T` and `.shape`"),
        ("x[:, None]", "E0102", "`unsqueeze(x, 1)`"),
        ("x[:, none]", "E0102", "`unsqueeze(x, 1)`"),
        ("transpose(x, perm=None)", "E0102", "leave the argument out"),
        ("reshape(x, [..., 12])", "E0001", "write each axis"),
        ("transpose(x, 1, 2)", "E0201", "`transpose(x, [0, 2, 1])`"),
        ("transpose(x, 1, -3)", "E0201", "`transpose(x, [1, 0, 2])`"),
        ("transpose(x, 1, 9)", "E0201", "it takes x, perm"),
        ("x |> transpose(1, 2)", "E0201", "`transpose(x, [0, 2, 1])`"),
        ("reshape(x, B, 3, 24)", "E0201", "`reshape(x, [B, 3, 24])`"),
        ("randn(B, 6)", "E0201", "`randn([B, 6])`"),
        ("zeros(B, 6)", "E0202", "`zeros([B, 6])`"),
        ("linear(x, 12, 4)", "E0202", "leave out `12`, the size of the input, which is known: write `linear(x, 4)`"),
        ("linear(x, 4, 4)", "E0202", "linear(x, out, bias=true"),
        ("conv(x, 6, 4, 3)", "E0201", "write `conv(x, 4, 3)`"),
        ("linear(12, 4)", "E0202", "`linear(x, 4)`, or pipe it: `x |> linear(...)`"),
        ("embedding(10, 4)", "E0202", "`embedding(x, 10, 4)`"),
        ("gather(x, 1, ids)", "E0202", "gather(x, index, axis=-1)"),
        ("len(x)", "E0202", "write the size itself"),
        ("float(x)", "E0202", '`cast(x, "float")`'),
        ("expand(x, [B, 6, 12])", "E0101", "`broadcast_to(x, [B, -1])`"),
        ("masked_fill(x, x > 0, 0)", "E0101", "`where(mask, value, x)`"),
        ("zeros_like(x)", "E0101", "zeros([B, 8])"),
    ],
)
def test_fields_and_arguments(expression: str, code: str, help: str) -> None:
    [(found, text)] = helps(expression)
    assert found == code and help in text


def test_an_unknown_name_before_the_dot_is_told() -> None:
    assert ("E0102", "did you mean `ids`?") in helps("idz.relu()")


@pytest.mark.parametrize(
    "expression",
    ["transpose(x, [0, 2, 1])", "reshape(x, [B, -1, 4])", "x |> mean(over=[1], keep=true)",
     "broadcast_to(x, [B, 6, 12])",
     "tile(x, [1, 2])", "unsqueeze(x[:, :, 0], 1)", "x |> linear(4)", "x |> sum(-1, keep=true)", "x.T"],
)  # fmt: skip
def test_what_the_helps_say_is_right(expression: str) -> None:
    assert helps(expression) == []
