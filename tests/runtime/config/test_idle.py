"""Settings that need another one, which is missing, are told with their place; others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.runtime.config.idle import idle_settings
from dslc.runtime.config.load import load_config

DATA = "model: net.nn\ndata: {train: {x: a.npz:x}%s}\n"


@pytest.mark.parametrize(
    ("more", "rest", "told"),
    [
        ("", "save: {best: loss}\n", ["3:14: `save.best` compares means over epochs of training"]),
        ("", "train: {stop: {metric: loss, patience: 3}}\n", ["`train.stop` compares means"]),
        ("", "train: {eval_every: 2 epochs}\n", ["`train.eval_every` has no effect"]),
        ("", "start: {least: 0.3, partial: true}\n", ["`start.partial` has no effect", "`start.least` has no effect"]),
        ("", "start: {replace: [head]}\n", ["`start.replace` has no effect"]),
        (", split: 0.1", "save: {best: loss}\ntrain: {eval_every: 2 epochs}\n", []),
        (", eval: {x: b.npz:x}", "save: {best: loss}\n", []),
        ("", "save: {best: null}\ntrain: {stop: null}\n", []),
        ("", "start: {weights: w.safetensors, least: 0.3}\n", []),
        ("", "", []),
    ],
)
def test_what_needs_another_setting(tmp_path: Path, more: str, rest: str, told: list[str]) -> None:
    (tmp_path / "dslc.yaml").write_text(DATA % more + rest)
    found = list(idle_settings(load_config(tmp_path / "dslc.yaml", {}, {})))
    assert len(found) == len(told)
    for line, text in zip(found, told):
        assert line.startswith("warning: ") and text in line and ": there " in line
