"""check_package finds each law that a package breaks, and none in the examples of docs/own_ops.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from own_packages.installed import GATE, SPIKE, imported, run, write
from own_packages.pairs import PAIRS

from dslc.testing import check_package

pytestmark = pytest.mark.slow

MEANING = "return [np.tanh(a) / (1 + np.exp(-b))]"
GRADIENT = "    def grad(self, node, dys, b):\n        {}\n\n    def meaning"
BROKEN = {
    "another meaning": (GATE.replace(MEANING, "return [np.sin(a) / (1 + np.exp(-b))]"), "kernel against meaning"),
    "another type": (GATE.replace(MEANING, "return [(np.tanh(a) / (1 + np.exp(-b))).astype('f8')]"), "the types of"),
    "another shape": (GATE.replace(MEANING, "return [xs[0]]"), "the types of the meaning"),
    "special values only": (
        GATE.replace(MEANING, "return [np.tanh(a) * np.exp(b) / (1 + np.exp(b))]"),
        "far numbers",
    ),
    "another gradient": (
        GATE.replace("    def meaning", GRADIENT.format("return (b(op, node.inputs[0]).producer.inputs[0],)")),
        "the gradient of x against differences",
    ),
    "no derivative": (SPIKE.replace("    surrogate = True", "    surrogate = False"), "the gradient of x"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_law_is_found(case: str, tmp_path: Path) -> None:
    text, law = BROKEN[case]
    entry = "spiking" if "spiking" in text else "gates"
    with imported(tmp_path, text, entry):
        found = check_package(entry)
        assert any(law in str(each) for each in found), [*map(str, found)]


@pytest.mark.parametrize(("entry", "text"), [("gates", GATE), ("spiking", SPIKE), ("pairs", PAIRS)])
def test_the_examples_keep_all_laws(entry: str, text: str, tmp_path: Path) -> None:
    with imported(tmp_path, text, entry):
        assert [*map(str, check_package(entry))] == []


LAYER = GATE.replace(
    "    def build(self, call, x: Value):\n        return call.emit(op, x)",
    '    def build(self, call, x: Value, init: Init = Init("constant", (0.5,))):\n'
    '        f = Functions(call)\n        return call.emit(op, f.mul(x, call.param("scale", (8,), init)))',
).replace("import Composed,", "import Init, Functions, Composed,")


@pytest.mark.parametrize("text", [LAYER, LAYER.replace("return call.emit(op, f.mul(x", "return f.emit(op, f.mul(x")])
def test_a_function_with_a_parameter_keeps_all_laws(text: str, tmp_path: Path) -> None:
    with imported(tmp_path, text, "gates"):
        assert [*map(str, check_package("gates"))] == []


def test_the_command_lists_and_tests_a_package(tmp_path: Path) -> None:
    good, bad = (
        write(tmp_path / name, text, "gates", name="gates")
        for name, text in (("good", GATE), ("bad", GATE.replace(MEANING, "return [np.tanh(a)]")))
    )
    listed = run(tmp_path, "ops", "--package", "gates", "--json", packages=good)
    data = json.loads(listed.stdout)
    assert [page["name"] for page in data["ops"]] == ["gate"] and data["package"]["version"] == "1.0"
    page = run(tmp_path, "ops", "gate", "--package", "gates", packages=good)
    assert page.returncode == 0 and "tanh of the first half" in page.stdout
    kept = run(tmp_path, "ops", "--package", "gates", "--test", packages=good)
    assert kept.returncode == 0 and "all laws hold" in kept.stdout, kept.stderr
    broken = run(tmp_path, "ops", "--package", "gates", "--test", packages=bad)
    assert broken.returncode == 1 and "kernel against meaning" in broken.stdout, broken.stderr
    absent = run(tmp_path, "ops", "--package", "gates", packages=None)
    assert absent.returncode == 2 and "E0115" in absent.stderr
