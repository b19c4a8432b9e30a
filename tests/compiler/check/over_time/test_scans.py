"""The statement `scan`: what it gives, and what it refuses, at the right place."""

from __future__ import annotations

import pytest

from dslc.compiler.check.model import Checked, check_program
from dslc.compiler.ir.scan import Loop, scan
from dslc.dsl.diagnostics import CompileError, Diagnostic
from dslc.dsl.load import Module, Program
from dslc.dsl.parser import parse
from dslc.dsl.span import Source

HEAD = "nn 1\ndim B in 1..8 = 2\ndim T in 1..64 = 6\nconst D = 3\n"


def check(body: str, blocks: str = "", results: str = "[B, T, D]") -> Checked:
    lines = "".join(f"  {line}\n" for line in body.splitlines())
    text = f"{HEAD}{blocks}model Net(x: [B, T, D], z: [B, T, D], s: [T, B]) -> {results} {{\n{lines}}}\n"
    source = Source("net.nn", text)
    module = Module(source, parse(source), "0" * 64, ())
    return check_program(Program(module, (module,)), None, {})


def refused(body: str, **options: str) -> Diagnostic:
    with pytest.raises(CompileError) as caught:
        check(body + "\nreturn x + z + reshape(s, [B, T, 1])", **options)
    [found] = caught.value.diagnostics
    return found


def loop_of(checked: Checked) -> Loop:
    [node] = [n for n in checked.graph.nodes if n.op is scan]
    return Loop.of(node)


def test_a_loop_has_what_it_captures_carries_and_runs_along() -> None:
    loop = loop_of(
        check(
            "param w: [D, D] = 0\nh = zeros([B, D])\n"
            "scan a, b, c in x, z, s along T reverse carry h into y, q {\n"
            "  h = tanh(a @ w + linear(b, D) * reshape(c, [B, 1]) + h)\n  yield h, h * 2\n}\nreturn y + q"
        )
    )
    assert str(loop.count) == "T" and loop.reverse
    assert [str(v.type) for v in loop.consts] == ["[3, 3]", "[3, 3]", "[3]"]
    assert [str(v.type) for v in loop.carries] == ["[B, 3]"]
    assert [str(v.type) for v in loop.sequences] == ["[T, B, 3]", "[T, B, 3]", "[T, B]"]


@pytest.mark.parametrize("along", ["[1, 0]", "[-2, -2]", "T", "[T, 0]"])
def test_tensors_have_axes_of_their_own(along: str) -> None:
    loop = loop_of(check(f"scan a, b in x + z, s along {along} into y {{ yield a * reshape(b, [B, 1]) }}\nreturn y"))
    assert [str(v.type) for v in loop.sequences] == ["[T, B, 3]", "[T, B]"]


def test_an_axis_is_that_of_a_size_that_is_computed() -> None:
    body = "q = x + z + reshape(s, [B, T, 1])\nscan a, t in q[:, 1:], arange(1, T) along T - 1 into y { yield a }\n"
    checked = check(body + "return concat([x[:, :1], y], axis=1)")
    assert str(loop_of(checked).count) == "T - 1"


@pytest.mark.parametrize("along", ["1", "-2", "T"])
def test_an_axis_is_a_number_or_a_size(along: str) -> None:
    checked = check(f"scan t in x + z + reshape(s, [B, T, 1]) along {along} into y {{ yield t }}\nreturn y")
    assert str(checked.graph.outputs["result.output"].type) == "[B, T, 3]"


@pytest.mark.parametrize(
    ("into", "first", "second"),
    [
        ("y, q", "[T, B, 3]", "[T, 3]"),
        ("y, q along 1", "[B, T, 3]", "[3, T]"),
        ("y, q along [2, 0]", "[B, 3, T]", "[T, 3]"),
        ("y, q along [-2, D - 2]", "[B, T, 3]", "[3, T]"),
    ],
)
def test_the_steps_are_along_any_axis_of_a_result(into: str, first: str, second: str) -> None:
    step = "  r = reshape(t, [B, 1]) * ones([D])\n  yield r, sum(r, over=0)\n"
    body = f"scan t in s + sum(x + z) along T into {into} {{\n{step}}}\n"
    checked = check(body + "return y, q", results="(y: [_, _, _], q: [_, _])")
    assert [str(v.type) for v in checked.graph.outputs.values()] == [first, second]


def test_names_of_the_body_end_with_it_and_carries_go_on() -> None:
    checked = check(
        "h = zeros([B, D])\nscan t in x along T carry h { k = t + h; h = k }\n"
        "k = h\nreturn x + z + reshape(k, [B, 1, D]) + reshape(s, [B, T, 1])"
    )
    assert len(loop_of(checked).graph.updates) == 1


