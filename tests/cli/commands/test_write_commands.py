"""``check``, ``fmt``, ``ops`` and ``show``."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from cProfile import Profile
from pathlib import Path

import pytest
from pace import IMPORTS, started, within
from places import MODELS, ROOT

from dslc.compiler.check.model import check_all
from dslc.compiler.ops.registry import load_all

LENET = ROOT / "examples/digits/lenet.nn"
RESNET = ROOT / "examples/resnet/resnet.nn"
BAD = 'nn 1\nmodel M(x: [4, 8]) -> [4, 6] {\n  return x |> linear(6) |> batch_norm("a")\n}\n'


def test_check_says_what_a_model_is(dslc: Callable) -> None:
    ran = dslc("check", LENET)
    assert ran.code == 0 and "LeNet(image: [B, 1, 28, 28]) -> (output: [B, 10])" in ran.out
    [model] = dslc("check", LENET, "--json").json["models"]
    # c1 and c2 are convolutions with bias, then three linear layers
    parameters = 6 * 25 + 6 + 16 * 6 * 25 + 16 + 120 * 400 + 120 + 84 * 120 + 84 + 10 * 84 + 10
    assert model["parameters"] == parameters and model["trained"]
    assert dslc("check", LENET, "-D", "classes=12", "--json").json["models"][0]["results"][0]["type"] == "[B, 12]"


def test_check_takes_all_models_of_a_file_or_one(dslc: Callable) -> None:
    assert [m["model"] for m in dslc("check", RESNET, "--json").json["models"]] == ["ResNet18", "ResNet50", "ResNet152"]
    assert [m["model"] for m in dslc("check", f"{RESNET}:ResNet50", "--json").json["models"]] == ["ResNet50"]
    ran = dslc("check", f"{RESNET}:ResNet51")
    assert ran.code == 2 and "error[E0111]" in ran.err


def test_check_reads_the_configuration(dslc: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples/resnet")
    [model] = dslc("check", "--json").json["models"]
    assert model["model"] == "ResNet18"


def test_check_goes_on_after_a_bad_file(dslc: Callable, tmp_path: Path) -> None:
    (tmp_path / "bad.nn").write_text(BAD)
    ran = dslc("check", tmp_path / "bad.nn", LENET)
    assert ran.code == 2 and "error[E0101]" in ran.err and "did you mean `batchnorm`" in ran.err and "LeNet" in ran.out
    data = dslc("check", tmp_path / "bad.nn", LENET, "--json").json
    assert [error["code"] for error in data["errors"]] == ["E0101"] and data["exit_code"] == 2
    assert data["errors"][0]["label"]["line"] == 3 and len(data["models"]) == 1
    assert dslc("check", tmp_path / "none.nn").code == 2


@pytest.mark.parametrize("code", ["E0505", "E0506"])
def test_check_differentiates(code: str, dslc: Callable, tmp_path: Path) -> None:
    from dslc.base.explain import fences, page

    (tmp_path / "page.nn").write_text(next(text for info, text in fences(page(code)) if info == "nn bad"))
    ran = dslc("check", tmp_path / "page.nn")
    assert ran.code == 2 and f"error[{code}]" in ran.err and not ran.out


def test_check_and_build_say_what_is_not_trained(dslc: Callable, tmp_path: Path) -> None:
    from dslc.base.explain import fences, page

    text = next(text for info, text in fences(page("W008")) if info == "nn")
    for source, said in ((text, 0), (text.replace("@freeze", ""), 1)):
        (tmp_path / "two.nn").write_text(source)
        for ran in (dslc("check", tmp_path / "two.nn"), dslc("build", tmp_path / "two.nn", "-o", tmp_path / "out")):
            assert ran.code == 0 and ran.err.count("warning[W008]") == said, ran.err
            assert ran.err.count("two.nn:5:") == said


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.nn")), ids=lambda path: path.stem)
def test_the_models_of_the_language_check(path: Path, dslc: Callable) -> None:
    ran = dslc("check", path)
    assert ran.code == 0, ran.err


def test_check_is_quick() -> None:
    """2.6 times the reference for the three ResNets, 0.5 s. The limit leaves room for other machines; the two tests
    below tell exactly what became slower."""
    assert within(started("-m", "dslc", "check", str(RESNET)), started("-c", IMPORTS), 4)


def test_check_calls_few_functions_for_an_operation() -> None:
    """960 for each operation of the three ResNets, built-in ones too, with reading and gradients."""
    load_all()
    check_all(LENET)  # reads the tables of the grammar
    profile = Profile()
    checked = profile.runcall(check_all, RESNET)
    calls = sum(entry.callcount for entry in profile.getstats())
    assert 0 < calls <= 1300 * sum(len(each.graph.nodes) for each in checked), calls


@pytest.mark.parametrize(
    ("arguments", "others"),
    [
        (["check", str(RESNET)], ("numpy", "yaml", "rich", "dslc.compiler.codegen", "dslc.runtime.config")),
        (["fmt", "--check", str(RESNET)], ("numpy", "yaml", "rich", "dslc.compiler", "dslc.runtime")),
        (["build", "--help"], ("numpy", "yaml", "lark", "dslc.compiler", "dslc.runtime", "dslc.dsl")),
    ],
    ids=["check", "fmt", "help"],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], others: tuple[str, ...]) -> None:
    code = f"import sys\nfrom dslc.cli.app import run\nassert run({arguments}) == 0\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modules = ran.stdout.splitlines()[-1].split()
    assert "dslc.cli.app" in modules
    assert not [each for each in modules if any(f"{each}.".startswith(f"{other}.") for other in others)]


def test_fmt_writes_checks_and_shows(dslc: Callable, tmp_path: Path) -> None:
    source = tmp_path / "a.nn"
    source.write_text("nn 1\nmodel M(x:[4,8])->[4,8] {\n      return relu( x )  # kept\n}")
    source.chmod(0o640)
    before = source.read_text()
    assert dslc("fmt", "--check", tmp_path).code == 1 and source.read_text() == before
    ran = dslc("fmt", "--diff", tmp_path)
    assert ran.code == 0 and "-      return relu( x )  # kept" in ran.out and source.read_text() == before
    link = tmp_path / "link.nn"
    link.symlink_to(source)
    ran = dslc("fmt", link)
    after = "nn 1\nmodel M(x: [4, 8]) -> [4, 8] {\n  return relu(x)  # kept\n}\n"
    assert ran.code == 0 and source.read_text() == after and link.is_symlink()
    assert stat.S_IMODE(os.stat(source).st_mode) == 0o640
    assert dslc("fmt", "--check", tmp_path).code == 0
    assert dslc("fmt", "--json", source).json == {"files": [str(source)], "changed": [], "written": True}


def test_fmt_leaves_what_does_not_parse(dslc: Callable, tmp_path: Path) -> None:
    (tmp_path / "a.nn").write_text("nn 1\nmodel M(")
    (tmp_path / "b.nn").write_text("nn 1\nconst  A=1\n")
    ran = dslc("fmt", tmp_path)
    assert ran.code == 2 and "error[E0001]" in ran.err
    assert (tmp_path / "a.nn").read_text() == "nn 1\nmodel M(" and (tmp_path / "b.nn").read_text().endswith("A = 1\n")


def test_fmt_works_as_a_filter(dslc_process: Callable) -> None:
    ran = dslc_process("fmt", "-", input="nn 1\nconst   A=1\n")
    assert ran.code == 0 and ran.out == "nn 1\nconst A = 1\n" and not ran.err
    assert dslc_process("fmt", "--check", "-", input="nn 1\nconst   A=1\n").code == 1
    ran = dslc_process("fmt", "-", input="#" * (1 << 20))
    assert ran.code == 2 and "error[E0002]" in ran.err


@pytest.mark.parametrize("folder", ["examples"])
def test_the_examples_are_formatted(folder: str, dslc: Callable) -> None:
    assert dslc("fmt", "--check", ROOT / folder).code == 0


def test_ops_lists_and_describes(dslc: Callable) -> None:
    pages = {page["name"]: page for page in dslc("ops", "--json").json["ops"]}
    assert {"conv", "linear", "relu", "cross_entropy", "sgd", "adam"} <= set(pages)
    assert all(page["summary"] for page in pages.values())
    assert pages["linear"]["arguments"][1] == {"name": "out", "type": "size", "default": None, "by_name": False}
    assert pages["linear"]["example"] == "x |> linear(4)"
    ran = dslc("ops", "linear")
    assert ran.code == 0 and re.search(r"bias +bool = true\n", ran.out)
    assert "did you mean linear?" in dslc("ops", "lin").err, "what begins so comes before what is as short"
    ran = dslc("ops", "liner")
    assert ran.code == 2 and "did you mean linear?" in ran.err


def test_show_prints_graphs_that_read_back(dslc: Callable) -> None:
    from dslc.compiler.ir.text import format_graph, parse_graph

    for flags in ([], ["--after", "autodiff"], ["--after", "fuse", "--entry", "predict"], ["--entry", "init"]):
        text = dslc("show", LENET, "--json", *flags).json["text"]
        # Places in the source are for people, and do not read back.
        assert len(format_graph(parse_graph(text)).splitlines()) == len(text.splitlines())


def test_show_after_memory_says_where_values_lie(dslc: Callable) -> None:
    ran = dslc("show", LENET, "--after", "memory", "--size", "B=2")
    assert ran.code == 0 and " at work+" in ran.out and "lower bound" in ran.out and "[2, 1, 28, 28]" in ran.out


def test_show_diff_shows_what_a_pass_did(dslc: Callable) -> None:
    ran = dslc("show", LENET, "--diff", "fuse")
    assert ran.code == 0 and any(line.startswith("+ ") and "fused" in line for line in ran.out.splitlines())
    assert "the graph did not change" in dslc("show", LENET, "--diff", "schedule").out
    assert "the graph did not change" in dslc("show", LENET, "--diff", "epilogue").out
    gpu = dslc("show", LENET, "--diff", "epilogue", "--target", "sm_90")
    assert "+ " in gpu.out and "contraction" in gpu.out
    vendor = dslc("show", LENET, "--diff", "epilogue", "--target", "sm_90", "--providers", "vendor")
    assert "the graph did not change" in vendor.out
    for unknown in ("fuze", "slope"):  # the second is a former name
        ran = dslc("show", LENET, "--after", unknown)
        assert ran.code == 2 and "passes: written_attention, autodiff" in ran.err and "cross_entropy" in ran.err
    assert dslc("show", LENET, "--diff", "fuze").code == 2
    assert dslc("show", LENET, "--diff", "fuse", "--after", "fuse").code == 2


def test_show_draws_a_picture(dslc: Callable, tmp_path: Path) -> None:
    ran = dslc("show", LENET, "--svg", tmp_path / "graph.svg")
    assert ran.code == 0 and "graph.svg" in ran.out
    drawing = ElementTree.parse(tmp_path / "graph.svg").getroot()
    words = {"".join(text.itertext()) for text in drawing.iter("{http://www.w3.org/2000/svg}text")}
    assert {"image", "c1", "f2", "head", "loss"} <= words


def test_show_of_a_model_without_a_train_section(dslc: Callable, tmp_path: Path) -> None:
    (tmp_path / "m.nn").write_text("nn 1\nmodel M(x: [4, 8]) -> [4, 8] {\n  return relu(x)\n}\n")
    assert "relu" in dslc("show", tmp_path / "m.nn", "--after", "memory").out
    ran = dslc("show", tmp_path / "m.nn", "--entry", "train_step")
    assert ran.code == 2 and "error[E0508]" in ran.err
