"""Ops that a package composes: types, gradient and code come from the composition, on GPUs from its CUDA C++."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import on_machine
from op_laws.evaluation import apply, run, values_of
from op_laws.sample_cases import gradients_of
from own_packages import installed
from own_packages.installed import GATE, imported
from own_packages.pairs import PAIRS
from thinning import taken

from dslc.base.errors import DslcError
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.fault import PackageFault
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import OPS, Builder, Mismatch
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.packages.composed import Composed
from dslc.compiler.ops.packages.cuda import Cuda
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

MODEL = """nn 1
use "entry:gates" (gate)
dim B in 1..4 = 4
model Gated(x: [B, 8]) -> [B, 2] {
  return x |> linear(8) |> gate |> linear(2)
}
train Gated(y: [B, 2]) {
  loss = mse(output, y)
  optimizer = sgd(lr=0.1)
}
"""
OWN_GRADIENT = (
    GATE.replace(
        "    def meaning",
        "    def grad(self, node, dys, b):\n        return (b(gate_grad, *node.inputs, dys[0]),)\n\n    def meaning",
    ).replace(
        "class Gate(Function)",
        '''class GateGradOp(Composed):
    """gates.gate_grad(x, dy): the gradient of gate."""

    name = "gates.gate_grad"

    def compose(self, f, x, dy):
        a, b = f.split(x, 2, axis=-1)
        t, s = f.tanh(a), f.sigmoid(b)
        outer = f.mul(dy, f.mul(s, f.sub(1, f.square(t))))
        return f.concat([outer, f.mul(dy, f.mul(t, f.mul(s, f.sub(1, s))))], axis=-1)

    def meaning(self, xs, attrs):
        a, b = np.split(xs[0], 2, axis=-1)
        t, s = np.tanh(a), 1 / (1 + np.exp(-b))
        return [np.concatenate([xs[1] * s * (1 - t * t), xs[1] * t * s * (1 - s)], axis=-1)]


class Gate(Function)''',
    )
    + "\ngate_grad = register(GateGradOp())\n"
)


@pytest.fixture(params=[GATE, OWN_GRADIENT], ids=["gradient of the parts", "own gradient"])
def gate(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Composed]:
    with imported(tmp_path / "site", request.param, "gates"):
        op = OPS["gates.gate"]
        assert isinstance(op, Composed)
        yield op


def node_of(op: Composed, x: np.ndarray, dtype: DType) -> Node:
    return Builder(name="here").node(op, Input("x", Kind.DATA, TensorType(dtype, x.shape)).value)


X = np.random.default_rng(3).uniform(-3, 3, (3, 5, 14))


def test_the_composition_means_what_numpy_says(gate: Composed) -> None:
    [x] = values_of([X])
    parts = gate.parts(Builder(), [x], {})
    np.testing.assert_allclose(run(parts.results, {x: X})[0], apply(gate, [X], {})[0], rtol=1e-12)


def test_the_gradient_is_the_central_difference(gate: Composed) -> None:
    x, w = X[0].copy(), np.random.default_rng(4).uniform(0.5, 1.5, (5, 7))
    node = node_of(gate, x, DType.F64)
    [got] = gradients_of(gate, node, {node.inputs[0]: x, node.outputs[0]: apply(gate, [x], {})[0]}, [w])
    expected = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[at] += 1e-6
        down[at] -= 1e-6
        expected[at] = np.sum(w * (apply(gate, [up], {})[0] - apply(gate, [down], {})[0])) / 2e-6
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("dtype", "rtol"), [("f32", 2e-6), ("f64", 1e-13), ("bf16", 2**-7), ("f16", 2**-10)])
def test_the_cuda_kernel_agrees_with_the_meaning(dtype: str, rtol: float, tmp_path: Path) -> None:
    with imported(tmp_path / "site", GATE, "gates"):
        op = OPS["gates.gate"]
        assert isinstance(op, Composed)
        x = simulator.held(X.astype(np.float64 if dtype == "f64" else np.float32), DType(dtype))
        found = on_machine(node_of(op, x, DType(dtype)), [x])[0]
        np.testing.assert_allclose(found, apply(op, [x], {})[0], rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_kernel_of_several_inputs_and_results(dtype: str, tmp_path: Path) -> None:
    with imported(tmp_path / "site", PAIRS, "pairs"):
        op, rng = OPS["pairs.both"], np.random.default_rng(6)
        xs = [
            simulator.held(rng.uniform(-2, 2, (37, 5)).astype(np.float32), DType(dtype)),
            rng.integers(0, 5, 37, "i4"),
        ]
        types = [TensorType(DType(dtype), (37, 5)), TensorType(DType.I32, (37,))]
        values = [Input(f"x{i}", Kind.DATA, type).value for i, type in enumerate(types)]
        node = Builder(name="here").node(op, *values, k=4)
        for found, wanted in zip(on_machine(node, xs), apply(op, xs, node.attrs), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_rows_shapes_and_cost_come_from_the_parts(gate: Composed) -> None:
    node = node_of(gate, X, DType.F32)
    assert gate.rows(node, [0]) == (0,) and gate.rows(node, [2]) is None
    assert gate.cost(node).bytes == 4 * (prod(X.shape) * 3 // 2) and gate.cost(node).flops > 0
    with pytest.raises(Mismatch, match="not divisible by 2"):
        gate.infer([TensorType(DType.F32, (3, 7))], {})


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_a_program_has_kernels_for_all_nodes(target: str, gate: Composed, tmp_path: Path) -> None:
    (tmp_path / "gates.nn").write_text(MODEL)
    checked = check_file(tmp_path / "gates.nn")
    for provider in ("own", "reference") if target == "cpu" else ("own",):
        options = Options(target=target, provider=provider)
        program, _ = compile_entry(checked, "train_step", {"B": 4}, options)
        own = [node.op.name for node in program.graph.nodes if "." in node.op.name]
        assert ("gates.gate" in own) == (target != "cpu")


SERVE = """import sys, json, numpy as np, dslc
session = dslc.load("build/gates/gates.dslc", weights="init", device="cpu")
x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
state = {k: np.array(v) for k, v in session.state_tensors().items()}
h = x @ state["linear.weight"].T + state["linear.bias"]
y = np.tanh(h[:, :4]) / (1 + np.exp(-h[:, 4:])) @ state["linear_2.weight"].T + state["linear_2.bias"]
np.testing.assert_allclose(session.predict(x=x), y, rtol=1e-5, atol=1e-6)
losses = [float(session.train_step(x=x, y=x[:, :2]).loss) for _ in range(20)]
assert losses[-1] < losses[0] * 0.9, losses
assert not any(name.startswith(("gates", "dslc.compiler")) for name in sys.modules)
"""


@pytest.mark.slow
def test_an_artifact_trains_and_serves_without_the_package_and_names_it(tmp_path: Path) -> None:
    packages = installed.write(tmp_path / "site", GATE, "gates", name="gates")
    (tmp_path / "gates.nn").write_text(MODEL)
    built = installed.run(tmp_path, "build", "gates.nn", "--target", "cpu,sm_90", packages=packages)
    assert built.returncode == 0, built.stderr
    served = subprocess.run([sys.executable, "-c", SERVE], cwd=tmp_path, capture_output=True, text=True)
    assert served.returncode == 0, served.stderr
    info = json.loads(installed.run(tmp_path, "info", "build/gates", "--json", packages=None).stdout)
    [package] = info["packages"]
    listed = json.loads(installed.run(tmp_path, "ops", "--package", "gates", "--json", packages=packages).stdout)
    assert package == listed["package"] and (package["name"], package["version"]) == ("gates", "1.0")
    shown = installed.run(tmp_path, "info", "build/gates", packages=None)
    assert f"package    entry:gates: gates 1.0, sha256:{package['sha256']}" in shown.stdout


BAD_KERNELS = {
    "another type": ("const X0 *x0", "const int *x0", "does not compile"),
    "no such name": ("HALF]", "WHOLE]", "WHOLE"),
    "an include": ("// One thread", "#include <math.h>\\n// One thread", "must not include files"),
    "no kernel": ("void kernel(", "void other(", "must define"),
    "too many threads": ("threads=256", "threads=2048", "blocks of 2048 threads"),
    "no int": ('"COUNT": count', '"COUNT": 1.5', "the constant COUNT = 1.5"),
    "no kernel object": ("return Cuda(", "return (", "not None or a Cuda"),
}


@pytest.mark.parametrize("case", taken(BAD_KERNELS, 3))
def test_a_bad_kernel_is_told_with_both_places(case: str, tmp_path: Path) -> None:
    there, instead, cause = BAD_KERNELS[case]
    assert there in GATE
    text = GATE.replace(there, instead)
    if case == "no kernel object":
        text = text.replace('HALF": shape[-1]})', 'HALF": shape[-1]},)').replace(
            "(SOURCE, blocks=-(-count // 256), threads=256, constants=", "(SOURCE, "
        )
    packages = installed.write(tmp_path / "site", text, "gates", name="gates")
    (tmp_path / "gates.nn").write_text(MODEL)
    found = installed.run(tmp_path, "build", "gates.nn", "--target", "sm_90", packages=packages)
    assert found.returncode == 2, found.stdout + found.stderr
    assert "E0115" in found.stderr and cause in found.stderr and "gates.nn:5" in found.stderr, found.stderr
    assert "gates.gate" in found.stderr and "help:" in found.stderr


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_a_dtype_that_the_op_refuses_is_told_at_the_build(target: str, tmp_path: Path) -> None:
    """The model is checked with the abstract float: only the build knows the dtype."""
    refusal = "        if x.type.dtype in (DType.BF16, DType.F64):\n            raise Mismatch('only f32')\n"
    text = GATE.replace("        a, b = f.split", refusal + "        a, b = f.split").replace(
        "import Composed,", "import Mismatch, DType, Composed,"
    )
    packages = installed.write(tmp_path / "site", text, "gates", name="gates")
    (tmp_path / "gates.nn").write_text(MODEL)
    args = ("--target", target, "--precision", "f64" if target == "cpu" else "bf16")
    for command in ("build", "mem"):
        found = installed.run(tmp_path, command, "gates.nn", *args, packages=packages)
        assert found.returncode == 2, found.stdout + found.stderr
        assert "E0115" in found.stderr and "only f32" in found.stderr and "gates.nn:5" in found.stderr, found.stderr


def test_a_launch_of_nothing_is_none(gate: Composed) -> None:
    assert lower(node_of(gate, np.zeros((0, 8)), DType.F32)) == []


@pytest.mark.parametrize("what", ["f.linear(x, 3)", "f.nowhere(x)", "f.split(x, 2, axes=1)", "x", "None"])
def test_a_composition_that_cannot_be_is_a_fault_of_the_package(what: str, tmp_path: Path) -> None:
    text = GATE.replace("return f.mul(f.tanh(a), f.sigmoid(b))", f"return {what}")
    with imported(tmp_path / "site", text, "gates"):
        infer = OPS["gates.gate"].infer
        if what == "x":
            assert infer([TensorType(DType.F32, (2, 4))], {}) == (TensorType(DType.F32, (2, 4)),)
            return
        with pytest.raises(PackageFault, match=r"gates_package/ops\.py:\d+"):
            infer([TensorType(DType.F32, (2, 4))], {})


def test_errors_of_cuda_are_not_other_errors() -> None:
    with pytest.raises(ValueError, match="0 blocks"):
        Cuda("__device__ void kernel() {}", blocks=0)
    assert issubclass(PackageFault, DslcError)
