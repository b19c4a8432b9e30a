"""W013: a loss that gets probabilities, logits or log-probabilities where it takes another of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_file, check_program
from dslc.compiler.ir.function import FUNCTIONS, LOG_PROBS, LOGITS, PROBS
from dslc.dsl.diagnostics import Diagnostic, render

NET = """nn 1
dim B in 1..64 = 6
{head}model Net(x: [B, 5]) -> [B, 3] {{
  return {result}
}}
train Net({target}) {{
  loss = {loss}
  optimizer = sgd(lr=0.1)
}}
"""
BLOCK = "block head(x: [N, C]) -> [N, 3] { return x |> linear(3) |> softmax }\n"
LINEAR = "x |> linear(3) as h"


def target(loss: str) -> str:
    return "label: i32[B]" if "label" in loss else "t: [B, 3]"


def found(result: str, loss: str, head: str = "") -> list[Diagnostic]:
    checked = check_program(files(NET.format(result=result, loss=loss, head=head, target=target(loss))))
    return [w for w in checked.warnings if w.code == "W013"]


@pytest.mark.parametrize(
    ("result", "loss", "title"),
    [
        (f"{LINEAR} |> softmax", "cross_entropy(output, label)", "`cross_entropy` takes logits, but `output` is the "
         "result of `softmax`"),
        (LINEAR, "cross_entropy(softmax(output), label)", "`cross_entropy` takes logits, but this is the result of"),
        (LINEAR, "(output |> softmax |> cross_entropy(label))", "`cross_entropy` takes logits, but this is"),
        ("head(x) as h", "cross_entropy(output, label)", "is the result of `softmax`"),
        (f"{LINEAR} |> log_softmax", "cross_entropy(output, label)", "is the result of `log_softmax`"),
        (f"{LINEAR} |> softmax", "cross_entropy(transpose(output[:, :], [1, 0]), label, axis=0)", "of `softmax`"),
        (f"{LINEAR} |> softmax", "cross_entropy(output, t)", "is the result of `softmax`"),
        (f"{LINEAR} |> sigmoid", "bce_with_logits(output, t)", "`bce_with_logits` takes logits"),
        (f"{LINEAR} |> sigmoid", "focal(t=t, x=output)", "`focal` takes logits, but `output`"),
        (LINEAR, "nll(output, label)", "`nll` takes log-probabilities, but `output` is the result of `linear`"),
        (f"{LINEAR} |> softmax", "nll(output, label)", "`nll` takes log-probabilities, but `output` is the result of"),
        ("linear(x, 3) + linear(x, 3, bias=false)", "kl_div(output, t)", "`kl_div` takes log-probabilities"),
        (LINEAR, "bce_with_logits(t, output)", "`bce_with_logits` takes a target of probabilities, but `output` is"),
        (LINEAR, "kl_div(log(t), output)", "`kl_div` takes a target of probabilities, but `output` is the result of"),
        (LINEAR, "dice(output, t)", "`dice` takes probabilities, but `output` is the result of `linear`"),
    ],
)  # fmt: skip
def test_it_is_told(result: str, loss: str, title: str) -> None:
    [warning] = found(result, loss, BLOCK if "head(" in result else "")
    assert title in warning.title and warning.help and warning.label.text
    assert warning.label.span.text in loss and render(warning).startswith("warning[W013]")


@pytest.mark.parametrize(
    ("result", "loss"),
    [
        (LINEAR, "cross_entropy(output, label)"),
        (LINEAR, "cross_entropy(output, softmax(t))"),
        (LINEAR, "bce_with_logits(output, sigmoid(t))"),
        (LINEAR, "nll(log_softmax(output), label)"),
        (LINEAR, "nll(log(softmax(output)), label)"),
        (LINEAR, "nll(output - logsumexp(output, over=1, keep=true), label)"),
        (f"{LINEAR} |> softmax", "nll(log(output), label)"),
        (f"{LINEAR} |> softmax", "cross_entropy(10 * output, label)"),
        (f"{LINEAR} |> relu", "dice(output, t)"),
        (f"{LINEAR} |> sigmoid", "dice(output, t)"),
    ],
)
def test_what_is_right_or_not_known_is_not_told(result: str, loss: str) -> None:
    assert not found(result, loss)


def test_the_place_of_the_softmax_may_be_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "heads.nn").write_text("nn 1\n" + BLOCK)
    (tmp_path / "net.nn").write_text(
        NET.format(
            head="use heads (head)\n",
            result="head(x) as h",
            loss="cross_entropy(output, label)",
            target="label: i32[B]",
        )
    )
    [warning] = [w for w in check_file(tmp_path / "net.nn").warnings if w.code == "W013"]
    text = render(warning)
    assert "heads.nn:2" in text and "net.nn:8" in text and "since `cross_entropy` applies `softmax` itself" in text


def test_the_table_names_arguments_that_exist() -> None:
    taking = {name: function for name, function in FUNCTIONS.items() if function.takes}
    assert {"cross_entropy", "bce_with_logits", "focal", "nll", "ctc", "kl_div", "dice"} <= set(taking)
    for function in taking.values():
        assert set(function.takes) <= {p.name for p in function.parameters}
        assert set(function.takes.values()) <= {LOGITS, LOG_PROBS, PROBS}
