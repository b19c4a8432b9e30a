"""Every argument of every optimizer is checked where it stands: what a build would refuse, `dslc check` refuses."""

from __future__ import annotations

import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.compiler.check.training.optimizer import COMMON
from dslc.compiler.ir.function import OPTIMIZERS
from dslc.compiler.ops.registry import load_all
from dslc.dsl.diagnostics import CompileError, Diagnostic

load_all()
TEXT = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 16]) -> [B, 4] {{ return linear(x, 4) as fc }}
train Net(label: i32[B]) {{
  loss = cross_entropy(output, label)
  optimizer = {optimizer}
}}
"""
#: values that no argument of this kind takes
WRONG = {
    int: ["-1", "0.5", '"much"', "true"],
    float: ["-1", "-0.5", '"much"', "true"],
    bool: ["1", '"yes"'],
    str: ["2", '"some"'],
    tuple: ["(1.0, 0.9)", "(-0.1, 0.9)", "(0.9, 1.5)", "0.9", "(0.9, 0.9, 0.9)"],
}
#: the same for single arguments
OWN = {
    "beta2_decay": ["0.5", '"much"', "true"],
    "etas": ["(1.0, 0.9)", "(-0.1, 1.9)", "0.9", "(0.9, 0.9, 0.9)"],
    "step_sizes": ["(1.0, 0.9)", "(-0.1, 0.9)", "(0, 1)", "0.9"],
    "adafactor eps": ["(0, 0.9)", "(-0.1, 0.9)", "(0.1, -0.9)", "0.9"],
}
CASES = [
    (name, argument, wrong)
    for name, optimizer in OPTIMIZERS.items()
    for argument, default in {**COMMON, **optimizer.defaults}.items()
    for wrong in OWN.get(f"{name} {argument}", OWN.get(argument, WRONG[float if default is None else type(default)]))
    + (["0", "0.0"] if argument.startswith("clip_") else ["1.0", "2"] if argument in ("momentum", "alpha") else [])
]


def refused(optimizer: str) -> list[Diagnostic]:
    with pytest.raises(CompileError) as caught:
        check_program(files(TEXT.format(optimizer=optimizer)))
    return list(caught.value.diagnostics)


@pytest.mark.parametrize(("name", "argument", "wrong"), CASES, ids=[f"{n}-{a}={w}" for n, a, w in CASES])
def test_a_wrong_number_is_refused_at_its_place(name: str, argument: str, wrong: str) -> None:
    lr = "" if argument == "lr" else "lr=0.1, "
    [found] = refused(f"{name}({lr}{argument}={wrong})")
    assert found.code in ("E0202", "E0209")
    assert found.label.span.text == f"{argument}={wrong}"


def test_arguments_that_need_each_other() -> None:
    [found] = refused("sgd(lr=0.1, nesterov=true)")
    assert found.code == "E0209" and found.label.span.text == "nesterov=true" and found.help == "`momentum=0.9`"


def test_the_limits_themselves_are_taken() -> None:
    for optimizer in ("sgd(lr=0, momentum=0, weight_decay=0)", "adam(lr=0.1, betas=(0, 0), eps=0, clip_norm=0.01)"):
        assert check_program(files(TEXT.format(optimizer=optimizer))).train is not None