def test_blocks_loops_and_branches_may_contain_and_be_contained() -> None:
    blocks = (
        "block cell(x: [B, D], h: [B, D]) -> [B, D] { return tanh(linear(x, D) + linear(h, D)) }\n"
        "block rnn(x: [B, T, D]) -> [B, T, D] {\n  layer step = cell()\n  h = zeros([B, D])\n"
        "  scan t in x along T carry h into y {\n    for i in 0..2 { h = step(t, h) }\n"
        "    if true { yield h } else { yield t }\n  }\n  return y\n}\n"
    )
    checked = check("for i in 0..2 as layer { x = rnn(x) }\nreturn x + z + reshape(s, [B, T, 1])", blocks)
    names = ["rnn.step.linear.weight", "rnn.step.linear_2.weight"]
    assert [n for n in checked.params if n.endswith("weight")] == [f"layer.{i}.{n}" for i in range(2) for n in names]
    assert sum(n.op is scan for n in checked.graph.nodes) == 2


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        ("E0302", "h = zeros([D])\nscan t in x along T carry h { h = h + t }", "`carry h` begins as [3]"),
        ("E0302", "h = zeros([B, D])\nscan t in x along T carry h { h = 1 }", "is an int after a step"),
        ("E0208", "scan t in x along T into y { k = t }", "yields 0 values"),
        ("E0208", "scan t in x along T into y { yield t, t }", "yields 2 values"),
        ("E0208", "scan a, b in x along T into y { yield a }", "2 names"),
        ("E0207", "yield x", "outside of a `scan`"),
        ("E0207", "scan t in x along T into y { yield t; yield t }", "yields once"),
        ("E0207", "scan t in x along T into y { for i in 0..2 { yield t } }", "yields once"),
        ("E0207", "scan t in x along T into y { return t }", "`return` inside `scan`"),
        ("E0207", "k = inner(x)", "outside of a `scan`"),
        ("E0208", "scan a, b in x, z along [1] into y { yield a }", "1 axis in `scan` for 2 tensors"),
        ("E0202", "scan a, b in x, z along [1, 1.5] into y { yield a }", "an axis is an int"),
        ("E0306", "scan a in x along T - 1 into y { yield a }", "the size T - 1 occurs 0 times"),
        ("E0301", "scan a, b in x, z[:, 1:] along 1 into y { yield a + b }", "different sizes: T and T - 1"),
        ("E0306", "scan t in x along 3 into y { yield t }", "axis 3"),
        ("E0306", "scan t in x @ ones([D, T]) along T into y { yield t }", "occurs 2 times"),
        ("E0306", "scan t in x along 2 into y { yield sum(t) }", "along axis 2 yields []"),
        ("E0306", "scan t in x along 1 into y along 3 { yield t }", "along axis 3 yields [B, 3]"),
        ("E0306", "scan t in x along 1 into y along [-4] { yield t }", "along axis -4 yields [B, 3]"),
        ("E0202", "scan t in x along 1 into y along 1.5 { yield t }", "the axis of a result is an int"),
        ("E0202", "scan t in x along 1 into y along T { yield t }", "the axis of a result is an int"),
        ("E0202", "scan t in x along 1 into y along D { yield t }", "an int, this is the size `D`"),
        ("E0208", "scan t in x along 1 into y along [1, 1] { yield t }", "2 axes in `scan` for 1 result"),
        ("E0202", "scan t in [1, 2] along 0 into y { yield t }", "runs along a tensor"),
        ("E0202", "scan t in x along 1.5 into y { yield t }", "an axis is an int"),
        ("E0202", "h = 1\nscan t in x along T carry h { h = 2 }", "carries a tensor"),
        ("E0202", "scan t in x along T into y { yield 1 }", "`yield` takes tensors"),
        ("E0102", "scan t in x along T carry h { h = t }", "unknown name `h`"),
        ("E0102", "scan t in x along T into y { k = t; yield k }\nq = k", "unknown name `k`"),
        ("E0103", "h = zeros([B, D])\nscan h in x along T carry h { h = h }", "occurs twice"),
        ("E0112", "k = zeros([B, D])\nscan t in x along T into y { k = k + t; yield k }", "does not carry it"),
        ("E0301", "scan t in x along T into y { yield t + ones([B, 7]) }", "cannot broadcast"),
    ],
)
def test_what_does_not_fit_is_refused(code: str, body: str, said: str) -> None:
    found = refused(body, blocks="block inner(x: [B, T, D]) -> [B, T, D] { yield x; return x }\n")
    assert (found.code, said in found.title) == (code, True), (found.code, found.title)
    assert found.label.span.source.path == "net.nn"


def test_a_for_in_a_step_may_count_as_one_before_the_loop() -> None:
    checked = check(
        "for i in 0..2 { x = x + i }\n"
        "scan t in x along T into y {\n  for i in 0..2 { t = t * i }\n  yield t\n}\n"
        "return y + z + reshape(s, [B, T, 1])"
    )
    assert loop_of(checked).count == checked.graph.inputs[0].value.type.shape[1]


def test_along_names_the_axis_of_a_model_s_input_also_among_equal_sizes() -> None:
    text = (
        "nn 1\ndim B in 1..8 = 4\ndim T = 3\nmodel Net(x: [B, 3, T]) -> [B, 3, T] {\n"
        "  scan t in x along T into y { yield t + mean(x, over=T) }\n  return y\n}\n"
        "train Net(z: [B, T, 3]) {\n  loss = mean(sum(x, over=T) + sum(z, over=T) |> linear(1))\n"
        "  optimizer = sgd(lr=1.0)\n}\n"
    )
    source = Source("net.nn", text)
    module = Module(source, parse(source), "0" * 64, ())
    graph = check_program(Program(module, (module,)), None, {}).graph
    assert [n.attrs["over"] for n in graph.nodes if n.op.name == "sum"] == [(2,), (1,)]
