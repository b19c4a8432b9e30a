"""Plans and artifacts from finished programs: ports, places, names, and the same bytes every time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graphs.mlp_step import ALL
from graphs.random_graphs import build_for, graph_of, input_of

from dslc.base.cache import Cache
from dslc.base.errors import BuildError
from dslc.base.json_size import count_values
from dslc.compiler.artifact.emit import About, emit_artifact
from dslc.compiler.artifact.labels import output_port, where
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.artifact.state_layout import StateLayout, StateTensor
from dslc.compiler.check.model import check_file
from dslc.compiler.check.rows import Rows
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Phase
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.compiler.passes.runner import run_passes
from dslc.compiler.pipeline import build
from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
from dslc.dsl.span import Source, Span
from dslc.runtime.artifact import container, plan_schema
from dslc.runtime.artifact.instructions import Copy, Reference
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.artifact.plan_check import check
from dslc.runtime.session.load import load


def _graph(path: str = "/some/where/m.nn") -> Graph:
    span = Span(Source(path, "nn 1\n\nmodel M(x: [2])\n"), 6, 11)
    x, w, other = input_of("x", Kind.DATA, 2, 3), input_of("w", Kind.PARAM, 3), input_of("v", Kind.BUFFER, 3)
    lr = Input("lr", Kind.SCALAR, TensorType(DType.F32, ()))
    b = Builder(name="a.b", span=span)
    y = b(OPS["reshape"], b(OPS["mul"], x.value, w.value), shape=(6,))
    total = b(OPS["sum"], y, over=(0,), keep=False)
    update = Builder(name="w", phase=Phase.UPDATE)
    new = update(OPS["sub"], w.value, update(OPS["mul"], w.value, lr.value))
    return graph_of([x, w, other, lr], {"loss": total, "metric.m": total}, [(w, new), (other, w.value)])


def _planned(graph: Graph) -> tuple[Program, Build]:
    build = build_for(graph)
    return run_passes(Program("train_step", {"B": 2}, graph), build, ALL)[0], build


def test_a_plan_is_what_the_runtime_takes() -> None:
    program, build = _planned(_graph())
    plan = plan_of(program)
    memory = program.memory
    assert memory is not None and Plan.decode(plan.encode()) == plan
    check(plan, state_bytes=build.state_bytes, context_bytes=0, io_bytes=memory.io_bytes, work_bytes=memory.work_bytes)
    assert [(p.name, p.kind) for p in plan.inputs] == [("x", "data")]
    assert [(p.name, p.kind) for p in plan.outputs] == [("loss", "loss"), ("metric.m", "metric")]
    assert [(s.name, s.offset, s.dtype) for s in plan.scalars] == [("lr", 24, "f32")]
    assert [type(i) for i in plan.instructions].count(Copy) == 3 and "a.b m.nn:3" in plan.names
    assert not any(isinstance(i, Reference) and i.op == "reshape" for i in plan.instructions)  # a view is no work


@pytest.mark.parametrize(
    ("output", "port"),
    [("result.y", ("y", "result")), ("result.a.b", ("a.b", "result")), ("metric.m", ("metric.m", "metric")),
     ("loss", ("loss", "loss")), ("nonfinite", ("nonfinite", "flags")), ("partial.3.sum", ("partial.3", "partial.sum")),
     ("partial.0.max", ("partial.0", "partial.max")), ("count.3", ("count.3", "count"))],
)  # fmt: skip
def test_ports_of_outputs(output: str, port: tuple[str, str]) -> None:
    assert output_port("eval_step", output) == port


def test_an_output_without_a_meaning_is_a_mistake_of_ours() -> None:
    for name in ("y", "partial.0", "partial.0.median"):
        with pytest.raises(AssertionError):
            output_port("predict", name)


def test_the_folder_is_not_in_the_plan() -> None:
    plans = {plan_of(_planned(_graph(path))[0]).encode() for path in ("/a/b/m.nn", "m.nn", "../c/m.nn")}
    assert len(plans) == 1
    node = Node(OPS["exp"], (), (), name="")
    assert where(node) == "exp"


def _artifact() -> bytes:
    x, w = input_of("x", Kind.DATA, 2, 3), input_of("w", Kind.PARAM, 3)
    predict = graph_of([x, w], {"result.y": Builder(name="a")(OPS["mul"], x.value, w.value)})
    filled = Builder(name="w")(OPS["full"], value=0.5, dtype=DType.F32, shape=(3,))
    seed = Input("seed", Kind.SCALAR, TensorType(DType.I64, ()))
    init = graph_of([w, seed], {}, [(w, filled)])
    build = build_for(predict)
    programs = [run_passes(Program(n, {"B": 2}, g), build, ALL)[0] for n, g in (("init", init), ("predict", predict))]
    tensor = StateTensor("w", Kind.PARAM, w.value.type, 0, "constant(0.5)", False)
    about = About(
        name="m",
        model="M",
        interface={"name": "m", "model": "M",
                   "dims": [{"name": "B", "low": 2, "high": 2, "default": 2, "batch": True}],
                   "inputs": [{"name": "x", "dtype": "f32", "shape": ["B", 3]}],
                   "results": [{"name": "y", "dtype": "f32", "shape": ["B", 3]}], "train": None},
        options={"target": "cpu"},
        toolchain={"dslc": "0.1.0", "python": "3.11"},
        source_sha256=hashlib.sha256(b"").hexdigest(),
        rows=Rows.APART,
        provider="reference",
    )  # fmt: skip
    layout = StateLayout((tensor,), build.state_bytes, ())
    data, header = emit_artifact(programs, about, layout, KernelCompiler(Cache(None)))
    assert [p["entry"] for p in header["programs"]] == ["init", "predict"]
    return data


def test_the_same_artifact_every_time() -> None:
    assert _artifact() == _artifact()


def test_a_session_runs_what_was_emitted(tmp_path: Path) -> None:
    (tmp_path / "m.dslc").write_bytes(_artifact())
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with load(tmp_path / "m.dslc", weights="init", meanings=meanings()) as session:
        np.testing.assert_array_equal(session.predict(x=x), x / 2)


def test_plans_that_no_load_would_read_are_refused_by_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_BYTES", "MAX_VALUES"):
        with monkeypatch.context() as patch, pytest.raises(BuildError, match="plans") as raised:
            patch.setattr(plan_schema, limit, 100)
            _artifact()
        assert raised.value.code == "E0606" and "fewer layers" in str(raised.value.help)


def test_the_help_for_plans_that_are_too_large_names_options_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.nn").write_text("""nn 1
dim B in 1..8 = 4
model M(x: [B, 3]) -> [B, 2] { return linear(x, 2) }
train M(y: [B, 2]) {
  loss = mse(output, y)
  optimizer = sgd(lr=0.1)
}
""")
    checked = check_file(tmp_path / "m.nn")
    smaller = {"eval": {"B": (1,)}, "predict": {"B": (1,)}}
    most = _values(build(checked, Options(provider="reference", sizes=smaller)).artifact)
    assert most < _values(build(checked, Options(provider="reference")).artifact)
    monkeypatch.setattr(plan_schema, "MAX_VALUES", most)
    with pytest.raises(BuildError, match="values together") as raised:
        build(checked, Options(provider="reference"))
    assert "`--size eval:B=1 --size predict:B=1`" in str(raised.value.help)
    build(checked, Options(provider="reference", sizes=smaller))


def _values(data: bytes) -> int:
    read = container.unpack(data, lambda header: None)
    return sum(count_values(bytes(blob.data)) for blob in read.blobs.values() if blob.kind == "plan")


def test_golden(golden: Callable[[str, str], None]) -> None:
    plan = plan_of(_planned(_graph())[0])
    lines = [f"buffer {i}: {b}" for i, b in enumerate(plan.buffers)]
    lines += [f"{p.kind} {p.name}: {p.buffer}" for p in (*plan.inputs, *plan.outputs)]
    for i in plan.instructions:
        if isinstance(i, Reference):
            lines.append(f"{i.op} {list(i.inputs)} -> {list(i.outputs)} {dict(i.attrs)}  # {plan.names[i.where]}")
        elif isinstance(i, Copy):
            lines.append(f"copy {i.src} -> {i.dst}  # {plan.names[i.where]}")
    golden("passes/plan.txt", "\n".join(lines) + "\n")
