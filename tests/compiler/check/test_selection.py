"""``train.freeze`` and ``train.lr_scale`` are `@freeze` and `@lr` without a change of the source."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dslc.base.errors import BuildError
from dslc.compiler.check.entries import optimizer_slots, train_spec
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.check.selection import Selection
from dslc.compiler.options import Options, recorded_options
from dslc.dsl.diagnostics import CompileError

SOURCE = """nn 1
dim B in 1..8 = 4

block unit(x: [B, C], n: int) -> [B, n] {{ return x |> linear(n) as fc |> batchnorm as norm }}

model Net(x: [B, 8]) -> [B, 2] {{
  {stem} y = x |> unit(4) as stem
  {body} z = y |> unit(4) as body |> relu
  return z |> {head} linear(2) as head
}}

train Net(label: i32[B]) {{
  loss      = cross_entropy(output, label)
  optimizer = adamw(lr=0.1)
}}
"""


def checked(folder: Path, selection: Selection | None = None, **attrs: str) -> Checked:
    path = folder / "net.nn"
    path.write_text(SOURCE.format(**{"stem": "", "body": "", "head": "", **attrs}))
    return check_file(path, selection=selection)


def test_patterns_mean_what_attributes_do(tmp_path: Path) -> None:
    for stem, body in itertools.product(("", "@freeze", "@lr(0.5)"), ("", "@freeze", "@lr(10)", "@lr(0.5) @lr(3)")):
        freeze = tuple(name for name, said in (("stem", stem), ("body.*", body)) if said == "@freeze")
        scale = {"@lr(0.5)": 0.5, "@lr(10)": 10.0, "@lr(0.5) @lr(3)": 1.5}
        factors = {name: scale[said] for name, said in (("stem.*", stem), ("body", body)) if said in scale}
        theirs = checked(tmp_path, stem=stem, body=body)
        ours = checked(tmp_path, Selection(freeze, factors))
        first, second = train_spec(theirs), train_spec(ours)
        assert first is not None and first == second and optimizer_slots(first) == optimizer_slots(second)
        assert theirs.unreached == ours.unreached


def test_factors_multiply_in_any_order(tmp_path: Path) -> None:
    both = checked(tmp_path, Selection((), {"stem": 0.5, "*.fc": 4.0, "*.fc.weight": 0.25}), stem="@lr(2)")
    lr = {name: info.groups.lr for name, info in both.params.items()}
    assert lr["stem.fc.weight"] == 1.0 and lr["stem.fc.bias"] == 4.0 and lr["stem.norm.weight"] == 1.0
    assert lr["body.fc.bias"] == 4.0 and lr["head.weight"] == 1.0
    again = checked(tmp_path, Selection((), {"*.fc.weight": 0.25, "*.fc": 4.0, "stem": 0.5}), stem="@lr(2)")
    assert {name: info.groups for name, info in again.params.items()} == {
        name: info.groups for name, info in both.params.items()
    }


def test_the_selection_is_recorded_and_read_again(tmp_path: Path) -> None:
    plain = recorded_options(checked(tmp_path), Options())
    assert not {"freeze", "lr_scale"} & plain.keys()  # artifacts without a selection keep their bytes
    selection = Selection(("stem", "body"), {"head.*": 10.0})
    recorded = recorded_options(checked(tmp_path, selection), Options())
    assert recorded == {**plain, "freeze": ["body", "stem"], "lr_scale": {"head.*": 10.0}}
    again = Selection.of_recorded(recorded)
    assert again.recorded() == selection.recorded()
    assert train_spec(checked(tmp_path, again)) == train_spec(checked(tmp_path, selection))


@pytest.mark.parametrize(
    ("selection", "place", "help"),
    [
        (Selection(("stam",)), "train.freeze", "did you mean `stem`?"),
        (Selection(("stem.fc.weigth",)), "train.freeze", "did you mean `stem.fc.weight`?"),
        (Selection(("stem.norm.running_mean",)), "train.freeze", "did you mean"),
        (Selection((), {"zzz.*": 2.0}), "train.lr_scale", "the first parameter is `stem.fc.weight`"),
        (Selection(("stem", "ste{")), "train.freeze", "a place in braces"),
    ],
)
def test_a_pattern_that_selects_no_parameter_is_refused(
    tmp_path: Path, selection: Selection, place: str, help: str
) -> None:
    with pytest.raises(BuildError) as caught:
        checked(tmp_path, selection)
    assert caught.value.code == "E0605" and caught.value.place == place and help in (caught.value.help or "")


def test_everything_frozen_is_nothing_to_train(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        checked(tmp_path, Selection(("*",)))
    assert "E0505" in str(caught.value) and "all are frozen" in str(caught.value)
