"""Nodes that are alike are lowered once, and have the launches that each would have by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from places import MODELS

from dslc.base.errors import BuildError
from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.options import Options, precision_of
from dslc.compiler.passes.plan.select_kernels import select
from dslc.compiler.pipeline import build_options, compile_entry, foresee


@pytest.mark.parametrize(("target", "provider"), [("cpu", "own"), ("sm_90", "own"), ("sm_90", "vendor")])
@pytest.mark.parametrize("name", ["lenet", "vae", "unet"])
def test_launches_are_those_of_each_node_by_itself(name: str, target: str, provider: str) -> None:
    vendor = provider == "vendor"
    checked = check_file(f"{MODELS / name}.nn")
    sizes = {d.name: d.default for d in checked.dims}
    options = Options(target=target, provider=provider)
    program, _ = compile_entry(checked, "train_step", sizes, options, after="recompute_outputs")
    nodes = [n for n in program.graph.nodes if not n.op.view]
    assert len({node.op for node in nodes}) < len(nodes)
    for node in nodes:
        found, wanted = lowered(node, target, vendor), target_of(target, vendor).lower(node)
        assert found is not None and wanted is not None
        assert found == wanted
        assert [repr(x.spec) for x in found] == [repr(x.spec) for x in wanted]
        assert [(x.symbol, repr(x.code)) for x in found] == [(x.symbol, repr(x.code)) for x in wanted]


@pytest.mark.parametrize("first", [0.0, -0.0])
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_numbers_that_python_calls_equal_are_not_alike(target: str, first: float) -> None:
    b = Builder()
    nodes = [b.node(OPS["full"], value=value, dtype=DType.F32, shape=(4,)) for value in (first, -first)]
    [one], [other] = (lowered(node, target, False) or () for node in nodes)
    assert repr(one.spec) != repr(other.spec)
    assert repr(one.code) != repr(other.code) and one.symbol != other.symbol


def test_which_inputs_are_one_tensor_is_part_of_it() -> None:
    b = Builder()
    x, y = (Input(name, Kind.DATA, TensorType(DType.F32, (8,))).value for name in "xy")
    [square], [product] = (lowered(b.node(OPS["mul"], x, other), "sm_90", False) or () for other in (x, y))
    assert (square.reads, product.reads) == ((x,), (x, y))


def test_a_missing_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = check_file(f"{MODELS / 'lenet'}.nn")
    options = Options(target="sm_90")
    sizes = {d.name: d.default for d in checked.dims}
    program, _ = compile_entry(checked, "train_step", sizes, options, after="recompute_outputs")
    build = build_options(checked, options, layout_state(checked, precision_of(checked, options).params), "sm_90")
    monkeypatch.setattr("dslc.compiler.passes.plan.select_kernels.lowered", lambda node, *_: None)
    with pytest.raises(BuildError, match="E0603"):
        select(program, build)


@pytest.mark.parametrize(("model", "target", "less"), [("vae", "sm_90", False), ("siamese", "cpu", True)])
def test_what_is_foreseen_is_what_is_compiled(model: str, target: str, less: bool) -> None:
    """``less``: whether anything is worth being computed again, to get near one byte."""
    checked = check_file(f"{MODELS / model}.nn")
    options = Options(target=target)
    sizes = {d.name: d.default for d in checked.dims}
    mirrors = ("never", "auto", 1)
    for mirror, program in zip(mirrors, foresee(checked, "train_step", sizes, options, mirrors)):
        compiled, _ = compile_entry(checked, "train_step", sizes, replace(options, mirror=mirror))
        assert program.memory is not None and compiled.memory is not None
        assert (program.memory.work_bytes, program.mirrored) == (compiled.memory.work_bytes, compiled.mirrored)
    assert (program.mirrored is not None) is less
