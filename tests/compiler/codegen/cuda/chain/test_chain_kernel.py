"""The kernel of a chain, thread by thread: what its nodes mean, without races between blocks, in place or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import run_launches
from graphs.token_model import CONTEXT, chain_of, compiled, inputs_of, meant

from dslc.compiler.codegen.cuda.chain import left_factor, lower, source, stages
from dslc.compiler.codegen.cuda.chain.lower import Chained, lower_chain
from dslc.compiler.codegen.cuda.contraction import few_rows
from dslc.compiler.ir.bodies.chain import chain
from dslc.compiler.ir.graph import Body, Graph, Input, Kind, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.compound.contraction import with_epilogue


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few blocks of two warps, so that there are several rounds, and weights of any size."""
    monkeypatch.setattr(few_rows, "_FEWEST_WEIGHTS", 0)
    for module in (stages, source, left_factor, lower):
        for name, value in (("BLOCKS", 2), ("THREADS", 64), ("_WARPS", 2)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)


def on_machine(node: Node, xs: list[np.ndarray], *, in_place: bool, backwards: bool = False) -> list[np.ndarray]:
    """What the kernel makes of inputs; ``in_place``: tables are changed where they are."""
    known: dict[Any, np.ndarray] = {
        v: simulator.memory(np.array(x).reshape(-1), v.type.dtype) for v, x in zip(node.inputs, xs)
    }
    for v in node.outputs:
        kind = simulator.numpy_type(v.type.dtype)
        known[v] = np.full(int(np.prod(v.type.ints)) * kind.itemsize, 0xFF, np.uint8).view(kind)
    for i, o in node.op.in_place(node) if in_place else ():
        known[node.outputs[o]] = known[node.inputs[i]]
    run_launches(lower_chain(node), known, backwards=backwards)
    return [simulator.values(known[v], v.type.dtype).reshape(v.type.ints) for v in node.outputs]


@pytest.mark.parametrize(
    ("precision", "rows", "in_place", "backwards", "at"),
    [
        ("f32", 1, True, False, 7),
        ("bf16", 1, False, True, 0),
        pytest.param("f16", 2, True, True, CONTEXT - 1, marks=pytest.mark.slow),
    ],
)
def test_a_layer_is_what_its_nodes_mean(
    tmp_path: Path, precision: str, rows: int, in_place: bool, backwards: bool, at: int
) -> None:
    node = chain_of(compiled(tmp_path, precision=precision, rows=rows))
    assert len(node.op.in_place(node)) == 2, "keys and values"
    xs = inputs_of(node, at)
    found = on_machine(node, xs, in_place=in_place, backwards=backwards)
    near = {"f32": 2e-5, "bf16": 6e-2, "f16": 8e-3}[precision]
    for one, other in zip(found, meant(node, xs), strict=True):
        np.testing.assert_allclose(one, other, rtol=near, atol=near * np.abs(other).max())


def test_long_sums_and_many_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product whose columns several warps share, then one of several rounds; both with what comes after."""
    for module in (stages, source, lower):
        monkeypatch.setattr(module, "BLOCKS", 4)
    x, w, v, bias = (
        Input(name, Kind.DATA, TensorType(DType.F32, shape))
        for name, shape in (("x", (1, 264)), ("w", (4, 264)), ("v", (70, 4)), ("bias", (4,)))
    )
    steps = (("add", (0, 1), ()), ("relu", (2,), ()))
    turned = {"transpose_a": False, "transpose_b": True}
    first = Builder().node(OPS["matmul"], x.value, w.value, **turned)
    last = Builder().node(OPS["fused"], first.out, bias.value, body=steps)
    one = with_epilogue(first, last, [bias.value], steps)
    two = Builder().node(OPS["matmul"], one.out, v.value, **turned)
    body = Graph((x, w, v, bias), (one, two), {"y": two.out})
    node = Builder().node(chain, *(i.value for i in body.inputs), body=Body(body))
    assert [source._division(stage.spec) for stage in stages.stages_of(body)] == [(1, 2), (4, 1)]  # type: ignore[arg-type]
    rng = np.random.default_rng(2)
    xs = [rng.normal(size=t.ints).astype(np.float32) for t in node.input_types]
    [found] = on_machine(node, xs, in_place=False)
    a, b, c, d = (np.asarray(each, np.float64) for each in xs)
    np.testing.assert_allclose(found, np.maximum(a @ b.T + d, 0) @ c.T, rtol=1e-5, atol=1e-4)


def test_a_place_that_does_not_exist_makes_all_nan(tmp_path: Path) -> None:
    node = chain_of(compiled(tmp_path))
    found = on_machine(node, inputs_of(node, CONTEXT), in_place=True)
    assert all(np.isnan(x).all() for x in found)


def test_stages_of_a_kind_share_their_code(tmp_path: Path) -> None:
    node = chain_of(compiled(tmp_path, layers=4))
    clear, kernel = lower_chain(node)
    assert isinstance(kernel.spec, Chained) and clear.writes[0] in kernel.writes
    text = kernel.spec.text
    assert text.count("::run(") == 5 * 4 + 1
    # the first layer reads what is there before the chain; the last product is that of the vocabulary
    assert text.count("\nnamespace s") == 5 + 2 + 1


def test_weights_are_brought_before_their_stage(tmp_path: Path) -> None:
    """Each stage brings those of the next product or the one after; none are brought twice."""
    made = source.Source(chain_of(compiled(tmp_path, layers=3)).attrs["body"].graph)
    ahead = made._ahead()
    products = [stage.weights for stage in made.stages if isinstance(stage, stages.Product)]
    brought = [v for v in ahead if v is not None]
    assert brought == products[1:] and len(set(brought)) == len(brought)
    done = 0
    for stage, value in zip(made.stages, ahead):
        done += isinstance(stage, stages.Product)
        assert value is None or 0 < products.index(value) - (done - 1) <= 2
