"""``dslc why``: what passes made of a node or a line, where it is in the end, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import MODELS, ROOT

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.program import Program
from dslc.compiler.options import Options
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph, why_not_fused
from dslc.compiler.pipeline import compile_entry, precision_of
from dslc.compiler.report.facts import Facts
from dslc.compiler.report.history import history, wanted

LENET = MODELS / "lenet.nn"


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    """LeNet's training step on a CPU, before all passes and after each."""
    kept: dict[str, Program] = {}
    checked = check_file(str(LENET))
    compile_entry(checked, "train_step", {"B": 8}, Options(), keep=kept.__setitem__)
    return kept


def test_the_passes_that_changed_a_node(programs: dict[str, Program]) -> None:
    found = history(programs, wanted("c1", programs.values()))
    changes = {change.name: change for change in found.changes}
    assert list(changes) == ["input", "autodiff", "precision", "fuse"]
    assert changes["input"].new[0] == "conv : [8, 6, 28, 28]  c1 forward" and not changes["input"].gone
    assert any(text.startswith("conv_wgrad") for text in changes["autodiff"].new)
    [fused] = [text for text in changes["fuse"].new if text.startswith("add + relu")]
    assert fused.endswith("relu forward, of c1, relu")
    assert any("sgd_momentum_update" in text and "c1.weight" in text for text in changes["fuse"].gone)
    assert any(text.startswith("param c1.weight : f32[6, 1, 5, 5] at state+") for text in found.inputs)


@pytest.mark.parametrize(("model", "target"), [("lenet", "cpu"), ("lenet", "sm_90"), ("vae", "sm_90")])
def test_no_place_is_lost_where_nodes_are_put_together(model: str, target: str) -> None:
    kept: dict[str, Program] = {}
    checked = check_file(str(LENET.with_name(f"{model}.nn")))
    sizes = {dim.name: dim.default for dim in checked.dims}
    compile_entry(checked, "train_step", sizes, Options(target=target), keep=kept.__setitem__)
    before, after = (
        {
            (name, span)
            for n in program.graph.nodes
            for name, span in n.origins or ((n.name, n.span),)
            if span is not None
        }
        for program in (kept["mirror"], list(kept.values())[-1])
    )
    assert before == after and len(kept["mirror"].graph.nodes) > len(list(kept.values())[-1].graph.nodes)


def test_where_a_node_is_in_the_end(programs: dict[str, Program]) -> None:
    program = list(programs.values())[-1]
    found, facts = history(programs, wanted("c1", programs.values())), Facts(program)
    work = {w.step: w for w in facts.work}
    [conv] = [e for e in found.endings if e.node.startswith("conv :")]
    node = next(n for n in facts.schedule if n.op.name == "conv" and n.name == "c1")
    assert program.memory is not None
    place = program.memory.places[node.out]
    assert (conv.step, conv.seconds, conv.bytes) == (facts.work[conv.step].step, work[conv.step].seconds,
                                                     node.op.cost(node).bytes)  # fmt: skip
    first, last = facts.life(node.out)
    assert conv.places == (f"{place.region}+{place.offset:,}, steps {first} to {last}",) and first == conv.step < last
    assert all(run.startswith("k_") for run in conv.runs) and conv.runs
    assert [text.partition(":")[0] for text in conv.kernels] == [*conv.runs]
    assert [e.runs for e in found.endings if e.node.startswith("reshape")] == [("a view",)] * 2


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("cpu", "Contraction of compiler/codegen/cpu/contraction/kernel.py, 11 tasks"),
        ("sm_90", "Contract of compiler/codegen/cuda/contraction/kernel.py, 256 blocks of 128 threads"),
    ],
)
def test_a_kernel_is_told_with_the_file_that_describes_it(target: str, said: str, tmp_path: Path) -> None:
    source = tmp_path / "net.nn"
    source.write_text("nn 1\nmodel M(x: [256, 128], w: [128, 256]) -> [256, 256] {\n  return x @ w\n}\n")
    kept: dict[str, Program] = {}
    compile_entry(check_file(str(source)), "predict", {}, Options(target=target), keep=kept.__setitem__)
    [ending] = history(kept, wanted("net.nn:3", kept.values())).endings
    assert ending.kernels[-1] == f"{ending.runs[-1]}: {said}"
    assert (ROOT / said.split(" of ")[1].partition(",")[0]).is_file()


