"""Promises that a build keeps or refuses: the budget, with the largest batch that fits, and the precision asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import MODELS

from dslc.base.errors import BuildError
from dslc.compiler.artifact.budget import largest_fitting
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Phase
from dslc.compiler.options import Options, precision_of
from dslc.compiler.pipeline import build, compile_entry

MODEL = """nn 1
dim B in 1..512 = 256
{attr}
block wide(x: [N, D]) -> [N, D] {{ return x |> linear(256) as a |> relu }}
model Net(x: [B, 256]) -> [B, 10] {{ return x |> wide |> linear(10) as b }}
train Net(y: i32[B]) {{ loss = cross_entropy(output, y); optimizer = sgd(lr=0.1) }}
{section}
"""


def written(folder: Path, section: str = "", attr: str = "") -> Path:
    path = folder / "net.nn"
    path.write_text(MODEL.format(section=section, attr=attr))
    return path


@pytest.mark.parametrize("power", [1.0, 0.5, 2.0])
def test_largest_fitting(power: float) -> None:
    asked: list[int] = []

    def need(size: int) -> int:
        asked.append(size)
        return 1000 + int(8 * size**power)

    for limit in range(1000, 1000 + int(8 * 512**power), max(1, int(512**power) // 50)):
        fitting = [size for size in range(1, 513) if need(size) <= limit]
        asked.clear()
        assert largest_fitting(1, 512, need, limit) == (fitting[-1] if fitting else None)
        assert len(asked) <= (5 if power == 1.0 else 24)
    assert largest_fitting(40, 512, need, need(39)) is None
    assert largest_fitting(3, 3, need, need(3)) == 3


def test_budget_names_the_largest_batch_and_that_batch_builds(tmp_path: Path) -> None:
    checked = check_file(written(tmp_path, "budget { memory = 1 MiB }"))
    with pytest.raises(BuildError) as caught:
        build(checked, Options(provider="reference"))
    assert caught.value.code == "E0402" and caught.value.exit_code == 6
    assert caught.value.help is not None and "the largest B that fits is" in caught.value.help
    largest = int(caught.value.help.rpartition("=")[2])
    build(checked, Options(provider="reference", sizes={"train": {"B": (largest,)}}))
    with pytest.raises(BuildError):
        build(checked, Options(provider="reference", sizes={"train": {"B": (largest + 1,)}}))


def test_budget_below_the_smallest_batch(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        build(check_file(written(tmp_path, "budget { memory = 100 KiB }")), Options(provider="reference"))
    assert "even B=1 does not fit" in (caught.value.help or "")


def test_budget_that_is_met(tmp_path: Path) -> None:
    build(check_file(written(tmp_path, "budget { memory = 1 GiB }")), Options(provider="reference"))


@pytest.mark.parametrize(
    ("section", "attr"),
    [("precision { compute = bf16 }", ""), ("precision { compute = f32; relu = f64 }", ""), ("", "@precision(f64)")],
)
def test_precision_that_cannot_be_kept_is_refused(tmp_path: Path, section: str, attr: str) -> None:
    checked = check_file(written(tmp_path, section, attr))
    with pytest.raises(BuildError) as caught:
        build(checked, Options(provider="reference"))
    assert caught.value.code == "E0602" and "--precision f32" in (caught.value.help or "")
    build(checked, Options(provider="reference", precision="f32"))


def test_a_gpu_keeps_statistics_in_f32_with_bf16() -> None:
    """tests/models/resnet50.nn asks for `batchnorm = f32`, which leaves its tensors in 16 bits."""
    path = str(MODELS / "resnet50.nn")
    dtypes = precision_of(check_file(path), Options(target="sm_90"))
    assert (dtypes.compute.value, dtypes.params.value) == ("bf16", "f32")
    assert precision_of(check_file(path), Options(target="cpu,sm_90")) == dtypes
    with pytest.raises(BuildError, match="cpu does not compute in tf32"):
        precision_of(check_file(path), Options(target="cpu,sm_90", precision="tf32"))


_MIXED = """nn 1
dim B in 1..8 = 4
@precision(f32)
block gate(x: [B, 16]) -> [B, 16] {
  return x |> linear(16) as fc |> relu
}
model Net(x: [B, 16]) -> [B, 4] {
  y = x |> linear(16) as first |> gate as wide
  return y |> linear(16) as second |> softmax |> linear(4) as head
}
precision { compute = bf16; softmax = f32 }
train Net(label: i32[B]) {
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}
"""


@pytest.mark.parametrize("entry", ["train_step", "predict"])
@pytest.mark.parametrize(("wide", "other"), [("f32", "bf16"), ("bf16", "f32")])
def test_another_dtype_for_a_block_and_an_op(tmp_path: Path, entry: str, wide: str, other: str) -> None:
    """With their gradients; everything else stays as it is, and --precision bf16 holds for the whole model."""
    swapped = {"f32": wide, "bf16": other}
    text = re.sub(r"\b(f32|bf16)\b", lambda m: swapped[m[0]], _MIXED)
    (tmp_path / "net.nn").write_text(text)
    checked = check_file(str(tmp_path / "net.nn"))

    def dtypes(options: Options) -> dict[tuple[str, str], set[str]]:
        program, _ = compile_entry(checked, entry, {"B": 4}, options, after="precision")
        found: dict[tuple[str, str], set[str]] = {}
        for node in program.graph.nodes:
            if node.op.name != "cast" and node.phase is not Phase.UPDATE and not node.name.startswith("train"):
                part = "wide" if "wide" in node.name or "softmax" in node.name else "other"
                found.setdefault((part, node.phase.value), set()).update(
                    t.dtype.value for t in node.types if t.dtype.value in ("bf16", "f32")
                )
        return found

    phases = {"forward", "backward"} if entry == "train_step" else {"forward"}
    mixed = dtypes(Options(target="sm_90"))
    assert mixed == {(p, s): {wide if p == "wide" else other} for p in ("wide", "other") for s in phases}
    whole = dtypes(Options(target="sm_90", precision="bf16"))
    assert whole == {(p, s): {"bf16"} for p in ("wide", "other") for s in phases}


def test_gpt2_with_its_softmax_in_f32() -> None:
    assert precision_of(check_file(str(MODELS / "gpt2.nn")), Options(target="sm_90")).compute.value == "bf16"


@pytest.mark.slow
def test_a_block_in_bf16_in_an_f32_model_builds_for_both_targets(tmp_path: Path) -> None:
    checked = check_file(written(tmp_path, attr="@precision(bf16)"))
    build(checked, Options(target="sm_90", provider="own"))
    build(checked, Options(provider="own"))
    with pytest.raises(BuildError, match="bf16"):
        build(checked, Options(provider="reference"))
