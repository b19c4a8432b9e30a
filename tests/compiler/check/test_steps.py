"""Steps of a train section: several updates with parameters, a loss and an optimizer of their own."""

from __future__ import annotations

import pytest
from sources.in_memory import files

from dslc.compiler.check.entries import optimizer_slots, train_spec
from dslc.compiler.check.model import Checked, check_program
from dslc.dsl.diagnostics import CompileError

NET = """nn 1
dim B in 1..64 = 6
model Net(x: [B, 5]) -> (a: [B, 3], b: [B, 3]) {{
  h = x |> linear(4) as body |> relu
  return h |> linear(3) as first, h |> linear(3) as second
}}
train Net(label: i32[B]) {{
  {body}
}}
"""
ONE = 'step one { params = "first"; loss = cross_entropy(a, label); optimizer = adam(lr=0.1, weight_decay=0.5) }'
TWO = 'step two { params = ["second", "body"]; loss = cross_entropy(b, label); optimizer = sgd(lr=0.05) }'


def checked(*body: str) -> Checked:
    return check_program(files(NET.format(body="\n  ".join(body))))


def test_each_step_has_its_parameters_optimizer_and_rate() -> None:
    found = checked(ONE, TWO)
    spec = train_spec(found)
    assert spec is not None and not found.unreached and not found.warnings
    one, two = spec.updates
    assert (one.name, one.optimizer.name, set(one.trained)) == ("one", "adam", {"first.weight", "first.bias"})
    assert set(two.trained) == {"second.weight", "second.bias", "body.weight", "body.bias"}
    given = {p.name: (p.lr_factor, p.weight_decay) for p in spec.params}
    assert given["first.weight"] == (1.0, 0.5) and given["body.bias"] == (0.5, 0.0)
    slots = optimizer_slots(spec)
    assert set(slots.values()) == set(one.trained) and len(slots) == 4


def test_the_losses_are_metrics_and_their_sum_is_the_loss() -> None:
    found = checked(ONE, TWO, "metrics { more = one + 2 * two }")
    assert found.train is not None and list(found.train.metrics) == ["one", "two", "more"]
    assert {"loss", "metric.one", "metric.two", "metric.more"} <= set(found.graph.outputs)


def test_a_parameter_of_no_step_is_told() -> None:
    found = checked(ONE, TWO.replace('["second", "body"]', '"second"'))
    assert found.unreached == {"body.weight", "body.bias"}
    [warning] = found.warnings
    assert warning.code == "W008" and "no step trains" in warning.title and len(warning.also) == 2


def test_variables_of_steps() -> None:
    inner = 'step one { params = "first"; each = a - b; loss = mean(each * each) + 0 * cross_entropy(a, label);'
    inner += " optimizer = sgd(lr=1.0) }"
    assert list(checked(inner).train.metrics) == ["one"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "code", "part"),
    [
        ([ONE, TWO.replace('"second"', '"first.weight"')], "E0510", "two steps train `first.weight`"),
        ([ONE.replace('"first"', '"frist"')], "E0510", "selects no parameter"),
        ([ONE.replace('"first"', '"a{"')], "E0510", ""),
        ([ONE.replace('"first"', "3")], "E0510", "a text or a list of texts"),
        ([ONE.replace('"first"', "[]")], "E0510", "a text or a list of texts"),
        ([ONE.replace('params = "first"; ', "")], "E0510", "which parameters"),
        ([ONE.replace("loss = cross_entropy(a, label); ", ""), TWO], "E0501", "`step one` has no loss"),
        ([ONE.replace("; optimizer = adam(lr=0.1, weight_decay=0.5)", "")], "E0503", "`step one` has no optimizer"),
        ([ONE, TWO, "loss = mean(a)"], "E0113", "stands next to steps"),
        ([ONE, TWO, "optimizer = sgd(lr=0.1)"], "E0113", "stands next to steps"),
        ([ONE, ONE.replace("first", "second").replace("(a,", "(b,")], "E0103", "another `one`"),
        ([ONE.replace("step one", "step a")], "E0103", "another `a`"),
        ([ONE.replace("step one", "step lr")], "E0112", "cannot be named `lr`"),
        ([ONE.replace("loss =", "ema = 0.9; loss =")], "E0113", "does not belong to a step"),
        ([ONE.replace("loss =", "loss = mean(a); loss =")], "E0103", "gives `loss` twice"),
        ([ONE.replace("(a, label)", "(b, label)"), TWO.replace('"second", ', "")], "E0506", "no trained parameter"),
        ([ONE.replace("lr=0.1", "lr=0.0"), TWO], "E0209", "learning rate is 0"),
        ([ONE, "group { loss = 1 }"], "E0113", "not a group of `train`"),
        ([ONE, "step { loss = 1 }"], "E0113", "not a group of `train`"),
    ],
)
def test_wrong_steps(body: list[str], code: str, part: str) -> None:
    with pytest.raises(CompileError) as caught:
        checked(*body)
    first = caught.value.diagnostics[0]
    assert first.code == code and part in first.title, caught.value


def test_a_step_outside_of_a_section() -> None:
    text = NET.format(body="loss = cross_entropy(a + b, label)\n  optimizer = sgd(lr=0.1)") + "step one { a = 1 }\n"
    with pytest.raises(CompileError) as caught:
        check_program(files(text))
    assert "inside of a `train` section" in str(caught.value)