def test_a_view_before_all_work_counts_to_the_first_step(tmp_path: Path) -> None:
    source = tmp_path / "net.nn"
    source.write_text("nn 1\nmodel M(x: [4, 8], w: [32]) -> [4, 4] {\n  return x @ reshape(w, [8, 4])\n}\n")
    kept: dict[str, Program] = {}
    compile_entry(check_file(str(source)), "predict", {}, Options(), keep=kept.__setitem__)
    endings = history(kept, wanted("net.nn:3", kept.values())).endings
    assert [(ending.runs[0] == "a view", ending.step) for ending in endings] == [(True, 0), (False, 0)]


def test_a_line_has_all_nodes_that_stand_on_it(programs: dict[str, Program]) -> None:
    found = history(programs, wanted("lenet.nn:8", programs.values()))
    names = {text.split("  ")[1].split()[0] for text in found.changes[0].new}
    assert names == {"c2", "relu_2", "maxpool_2"}
    same = history(programs, wanted(f"{LENET}:8", programs.values()))
    assert same == found


def test_reasons(programs: dict[str, Program]) -> None:
    reasons = history(programs, wanted("relu", programs.values())).reasons
    assert "mirror: relu relu is kept for the backward pass: recomputation does not pay off in this program" in reasons
    assert any(r.startswith("fuse: relu relu (forward)") and "`maxpool` reads it" in r for r in reasons)
    assert not any(r.startswith("fuse: add") for r in history(programs, wanted("c1", programs.values())).reasons)


@pytest.mark.parametrize(
    ("features", "dtype", "said"),
    [
        (32, "bf16", "in tiles: its scores are not in memory"),
        (36, "bf16", "in tiles: its scores are not in memory"),
        (264, "bf16", "with all scores in memory: 264 features are more than 256"),
        (32, "tf32", "in tiles: its scores are not in memory"),
        (32, "f32", "with all scores in memory: tiles are for 16 bits and TF32, and q is f32"),
    ],
)
def test_the_form_of_attention(features: int, dtype: str, said: str, tmp_path: Path) -> None:
    source = tmp_path / "net.nn"
    source.write_text(
        f"nn 1\ndim B in 1..8 = 2\nmodel M(x: [B, 2, 8, {features}], m: i32[B, 8]) -> [B, 2, 8, {features}] {{\n"
        "  return sdpa(x, x[:, :1], x[:, 1:], mask=reshape(m > 0, [B, 1, 1, 8]))\n}\n"
    )
    kept: dict[str, Program] = {}
    options = Options(target="sm_90", precision=dtype)
    compile_entry(check_file(str(source)), "predict", {"B": 2}, options, keep=kept.__setitem__)
    reasons = history(kept, wanted("net.nn:4", kept.values())).reasons
    assert f"attention: sdpa sdpa (forward) is computed {said}" in reasons


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (32, "attention: sdpa  (forward) is computed in tiles: its scores are not in memory"),
        (136, "attention: softmax softmax stays between products, with all scores in memory: "
              "with a bias and more than 64 features, TF32 is faster in products"),
    ],
)  # fmt: skip
def test_the_form_of_attention_that_is_written_out(features: int, said: str, tmp_path: Path) -> None:
    source = tmp_path / "net.nn"
    source.write_text(
        f"nn 1\ndim B in 1..8 = 2\nmodel M(x: [B, 2, 8, {features}], b: [2, 8, 8]) -> [B, 2, 8, {features}] {{\n"
        "  return softmax(x @ x.T + b) @ x\n}\n"
    )
    kept: dict[str, Program] = {}
    options, checked = Options(target="sm_90", precision="tf32"), check_file(str(source))
    compile_entry(checked, "predict", {"B": 2}, options, keep=kept.__setitem__)
    asked = precision_of(checked, options)
    assert said in history(kept, wanted("net.nn:4", kept.values()), asked=asked).reasons


