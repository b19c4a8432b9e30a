"""Proposed maps: those of published models load the same tensors as the shipped maps; no guess is silent."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from published.cases import PUBLISHED, Case
from published.recorded import Shaped, recorded, wanted

from dslc.runtime.config.maps import map_of, read_map
from dslc.runtime.weights.propose.assign import assign
from dslc.runtime.weights.propose.compress import map_of as map_of_lines
from dslc.runtime.weights.propose.items import in_our_layout, is_constant, items_of
from dslc.runtime.weights.propose.proposal import Proposal, Wanted, propose, text_of


def proposed(have: Mapping[str, Shaped], want: Mapping[str, tuple[int, ...]]) -> Proposal:
    return propose(have, {name: Wanted("f32", shape) for name, shape in want.items()}, "here")


def loaded(have: Mapping[str, Shaped], want: Collection[str], names: object) -> dict[str, tuple[object, str]]:
    """The tensor of the file, and what is done to it, of each weight that gets one."""
    naming = map_of(names, "here") if isinstance(names, str) else names
    made = naming.naming(have, "here", want).made  # type: ignore[attr-defined]
    return {name: (origin.pieces, origin.action) for name, origin in made.items() if name in want}


#: The weights of which the proposal says that it does not know: two equal biases of the head in the file, and two
#: layernorms whose names say nothing.
OPEN = {
    "bert-base-masked": {
        "bias",
        *(f"encoder.h.{i}.ln{n}.{e}" for i in range(12) for n in (1, 2) for e in ("weight", "bias")),
    }
}


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.name)
def test_it_loads_the_tensors_of_the_shipped_map(case: Case, tmp_path: Path) -> None:
    have, want = recorded(case.family)[case.name], wanted(case)
    shipped = loaded(have, want, case.map)
    found = proposed(have, want)
    ours = loaded(have, want, map_of_lines(found.lines))
    assert set(found.missing) == OPEN.get(case.name, set()) == shipped.keys() - ours.keys()
    assert {name: one for name, one in shipped.items() if name in ours} == ours
    # Patterns, not lists: as short as a map that a person writes.
    assert len(found.lines) <= 40
    types = {name: Wanted("f32", shape) for name, shape in want.items()}
    path = tmp_path / "a.map"
    path.write_text(text_of(found, "a # title", have, types), encoding="utf-8")
    assert loaded(have, want, read_map(path)) == ours


SMALLEST = [case for case in PUBLISHED if case.name in (
    "resnet18", "vgg11_bn", "mobilenet_v2", "efficientnet_b0", "densenet121", "convnext_tiny", "vit_b_16", "swin_t",
    "bert-base", "gpt2")]  # fmt: skip


@pytest.mark.parametrize("case", SMALLEST, ids=lambda case: case.name)
def test_without_the_words_of_names_no_guess_is_silent(case: Case) -> None:
    """The file's words are replaced by others, in the same way everywhere: what is still assigned is right, or it is
    said that names decided."""
    have, want = recorded(case.family)[case.name], wanted(case)
    right = {pieces[0]: name for name, (pieces, _) in loaded(have, want, case.map).items()}  # type: ignore[index]
    for seed in range(3):
        draw, words = random.Random(seed), dict[str, str]()

        def other(found: re.Match[str]) -> str:
            return words.setdefault(found[0], "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=5)))  # noqa: B023

        back = {}
        for name in have:
            module, _, leaf = name.rpartition(".")
            back[f"{re.sub('[A-Za-z_]+', other, module)}.{leaf}"] = name
        named = {new: have[old] for new, old in back.items() if not is_constant(old, have[old])}
        files = in_our_layout(items_of(named))
        found = assign(files, items_of({name: Shaped(shape) for name, shape in want.items()}))
        sure = [pair for pair in found.pairs if pair.reason != "similar"]
        assert [pair for pair in sure if right.get(back[pair.file.name]) != pair.model.name] == [], f"seed {seed}"


def test_equal_shapes_without_a_sign_are_told() -> None:
    square = (4, 4)
    have = {"alpha.weight": Shaped(square), "omega.weight": Shaped(square), "fc.weight": Shaped((2, 4))}
    found = proposed(have, {"x.weight": square, "y.weight": square, "fc.weight": (2, 4)})
    assert found.missing == ("x.weight", "y.weight") and found.unused == ("alpha.weight", "omega.weight")
    types = {"x.weight": Wanted("f32", square), "y.weight": Wanted("f32", square)}
    text = text_of(found, "t", have, types)
    assert "alpha.weight, omega.weight: x.weight, y.weight" in text and "Not known" in text


def test_a_choice_by_names_says_the_others() -> None:
    square = (4, 4)
    have = {f"self.{n}.weight": Shaped(square) for n in ("query", "key", "value")}
    want = {f"attn.{n}.weight": square for n in "qkv"}
    found = proposed(have, want)
    assert loaded(have, want, map_of_lines(found.lines)) == {
        f"attn.{n[0]}.weight": ((f"self.{n}.weight",), "") for n in ("query", "key", "value")
    }
    text = text_of(found, "t", have, {name: Wanted("f32", square) for name in want})
    assert "# or attn." in text


def test_a_head_of_other_classes_and_constants_are_named() -> None:
    have = {"net.0.weight": Shaped((4, 4)), "fc.weight": Shaped((1000, 4)), "net.position_ids": Shaped((1, 9), "i64")}
    want = {"a.0.weight": (4, 4), "head.weight": (3, 4)}
    found = proposed(have, want)
    assert found.missing == ("head.weight",) and found.unused == ("fc.weight",)
    text = text_of(found, "t", have, {name: Wanted("f32", shape) for name, shape in want.items()})
    assert '"*.position_ids": null' in text
    assert "#   head.weight f32[3, 4]" in text and "#   fc.weight f32[1000, 4]" in text


def test_axes_of_size_one_and_transposed_matrices_are_rearranged() -> None:
    have = {
        "pos": Shaped((1, 9, 4)), "up.weight": Shaped((4, 8)), "up.bias": Shaped((8,)), "sq.weight": Shaped((4, 4)),
        "sq.bias": Shaped((4,)),
    }  # fmt: skip
    want = {"p": (9, 4), "fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (4, 4), "fc2.bias": (4,)}
    found = loaded(have, want, map_of_lines(proposed(have, want).lines))
    assert found == {
        "p": (("pos",), "1 a b -> a b"), "fc1.weight": (("up.weight",), "i o -> o i"), "fc1.bias": (("up.bias",), ""),
        "fc2.weight": (("sq.weight",), "i o -> o i"), "fc2.bias": (("sq.bias",), ""),
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["a{b}", "*", "a b", "a: b", "#", "null", "é", "a\x1b[31m", "'", "- a", "x" * 1017, "x" * 1018]
)
def test_names_of_any_kind_are_written_so_that_they_are_read_again(name: str, tmp_path: Path) -> None:
    have, want = {f"{name}.weight": Shaped((2, 3))}, {"w": (2, 3)}
    found = proposed(have, want)
    path = tmp_path / "a.map"
    text = text_of(found, 'a "title"\\', have, {"w": Wanted("f32", (2, 3))})
    path.write_text(text, encoding="utf-8")
    assert all(line.isprintable() for line in text.splitlines())
    assert loaded(have, want, read_map(path)) == loaded(have, want, map_of_lines(found.lines))
    assert found.missing == () or found.unused


def test_a_module_around_that_is_the_whole_model_is_no_sign() -> None:
    """`embeddings.word` is `tok`, so `embeddings` is the whole model; its other tensors may be anywhere in it."""
    have = {"embeddings.word.weight": Shaped((9, 4)), "embeddings.norm.bias": Shaped((4,)), "h.a.bias": Shaped((4,))}
    want = {"tok.weight": (9, 4), "pooler.bias": (4,), "blocks.one.bias": (4,)}
    assert loaded(have, want, map_of_lines(proposed(have, want).lines)).keys() == {"tok.weight"}


def test_a_dtype_that_is_not_read_is_no_constant() -> None:
    have = {"a.weight": Wanted("F8_E4M3", (4, 3)), "a.position_ids": Wanted("i64", (3,))}
    want = {"b.weight": Wanted("f32", (4, 3))}
    text = text_of(propose(have, want, "here"), "t", have, want)
    assert '# constants\n  "*.position_ids": null' in text, text
    assert "# in a dtype that is not read: convert the file first\n  a.weight: null" in text, text
