"""Ops of installed packages: a model that uses one trains where the package is absent; broken packages are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from own_packages.installed import SPIKE, run, write, write_file

from dslc.base.errors import BuildError
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Attrs, Graph, Input, Kind, Node
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.registry import load_all
from dslc.compiler.passes.plan.select_kernels import _refuse_packages

MODEL = """nn 1
use "entry:{entry}" (spike)
dim B in 1..4 = 4
model Spiking(x: [B, 8]) -> [B, 2] {{
  return x |> linear(8) |> spike |> linear(2)
}}
train Spiking(y: [B, 2]) {{
  loss = mse(output, y)
  optimizer = sgd(lr=0.1)
}}
"""
TRAIN = """import sys, numpy as np, dslc
assert not any(name.startswith(("spiking", "dslc.compiler")) for name in sys.modules)
session = dslc.load("build/spiking/spiking.dslc", weights="init")
x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
before = {k: np.array(v) for k, v in session.state_tensors().items()}
session.train_step(x=x, y=x[:, :2])
after = session.state_tensors()
moved = [k for k in before if not np.array_equal(before[k], np.array(after[k]))]
assert "linear.weight" in moved, moved  # the surrogate gradient passed the spike
assert not any(name.startswith("spiking") for name in sys.modules)
"""


@pytest.mark.slow
def test_the_artifact_trains_without_the_package(tmp_path: Path) -> None:
    packages = write(tmp_path / "site", SPIKE)
    (tmp_path / "spiking.nn").write_text(MODEL.format(entry="spiking"))
    built = run(tmp_path, "build", "spiking.nn", packages=packages)
    assert built.returncode == 0, built.stdout + built.stderr
    trained = subprocess.run([sys.executable, "-c", TRAIN], cwd=tmp_path, capture_output=True, text=True)
    assert trained.returncode == 0, trained.stderr
    refused = run(tmp_path, "build", "spiking.nn", "--providers", "reference", packages=packages)
    assert refused.returncode and "E0603" in refused.stderr and "spiking.spike" in refused.stderr
    assert "--providers auto" in refused.stderr


BROKEN = {
    "absent": (None, "no installed package has an entry point"),
    "raises": ("raise ValueError('no licence')", "ValueError: no licence"),
    "no list": ("functions = 3", "is no list of functions"),
    "other name": (SPIKE.replace("spiking.spike", "spike"), "begins with `spiking.`"),
    "no part": (SPIKE.replace("def scalar", "def scaler"), "TypeError"),
    "no example": (SPIKE.replace(">>> spike(x)", ""), "an example after `>>>`"),
    "no identifier": (
        SPIKE.replace('name = "spike"', 'name = "spi ke"').replace('"""spike(', '"""spi ke('),
        "cannot be called",
    ),
    "an op's name": (SPIKE.replace("spiking.spike", "spiking.spi-ke"), "goes on with an identifier"),
    "no Python": ("functions = [\n\n)", "ops.py:3"),
    "leaves": ("import sys\nsys.exit(0)", "SystemExit"),
    "unknown annotation": (
        SPIKE.replace("x: Value", "x: Tensor"),
        "the argument `x` of `spike` needs an annotation",
    ),
    "no such function": (
        SPIKE.replace('name = "spike"', 'name = "spikes"').replace('"""spike(', '"""spikes('),
        "spikes",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_package_is_refused_with_its_cause(case: str, tmp_path: Path) -> None:
    text, cause = BROKEN[case]
    (tmp_path / "spiking.nn").write_text(MODEL.format(entry="spiking"))
    found = run(tmp_path, "check", "spiking.nn", packages=None if text is None else write(tmp_path / "site", text))
    assert found.returncode == 2, found.stdout + found.stderr
    code = "E0102" if case == "no such function" else "E0115"
    assert code in found.stderr and cause in found.stderr and "help:" in found.stderr, found.stderr
    assert "spiking.nn:2" in found.stderr


def test_the_package_is_part_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "spiking.nn").write_text(MODEL.format(entry="spiking"))
    digests = set()
    for version, text in (("1.0", SPIKE), ("1.1", SPIKE), ("1.1", SPIKE + "\n# changed\n"), ("1.0", SPIKE)):
        write(tmp_path / "site", text, version=version)
        code = "from dslc.compiler.check.model import check_file; print(check_file('spiking.nn').digest)"
        code = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); {code}"
        ran = subprocess.run([sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        digests.add(ran.stdout)
    assert len(digests) == 3


RETURN = "return tree.select(xs[0] > 0.0, 1.0, 0.0)"
INFER = '    name = "spiking.spike"\n'
FAULTS = {
    "build raises": (
        SPIKE.replace("return call.emit(op, x)", "return 1 / 0"),
        "`build` raised ZeroDivisionError",
        "return 1 / 0",
    ),
    "build returns nothing": (
        SPIKE.replace("return call.emit", "call.emit"),
        "returned None, which is no tensor",
        "def build",
    ),
    "emit is called wrongly": (SPIKE.replace("emit(op, x)", "emit(op, x, x)"), "takes 1 inputs, got 2", "emit(op"),
    "scalar raises": (SPIKE.replace(RETURN, "return xs[1]"), "`scalar` raised IndexError", "return xs[1]"),
    "scalar returns a number": (
        SPIKE.replace(RETURN, "return 1.0"),
        "returned a float, which is no tree",
        "def scalar",
    ),
    "infer raises": (
        SPIKE.replace(INFER, INFER + "\n    def infer(self, types, attrs):\n        return types[0].shapes\n"),
        "`infer` raised AttributeError",
        "types[0].shapes",
    ),
    "infer returns a list": (
        SPIKE.replace(INFER, INFER + "\n    def infer(self, types, attrs):\n        return [types[0]]\n"),
        "`infer` returned a list of 1, which is no tuple of TensorTypes",
        "def infer",
    ),
    "backward raises": (SPIKE.replace("x, dy = xs", "x, dy, z = xs"), "`grad` raised ValueError", "x, dy, z"),
    "backward returns too little": (
        SPIKE.replace("return (dy / (root * root),)", "return ()"),
        "returned a list of 0",
        "class SpikeOp",
    ),
    "backward meets what does not fit": (
        SPIKE.replace("class SpikeOp(Of1)", "class SpikeOp(Base)").replace(
            "class SpikeOp",
            "from dslc.own_ops import Mismatch\n\n\nclass Base(Of1):\n    def grad(self, node, dys, b):\n"
            "        raise Mismatch('sizes')\n\n\nclass SpikeOp",
        ),
        "`grad` raised Mismatch: sizes",
        "raise Mismatch",
    ),
    "rows raises": (
        SPIKE.replace(INFER, INFER + "\n    def rows(self, node, axes):\n        raise KeyError('rows')\n"),
        "`rows` raised KeyError",
        "raise KeyError",
    ),
    "cost returns a number": (
        SPIKE.replace(INFER, INFER + "\n    def cost(self, node):\n        return 3\n"),
        "`cost` returned a int, which is no Cost",
        "def cost",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_in_a_package_names_both_places(case: str, tmp_path: Path) -> None:
    text, cause, shown = FAULTS[case]
    line = 1 + next(i for i, each in enumerate(text.splitlines()) if shown in each)
    (tmp_path / "spiking.nn").write_text(MODEL.format(entry="spiking"))
    later = case.split()[0] in ("rows", "cost")
    found = run(tmp_path, "build" if later else "check", "spiking.nn", packages=write(tmp_path / "site", text))
    assert found.returncode == 2, found.stdout + found.stderr
    said = " ".join(found.stderr.split())
    assert "E0115" in said and cause in said and "help:" in said, found.stderr
    assert f"spiking_ops/ops.py:{line}" in said and "spiking.nn:5" in said, found.stderr


def test_a_package_that_failed_once_fails_again_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "spiking.nn").write_text(MODEL.format(entry="spiking"))
    other_name = SPIKE.replace("spiking.spike", "spike")
    for name, text in (("a", SPIKE + "functions = 3\n"), ("b", "raise ValueError(1)"), ("c", other_name)):
        packages = write(tmp_path / name, text, name=f"spiking_{name}")
        code = f"""import sys; sys.path.insert(0, {str(packages)!r})
from dslc.compiler.check.model import check_file
from dslc.base.errors import DslcError
said = []
for _ in range(3):
    try:
        check_file('spiking.nn')
    except DslcError as error:
        said.append(error.render())
assert len(said) == 3 and len(set(said)) == 1 and 'E0115' in said[0], said
"""
        ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr


def test_a_package_of_one_file(tmp_path: Path) -> None:
    (tmp_path / "spiking.nn").write_text(MODEL.format(entry="spiking"))
    found = run(tmp_path, "check", "spiking.nn", packages=write_file(tmp_path / "site", SPIKE))
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("attrs", [{"step": "toy.f"}, {"body": (("neg", (0,), ()), ("toy.f", (1,), ()))},
                                   {"each": (("cell", (("body", (("toy.f", (0,), ()),)),)),)}])  # fmt: skip
def test_an_op_that_an_attribute_names_is_refused_without_a_kernel(
    attrs: Attrs, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_all()
    monkeypatch.setitem(OPS, "toy.f", OPS["neg"])
    x = Input("x", Kind.DATA, TensorType(DType.F32, (2,)))
    node = Node(OPS["neg"], (x.value,), (x.value.type,), attrs, name="here")
    program = Program("predict", {}, Graph((x,), (node,), {"y": node.out}))
    with pytest.raises(BuildError, match=r"needs a kernel for the op toy\.f") as error:
        _refuse_packages(program, Build(provider="auto"), [node])
    assert "auto" not in (error.value.help or "")


def test_two_entry_points_of_a_distribution_share_a_module(tmp_path: Path) -> None:
    text = SPIKE.replace("spiking.spike", "other.spike") + "\nmore = functions\n"
    folder = write(tmp_path / "site", text)
    with (folder / "spiking_ops-1.dist-info" / "entry_points.txt").open("a") as file:
        file.write("other = spiking_ops.ops:more\n")
    for entry in ("spiking", "other", "other-1"):
        (tmp_path / "spiking.nn").write_text(MODEL.format(entry=entry))
        found = run(tmp_path, "check", "spiking.nn", packages=folder)
        assert (found.returncode == 0) == (entry != "other-1"), found.stderr
        assert entry != "other-1" or "is no identifier" in found.stderr


def test_what_a_package_prints_is_not_part_of_the_output(tmp_path: Path) -> None:
    text = "print('imported')\n" + SPIKE.replace("        return call", "        print('built')\n        return call")
    text = text.replace("from __future__ import annotations\n", "").replace(
        "print(", "from __future__ import annotations\nprint(", 1
    )
    (tmp_path / "spiking.nn").write_text(MODEL.format(entry="spiking"))
    found = run(tmp_path, "check", "spiking.nn", "--json", packages=write(tmp_path / "site", text))
    assert found.returncode == 0, found.stderr
    assert isinstance(json.loads(found.stdout), dict) and "imported" in found.stderr and "built" in found.stderr
