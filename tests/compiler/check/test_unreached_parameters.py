"""A parameter that the loss does not reach: a warning with its place; training leaves it alone, as PyTorch does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sources.in_memory import files

import dslc
from dslc.compiler import pipeline
from dslc.compiler.check.model import Checked, check_program
from dslc.compiler.options import Options
from dslc.dsl.diagnostics import CompileError, render

NET = """nn 1
dim B in 1..64 = 6
model Net(x: [B, 5]) -> (a: [B, 3], b: [B, 3]) {{
  h = x |> linear(4) as body |> relu
  {head} = h |> linear(3) as aux
  return h |> linear(3) as main, {result}
}}
train Net(label: i32[B]) {{
  loss = {loss}
  optimizer = {optimizer}
  {more}
}}
"""
LOSS = "cross_entropy(a, label)"


def checked(
    loss: str = LOSS, optimizer: str = "sgd(lr=0.1)", more: str = "", result: str = "b", head: str = "b"
) -> Checked:
    text = NET.format(loss=loss, optimizer=optimizer, more=more, result=result, head=head)
    return check_program(files(text))


@pytest.mark.parametrize(
    "loss", [LOSS, f"{LOSS} + sum(stop_gradient(b))", f"{LOSS} + accuracy(b, label)", f"{LOSS} + sum(floor(b))",
             f"{LOSS} + sum(cast(b > 0, \"float\"))"]
)  # fmt: skip
def test_it_is_a_warning_at_its_place(loss: str) -> None:
    found = checked(loss)
    assert found.unreached == {"aux.weight", "aux.bias"}
    [warning] = found.warnings
    assert warning.code == "W008" and "`aux.weight`, `aux.bias`" in warning.title
    assert warning.label.span.text == "linear(3) as aux" and warning.label.span.line == 5
    assert [label.span.text for label in warning.also] == [loss] and "@freeze" in str(warning.help)
    assert render(warning).startswith("warning[W008]: the loss does not depend on")


def test_what_is_reached_or_frozen_is_not_named() -> None:
    assert not checked(f"{LOSS} + mse(b, 0)").warnings
    frozen = checked(head="@freeze b")
    assert not frozen.warnings and not frozen.unreached


def test_a_loss_without_gradients_is_an_error_at_its_place() -> None:
    for loss in ("accuracy(a, label)", "0 * cross_entropy(stop_gradient(a), label)"):
        with pytest.raises(CompileError) as caught:
            checked(loss)
        [found] = caught.value.diagnostics
        assert found.code == "E0506" and found.label.span.text == loss


OPTIMIZERS = ["sgd(lr=0.1, momentum=0.9, weight_decay=0.1, decay_on=\"all\")", "adamw(lr=0.01, clip_norm=0.5)",
              "lamb(lr=0.01, weight_decay=0.3)"]  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("more", ["", "ema = 0.9", "accumulate = 2"])
def test_training_leaves_it_alone(tmp_path: Path, optimizer: str, more: str) -> None:
    """And trains the others to the bit as with the head taken out of what is trained."""
    rows = 12 if more.startswith("acc") else 6
    ends = []
    for head in ("b", "@freeze b"):
        built = pipeline.build(checked(optimizer=optimizer, more=more, head=head), Options(provider="reference"))
        (tmp_path / "net.dslc").write_bytes(built.artifact)
        rng = np.random.default_rng(1)
        with dslc.load(tmp_path / "net.dslc", weights="init", seed=3) as session:
            start = {name: np.array(value) for name, value in session.weights.items()}
            for _ in range(3):
                session.train_step(
                    x=rng.normal(size=(rows, 5)).astype("f4"), label=rng.integers(0, 3, rows).astype("i4")
                )
            end = {name: np.array(value) for name, value in session.state_tensors().items()}
        for name in ("aux.weight", "aux.bias"):
            assert np.array_equal(end[name], start[name]) and [n for n in end if n.startswith(name)] == [name]
        assert not np.array_equal(end["body.weight"], start["body.weight"])
        ends.append(end)
    assert ends[0].keys() == ends[1].keys()
    assert all(ends[0][name].tobytes() == ends[1][name].tobytes() for name in ends[0])
