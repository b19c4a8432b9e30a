"""The pass that takes out of ``predict`` what depends on the weights alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from sources.in_memory import files

from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.check.model import check_file, check_program
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Place, Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.error import VerifyError
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.lock.choices import problems
from dslc.compiler.options import Options, entry_sizes, precision_of
from dslc.compiler.passes.plan.prepare import SMALL, prepare
from dslc.compiler.passes.plan.prepared_program import merged, relocated
from dslc.compiler.pipeline import build_options, compile_entry, compile_prepare
from dslc.tune.problems import problems as measured

HEAD = "nn 1\ndim B in 1..1_000_000 = 1\nmodel Net(x: [B, 512]) -> [B, 512] {\n"
BIG = "param w: [512, 512] = normal(1.0)\n"


def compiled(folder: Path, body: str, *batch: int, **options: object) -> list[Program]:
    path = folder / "net.nn"
    path.write_text(HEAD + body + "\n}\n")
    checked = check_file(path)
    given = Options(**{"sizes": {"predict": {"B": batch}}, **options})  # type: ignore[arg-type]
    sizes = [s for e, s in entry_sizes(checked, given) if e == "predict"]
    found = [compile_entry(checked, "predict", s, given)[0] for s in sizes]
    layout = layout_state(checked, precision_of(checked, given).params)
    made = compile_prepare(checked, found, given, layout, found[0].target)
    return [*(relocated(p, made[0]) if made and p.prepared else p for p in found), *([made[0]] if made else [])]


def prepared(program: Program) -> list[str]:
    """The ops that compute what a program reads prepared."""
    return [] if program.prepared is None else [v.producer.op.name for _, v in program.prepared.updates]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "ops"),
    [
        ("return x @ softmax(w)", 1),
        ("return x @ softmax(w) + x @ softmax(softmax(w))", 2),  # of which one reads the other
        ("return x @ softmax(softmax(w))", 1),
        ("return x @ w", 0),
        ("return x @ w.T", 0),
        ("return x @ softmax(w * x[0, 0])", 0),
    ],
)
def test_what_needs_no_input_is_prepared(tmp_path: Path, body: str, ops: int) -> None:
    program = compiled(tmp_path, BIG + body, 1)[0]
    assert len(prepared(program)) == ops
    left = {i.value for i in program.graph.inputs if i.kind in (Kind.PARAM, Kind.BUFFER, Kind.PREPARED)}
    for node in program.graph.nodes:  # no node of the rest could have moved
        assert not ops or node.op.view or not left.issuperset(node.inputs)


def test_it_is_left_out_where_it_does_not_pay(tmp_path: Path) -> None:
    """At many rows a cast of a weight takes a small part of the time of the product that reads it."""
    options = {"target": "sm_90", "precision": "bf16"}
    few, many, joint = compiled(tmp_path, "return linear(x, 512)", 1, 1_000_000, **options)
    assert prepared(few) and not prepared(many) and joint.entry == "prepare"
    sizes = [program.memory.prepared_bytes for program in (few, many) if program.memory is not None]
    assert sizes == [512 * 512 * 2 + 512 * 2, 0] and SMALL < 512 * 512 * 2
    assert not any(prepared(p) for p in compiled(tmp_path, "return linear(x, 512)", 1, prepare="never", **options))


def test_a_launch_of_many_small_values_is_prepared(tmp_path: Path) -> None:
    """Casts of biases, each small, are one launch that computes more bytes than a small value has."""
    count, size = 12, 3072
    body = "\n".join(f"h{n + 1} = gelu(linear(h{n}, {size}))" for n in range(count))
    path = tmp_path / "net.nn"
    path.write_text(HEAD.replace("512", str(size)) + f"h0 = sin(x)\n{body}\nreturn h{count}\n}}\n")
    options = Options(target="sm_90", precision="bf16", sizes={"predict": {"B": (1024,)}})
    program, _ = compile_entry(check_file(path), "predict", {"B": 1024}, options)
    assert program.prepared is not None
    assert [v.type.bytes for _, v in program.prepared.updates].count(2 * size) == count
    assert 2 * size < SMALL < 2 * size * count


def test_sizes_share_what_is_equal(tmp_path: Path) -> None:
    one, two, joint = compiled(tmp_path, BIG + "return x @ softmax(w)", 1, 2)
    assert one.prepared is not None and two.prepared is not None and one.prepared is not two.prepared
    assert len(joint.graph.updates) == 1
    assert len({p.memory.prepared_bytes for p in (one, two, joint) if p.memory}) == 1
    assert len(merged([one.prepared, two.prepared]).nodes) == len(one.prepared.nodes)
    other = compiled(tmp_path, BIG + "return x @ log_softmax(w)", 1)[0]
    assert other.prepared is not None
    assert len(merged([one.prepared, other.prepared]).updates) == 2


def test_the_example(golden: Callable[[str, str], None]) -> None:
    checked, kept = check_program(files(HEAD + BIG + "return x @ softmax(w)\n}\n")), dict[str, Program]()
    compile_entry(checked, "predict", {"B": 1}, Options(), keep=kept.__setitem__)
    before, after = kept["pack_weights"], kept["prepare"]
    assert after.prepared is not None
    parts = (("before", before.graph), ("after", after.graph), ("prepared", after.prepared))
    golden("passes/prepare.txt", "\n".join(f"{name}\n\n{format_graph(graph)}" for name, graph in parts))


def test_what_is_prepared_need_not_be_measured(tmp_path: Path) -> None:
    """A build with --locked asks for no problem that `dslc tune` does not measure."""
    programs = compiled(tmp_path, BIG + "return x @ softmax(w)", 1, 2, target="sm_90")
    assert programs[-1].entry == "prepare" and programs[-1].computing
    options = Options(target="sm_90", sizes={"predict": {"B": (1, 2)}})
    listed = {p.key for p in measured(check_file(tmp_path / "net.nn"), options, "sm_90")}
    assert problems(programs, "sm_90").keys() <= listed


def test_a_result_stays(tmp_path: Path) -> None:
    path = tmp_path / "net.nn"
    path.write_text(
        "nn 1\ndim B in 1..8 = 1\nmodel Net(x: [B, 512]) -> (y: [B, 512], s: [512, 512]) {\n" + BIG
        + "  return x, softmax(w)\n}\n"
    )  # fmt: skip
    program = compile_entry(check_file(path), "predict", {"B": 1}, Options())[0]
    assert program.prepared is None


def test_a_program_that_writes_over_it_is_unsound(tmp_path: Path) -> None:
    path = tmp_path / "net.nn"
    path.write_text(HEAD + BIG + "return relu(x) @ softmax(w)\n}\n")
    checked, options = check_file(path), Options()
    program = compile_entry(checked, "predict", {"B": 1}, options)[0]
    build = build_options(checked, options, layout_state(checked, precision_of(checked, options).params))
    verify_program(program, build)
    assert program.memory is not None
    inside = next(v for n in program.graph.nodes for v in n.outputs if program.memory.places[v].region == "work")
    places = {**program.memory.places, inside: Place("prepared", 0)}
    broken = dataclasses.replace(program, memory=dataclasses.replace(program.memory, places=places))
    with pytest.raises(VerifyError, match="not updated"):
        verify_program(broken, build)


def test_equal_values_are_prepared_once() -> None:
    """Other passes may compute the same of a weight twice."""
    x, w = (
        Input(name, kind, TensorType(DType.F32, (512, 512))) for name, kind in (("x", Kind.DATA), ("w", Kind.PARAM))
    )
    b = Builder(name="a")
    wide = [b(OPS["softmax"], w.value, axis=1) for _ in range(2)]
    products = [
        b(OPS["matmul"], x.value, each, transpose_a=False, transpose_b=t) for each, t in zip(wide, (False, True))
    ]
    results = {f"result.y{n}": value for n, value in enumerate(products)}
    program = Program("predict", {}, Graph((x, w), order(products), results))
    found = prepare(program, Build(prepare=True))
    verify_graph(found.graph)
    assert len(prepared(found)) == 1 and len(found.graph.nodes) == 2