def test_reasons_are_given_for_just_the_nodes_that_are_not_fused(programs: dict[str, Program]) -> None:
    before = programs["mirror"].graph
    told, after = why_not_fused(before), fuse_graph(before)
    ends = [n for n in told if isinstance(n.op, Pointwise) and not n.op.random]
    left = [n for n in after.nodes if n.op.name == "fused" or (isinstance(n.op, Pointwise) and not n.op.random)]
    assert len(ends) == len(left) > 5 and all(told.values())  # what joins nothing is the end of a region, or alone
    assert {n.name for n in ends} == {n.name for n in left}
    joined = [n for n in before.nodes if n.op.name == "add" and n.name in ("c1", "c2")]
    assert len(joined) == 2 and not any(n in told for n in joined)


def test_what_is_not_there(dslc: Callable[..., Any]) -> None:
    ran = dslc("why", "c3", LENET)
    assert ran.code == 2 and "error[E0102]" in ran.err and "did you mean `c1`" in ran.err.replace("`c2` or ", "")
    assert "there are c1, c2" in dslc("why", "zebra", LENET).err
    ran = dslc("why", "lenet.nn:14", LENET)
    assert ran.code == 2 and "the nearest line of the model is lenet.nn:15" in ran.err
    assert "nearest line" in dslc("why", "other.nn:7", LENET).err
    assert dslc("why", "c1", LENET, "--entry", "predict", "--target", "nothing").code == 2


def test_text_and_data(dslc: Callable[..., Any]) -> None:
    ran = dslc("why", "c1", LENET, "--entry", "predict", "--size", "B=4")
    assert ran.code == 0 and ran.out.startswith("c1 in predict B=4 for cpu\n")
    assert (
        "\nprecision\n  = conv : f32[4, 6, 28, 28]  c1 forward\n" in ran.out and "\nin the end\nstep  node" in ran.out
    )
    data = dslc("why", "c1", LENET, "--target", "sm_90", "--json").json
    assert (data["entry"], data["target"], data["sizes"]) == ("train_step", "sm_90", {"B": 64})
    assert {e["phase"] for e in data["endings"]} == {"forward", "backward", "update"}
    assert data["changes"][0]["name"] == "input" and data["reasons"] == []


def test_whether_a_library_computes_a_node(dslc: Callable[..., Any], tmp_path: Path) -> None:
    """A call by the rules, own kernels by the rules, and own kernels where no library computes a node."""
    source = tmp_path / "net.nn"
    source.write_text(
        "nn 1\ndim B in 1..64 = 32\nmodel N(x: [B, 64, 32, 32]) -> [B, 6] {\n"
        "  return x |> conv(64, 3) as called |> conv(12, 3) as few |> flatten |> linear(6) as last\n}\n"
    )
    options = (source, "--target", "sm_90", "--precision", "bf16", "--size", "B=9", "--json")
    assert not any("select: " in reason for reason in dslc("why", "called", *options).json["reasons"])
    told = {
        name: [r for r in dslc("why", name, *options, "--providers", "vendor").json["reasons"] if "select: " in r]
        for name in ("called", "few", "last")
    }
    assert told == {
        "called": ["select: contraction called (forward) is a call of cudnn: by the rules it computes such nodes"],
        "few": [
            "select: conv_last few (forward) runs as own kernels, unless a library is measured faster: "
            "few multiply-adds: own kernels have small tiles"
        ],
        "last": [
            "select: matmul last (forward) runs as own kernels, because no library computes it: few multiply-adds"
        ],
    }


def test_what_is_gone_is_said(dslc: Callable[..., Any], tmp_path: Path) -> None:
    """Of two equal nodes one is left, and in prediction no dropout."""
    source = tmp_path / "twins.nn"
    source.write_text(
        "nn 1\ndim B in 1..4 = 2\nmodel Twins(x: [B, 8]) -> [B, 8] {\n"
        "  a = x |> exp\n  b = x |> exp\n  return a * b\n}\n"
    )  # fmt: skip
    names = [e["name"] for e in dslc("why", "twins.nn:6", source, "--json").json["endings"]]
    assert names
    ran = dslc("why", "twins.nn:5", source)
    assert (
        ran.code == 0 and "simplify\n  - exp" in ran.out and "no node of the finished program comes from it" in ran.out
    )
