"""Tensors that the steps of a loop update: statistics, states and buffers, against the program written out."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loops import opened
from thinning import taken

from dslc.runtime.session.session import Session

F64 = "precision { compute = f64; params = f64 }\n"
ROWS, STEPS, WIDTH = 4, 3, 2
BLOCKS = """
block normed(x: [B, 2], h: [B, 2]) -> [B, 2] {
  return tanh(x |> linear(2) as up |> batchnorm(momentum=0.3) as bn) * 0.5 + h
}
block counted(x: [B, 2], h: [B, 2]) -> [B, 2] {
  state seen: [B, 2] = 0.5
  state steps: i32[] = 3
  param w: [2] = uniform(0.9)
  seen = tanh(seen * w + x)
  steps = steps + 1
  return seen + 0.1 * h * cast(steps, "float")
}
block centred(x: [B, 2], h: [B, 2]) -> [B, 2] {
  buffer centre: [2] = 0.25
  y = x |> linear(2) as up
  centre = 0.9 * centre + 0.1 * mean(y, over=0)
  return tanh(y - centre) + 0.5 * h
}
block flattened(x: [B, 2], h: [B, 2]) -> [B, 2] {
  param w: [2, 2] = uniform(0.9)
  return tanh(x @ spectral_norm(w)) + 0.5 * h
}
"""
CELLS = ("normed", "counted", "centred", "flattened")


def source(cell: str, written_out: bool, reverse: bool = False, nested: bool = False, more: str = "") -> str:
    """A model of one cell that is called once a step, and once before and after the loop."""
    step = "h = cell(xt, h)\n"
    if nested:
        step = "scan again in x[:, :2] along 1 carry h { h = cell(again + xt, h) }\n"
    if written_out:
        inner = step.replace("scan again in x[:, :2] along 1 carry h {", "for j in 0..2 { again = x[:, j];")
        at = f"{STEPS - 1} - i" if reverse else "i"
        flip = "[:, ::-1]" if reverse else ""
        loop = f"kept = []\nfor i in 0..{STEPS} {{\nxt = x[:, {at}]\n{inner}kept = kept + [h]\n}}\n"
        loop += f"y = stack(kept, axis=1){flip}\n"
    else:
        loop = f"scan xt in x along 1{' reverse' * reverse} carry h into y {{\n{step}yield h\n}}\n"
    return (
        f"nn 1\ndim B in 1..8 = {ROWS}\n{BLOCKS}model Net(x: [B, {STEPS}, 2]) -> [B, {STEPS}, 2] {{\n"
        f"layer cell = {cell}()\nh = cell(x[:, 0], zeros([B, 2]))\n{loop}return y + unsqueeze(cell(h, h), 1)\n}}\n"
        f"train Net(t: [B, {STEPS}, 2]) {{\n  loss = mse(output, t)\n  optimizer = sgd(lr=0.5)\n}}\n{F64}{more}"
    )


def data(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((ROWS, STEPS, WIDTH)) for name in "xt"}


def hold(one: Session, other: Session, seed: int) -> None:
    for step in range(2):
        given = data(seed + step)
        near(one.predict(x=given["x"]), other.predict(x=given["x"]))
        near(one.train_step(**given).loss, other.train_step(**given).loss)
        mine, theirs = one.state_tensors(), other.state_tensors()
        assert mine.keys() == theirs.keys()
        for name in mine:
            near(mine[name], theirs[name])


def near(one: Any, other: Any) -> None:
    """Gradients of the program written out are added in another order."""
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("cell", "form"), taken(product(CELLS, ("forward", "reverse", "nested")), 4))
def test_each_step_finds_what_the_step_before_left(cell: str, form: str, fuzz_seed: int, tmp_path: Path) -> None:
    texts = [source(cell, each, form == "reverse", form == "nested") for each in (False, True)]
    hold(*(opened(t, tmp_path / str(i), provider="reference") for i, t in enumerate(texts)), fuzz_seed)


TWO_STEPS = (
    '  step first {{\n    params = "{0}"\n    loss = mse(output, t)\n    optimizer = sgd(lr=0.5)\n  }}\n'
    '  step second {{\n    params = "{1}"\n    loss = mse(output, 2 * t)\n    optimizer = sgd(lr=0.1)\n  }}\n'
)
ONE = "  loss = mse(output, t)\n  optimizer = sgd(lr=0.5)\n"


@pytest.mark.parametrize(
    ("cell", "train", "more"),
    [
        ("normed", ONE, "mesh { shards = 2 }\n"),
        ("centred", ONE, "mesh { shards = 2 }\n"),
        ("normed", ONE + "  accumulate = 2\n", ""),
        ("centred", ONE + "  accumulate = 2\n", ""),
        ("normed", TWO_STEPS.format("*.up.weight", "*.up.bias"), ""),
        ("centred", TWO_STEPS.format("*.up.bias", "*.up.weight"), ""),
    ],
)
def test_divided_steps_and_several_updates_are_those_of_the_program_written_out(
    cell: str, train: str, more: str, fuzz_seed: int, tmp_path: Path
) -> None:
    texts = [source(cell, each, more=more).replace(ONE, train) for each in (False, True)]
    if "accumulate" in train:
        texts = [t.replace(f"= {ROWS}\n", f"= {ROWS // 2}\n", 1) for t in texts]
    hold(*(opened(t, tmp_path / str(i), provider="reference") for i, t in enumerate(texts)), fuzz_seed)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("cell", ["normed", "counted"])
def test_kernels_of_16_bits_are_near(cell: str, precision: str, tmp_path: Path) -> None:
    """Steps that the scale of the loss makes overflow leave statistics and states as they were."""
    text = source(cell, False)
    whole = opened(text, tmp_path / "f64", provider="reference")
    half = opened(text.replace(F64, ""), tmp_path / "half", provider="own", precision=precision)
    given = data(3)
    narrow = {name: value.astype("f4") for name, value in given.items()}
    np.testing.assert_allclose(half.predict(x=narrow["x"]), whole.predict(x=given["x"]), rtol=0.05, atol=0.05)
    kept = {name: np.array(value) for name, value in half.state_tensors().items()}
    skipped, steps = 0, 0
    while not steps:
        found = half.train_step(**narrow)
        after = half.state_tensors()
        steps = 1 - (int(after["train.skipped_steps"]) - skipped if precision == "f16" else 0)
        if not steps:
            skipped += 1
            names = [n for n in kept if not n.startswith(("train.loss", "train.good", "train.skipped"))]
            assert all(np.array_equal(after[n], kept[n]) for n in names)
    assert found.loss == pytest.approx(whole.train_step(**given).loss, rel=0.02)
    for name, value in whole.state_tensors().items():
        np.testing.assert_allclose(half.state_tensors()[name], value, rtol=0.1, atol=0.1, err_msg=name)
