"""The shipped maps: every weight of a published model gets its name and shape in examples/models; nothing is left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest
from places import EXAMPLES
from published.cases import PUBLISHED, SMALL, Case
from published.recorded import Shape, Shaped, expected, recorded, wanted

from dslc.base.errors import ArtifactError
from dslc.runtime.config.maps import map_of, shipped
from dslc.runtime.weights.names.name_map import Naming

_COUNTER = "num_batches_tracked"  # PyTorch's batchnorm counts its batches; no op here reads the counter


def agree(have: Mapping[str, Shaped], naming: Naming, want: Mapping[str, Shape]) -> None:
    made = {
        name: origin.described(have, "here")[1]
        for name, origin in naming.made.items()
        if not name.endswith(f".{_COUNTER}")
    }
    assert made == want


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.name)
def test_every_weight_is_matched_and_none_is_left(case: Case) -> None:
    have = recorded(case.family)[case.name]
    agree(have, map_of(case.map, "here").naming(have, "here", wanted(case)), wanted(case))


_POOLER = {"weight": Shaped((768, 768)), "bias": Shaped((768,))}


def old(case: Case) -> dict[str, Shaped]:
    """The weights as files of earlier versions of torchvision and transformers name them."""
    have = dict(recorded(case.family)[case.name])
    if case.family == "densenet":
        return {re.sub(r"(denselayer\d+\.(?:norm|conv))(\d)", r"\1.\2", name): s for name, s in have.items()}
    if case.family == "vit":
        return {name.replace("mlp.0", "mlp.linear_1").replace("mlp.3", "mlp.linear_2"): s for name, s in have.items()}
    if case.family == "bert":  # and with all heads of pre-training
        prefix = "bert." if "bert.embeddings.LayerNorm.weight" in have else ""
        have[f"{prefix}embeddings.position_ids"] = Shaped((1, 512), "i64")
        have |= {name: shape for name, shape in recorded("bert")["bert-base-masked"].items() if name.startswith("cls.")}
        have["cls.seq_relationship.weight"] = Shaped((2, 768))
        have |= {f"{prefix}pooler.dense.{leaf}": shape for leaf, shape in _POOLER.items() if case.args == {}}
        return {
            re.sub(r"LayerNorm\.(weight|bias)", lambda m: f"LayerNorm.{'gamma' if m[1] == 'weight' else 'beta'}", n): s
            for n, s in have.items()
        }
    if case.family == "gpt2":
        prefix = "transformer." if "transformer.wte.weight" in have else ""
        have[f"{prefix}h.0.attn.bias"] = Shaped((1, 1, 1024, 1024), "u8")
        have[f"{prefix}h.0.attn.masked_bias"] = Shaped(())
    return have


OLD = [case for case in PUBLISHED if case.family in ("densenet", "vit", "bert", "gpt2")]


@pytest.mark.parametrize("case", OLD, ids=lambda case: case.name)
def test_older_files_fit_too(case: Case) -> None:
    have = old(case)
    assert have.keys() != recorded(case.family)[case.name].keys()
    agree(have, map_of(case.map, "here").naming(have, "here", wanted(case)), wanted(case))


def files() -> Iterator[tuple[Case, Mapping[str, Shaped]]]:
    for case in PUBLISHED:
        yield case, recorded(case.family)[case.name]
        yield case, old(case)


def test_every_rule_is_needed() -> None:
    """A rule that takes no tensor of any recorded file is a mistake, or lacks its file here."""
    used: dict[str, set[str]] = {name: set() for name in shipped()}
    for case, have in files():
        used[case.map] |= set(map_of(case.map, "here").naming(have, "here", wanted(case)).used.values())
    idle = {(name, rule) for name, taken in used.items() for rule in set(map_of(name, "here").rules) - taken}
    assert not idle


def test_every_model_of_the_examples_is_compared() -> None:
    names = {
        f"{path.stem}:{name}"
        for path in (EXAMPLES / "models").glob("*.nn")
        for name in re.findall(r"^model (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert names == {case.model for case in PUBLISHED} == {case.model for case in SMALL}
    assert {case.family for case in PUBLISHED if len(recorded(case.family)) < 2} == set()


@pytest.mark.parametrize(("name", "model"), [("resnet18", "ResNet18"), ("resnet50", "ResNet50")])
def test_the_project_resnet_takes_the_same_map(name: str, model: str) -> None:
    have = recorded("resnet")[name]
    agree(have, map_of("torchvision/resnet", "here").naming(have, "here"), expected("resnet/resnet.nn", model, ()))


def test_a_file_of_another_depth_is_refused_with_both_counts() -> None:
    have, want = recorded("vgg")["vgg11"], expected("models/vgg.nn", "VGG", (("depth", "16"),))
    rules = map_of("torchvision/vgg", "here")
    with pytest.raises(ArtifactError, match=r"8 layers `features.\{i\}` with bias, weight, the model 13"):
        rules.naming(have, "here", want)
    with pytest.raises(ArtifactError, match="counts the layers of a model"):
        rules.naming(have, "here")
