"""Every message of the checker, as golden text: the program first, then what the user sees."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from places import ROOT
from sources.bad_programs import BAD
from sources.in_memory import files

from dslc.compiler.check.model import check_file, check_program
from dslc.dsl.diagnostics import CompileError


@pytest.mark.parametrize("name", sorted(BAD))
def test_message(name: str, golden: Callable[[str, str], None], allowed: Callable[[float, float], bool]) -> None:
    text, codes = BAD[name]
    started = time.process_time()
    with pytest.raises(CompileError) as caught:
        check_program(files(text))
    assert [d.code for d in caught.value.diagnostics] == codes, caught.value.render()
    assert allowed(time.process_time() - started, 2), "a refusal takes at most 2 s"
    shown = text if len(text) < 1500 else text[:600] + "...\n"
    golden(f"diagnostics/check/{name}.txt", f"{shown}\n{caught.value.render()}\n")


def test_enough_messages() -> None:
    assert len(BAD) >= 50


@pytest.mark.parametrize("classes", [1, 2, 4, 5, 1000])
def test_the_resnet_example_takes_any_number_of_classes(classes: int) -> None:
    checked = check_file(ROOT / "examples/resnet/resnet.nn", "ResNet18", {"classes": str(classes)})
    assert {"metric.top1", "metric.top5"} <= set(checked.graph.outputs)


def test_a_dim_that_is_not_declared_is_one_error() -> None:
    text = "nn 1\nmodel M(x: [B, 3], y: [B]) -> [B, 3] { return linear(x, 3) + mean(y) }\n"
    text += "train M(label: i32[B]) {\n  loss = cross_entropy(output, label)\n  optimizer = sgd(lr=0.1)\n}\n"
    with pytest.raises(CompileError) as caught:
        check_program(files(text))
    assert [d.code for d in caught.value.diagnostics] == ["E0307"], caught.value.render()


def test_more_than_all_classes_are_told() -> None:
    text = "nn 1\nmodel M(x: [4, 3]) -> [4, 3] { return linear(x, 3) }\ntrain M(y: i32[4]) {\n  loss = mse(output, x)\n"
    text += "  metrics { a = accuracy(output, y, top=5) }\n  optimizer = sgd(lr=0.1)\n}\n"
    with pytest.raises(CompileError, match=r"(?s)E0209.*there are 3 classes.*such as `top=3`"):
        check_program(files(text))


def test_a_constant_that_captures_a_dim_is_told_with_both_places() -> None:
    text = "nn 1\nconst H = 7\nblock Sq(x: [4, H]) -> [4, H] {\n  return x\n}\n"
    with pytest.raises(CompileError) as raised:
        check_program(files(text + "model M(x: [4, 5]) -> [4, 5] { return Sq(x) }\n"))
    shown = raised.value.render()
    assert "2 | const H = 7" in shown and "3 | block Sq(x: [4, H])" in shown and "rename one of them" in shown
    text = "nn 1\nconst H = 7\nmodel M(x: [4, 5]) -> [4, H] {\n  return x\n}\n"
    with pytest.raises(CompileError, match=r"(?s)2 \| const H = 7.*rename one of them"):
        check_program(files(text))


@pytest.mark.parametrize("loss", ["cross_entropy", "nll", "accuracy"])
def test_swapped_arguments_are_not_to_be_converted(loss: str) -> None:
    text = "nn 1\nmodel M(x: [4, 3]) -> [4, 3] { return linear(x, 3) }\ntrain M(y: i32[4]) {\n  loss = mse(output, x)\n"
    text += f"  metrics {{ a = {loss}(y, output) }}\n  optimizer = sgd(lr=0.1)\n}}\n"
    with pytest.raises(CompileError, match=r"(?s)E0204.*swap the arguments: \w+\(logits, target\)") as raised:
        check_program(files(text))
    assert "cast" not in raised.value.render()
