"""A train section reads parameters of its model: by name, and by a pattern of names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sources.in_memory import files

import dslc
from dslc.compiler.check.model import check_program
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.dsl.diagnostics import CompileError

NET = """nn 1
dim B in 1..64 = 4
model Net(x: [B, 3]) -> {results} {{
  param scale: [4] = 1
  layer fc = linear(4)
  hidden = fc(x) * scale
  return {returned}
}}
train Net(t: i32[B]) {{
  loss = cross_entropy(output, t) + {penalty}
  optimizer = {optimizer}
  {more}
}}
{end}
"""
PENALTY = "0.1 * sum(fc.weight^2) + 0.2 * sum(abs(scale))"
HEAD = "hidden |> relu |> linear(2) as head"


def source(penalty: str, *, optimizer: str = "sgd(lr=0.1)", more: str = "", end: str = "", returned: str = "") -> str:
    results = "(output: [B, 2], penalty: [])" if returned else "[B, 2]"
    given = {"penalty": penalty, "optimizer": optimizer, "more": more, "end": end}
    return NET.format(results=results, returned=f"{HEAD}, {returned}" if returned else HEAD, **given)


def trained(
    folder: Path, text: str, rows: int = 4, parts: int = 1, precision: str = "f64"
) -> dict[str, NDArray[np.float64]]:
    """The weights after three steps, and the losses."""
    provider, sizes = ("reference" if precision == "f64" else "auto"), {"train": {"B": (rows // parts,)}}
    options = Options(provider=provider, precision=precision, sizes=sizes, fuse=False)
    path = folder / "net.dslc"
    path.write_bytes(build(check_program(files(text)), options).artifact)
    rng = np.random.default_rng(0)
    kind = np.float64 if precision == "f64" else np.float32
    with dslc.load(path, device="cpu", weights="init", seed=3) as session:
        losses = []
        for _ in range(3):
            x, t = rng.normal(size=(rows, 3)).astype(kind), rng.integers(0, 2, rows).astype(np.int32)
            losses.append(float(session.train_step(x=x, t=t).loss))
        return {**{name: np.array(value) for name, value in session.weights.items()}, "loss": np.array(losses)}


@pytest.mark.parametrize(
    ("more", "end", "parts", "precision"),
    [
        ("", "", 1, "f64"),
        ("accumulate = 2", "", 2, "f64"),
        ("ema = 0.9", "", 1, "f64"),
        ("", "mesh { shards = 2 }", 1, "f64"),
        pytest.param("", "", 1, "bf16", marks=pytest.mark.slow),
    ],
    ids=["plain", "micro", "averages", "shards", "bf16"],
)
def test_a_parameter_read_here_is_one_that_the_model_returns(
    tmp_path: Path, more: str, end: str, parts: int, precision: str
) -> None:
    one = trained(tmp_path, source(PENALTY, more=more, end=end), 8, parts, precision)
    other = trained(tmp_path, source("penalty", more=more, end=end, returned=PENALTY), 8, parts, precision)
    without = trained(tmp_path, source("0.0", more=more, end=end), 8, parts, precision)
    assert one.keys() == other.keys()
    for name, value in one.items():
        if precision == "f64":
            assert value.tobytes() == other[name].tobytes(), name
        else:  # there the model computes what it returns in 16 bits, and the section in f32
            np.testing.assert_allclose(value, other[name], rtol=0.02, atol=1e-3)
    assert not np.allclose(one["fc.weight"], without["fc.weight"])


def test_a_sum_of_squares_is_weight_decay(tmp_path: Path) -> None:
    squares = '0.05 * sum([sum(w^2) for w in parameters("*.weight")])'
    one = trained(tmp_path, source(squares))
    other = trained(tmp_path, source("0.0", optimizer='sgd(lr=0.1, weight_decay=0.1, decay_on="matrices")'))
    for name in one.keys() - {"loss"}:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-12)


def test_a_pattern_gives_each_parameter_once_in_forward_order() -> None:
    found = check_program(files(source('sum([sum(w) for w in parameters("head", "*.weight", "scale")])')))
    sums = [node.inputs[0] for node in found.graph.nodes if node.op.name == "sum" and len(node.attrs["over"]) > 0]
    names = {i.value: i.name for i in found.graph.inputs}
    read = [names[value] for value in sums if value in names]
    assert read == ["scale", "fc.weight", "head.weight", "head.bias"] and not found.warnings


def test_the_model_itself_has_no_list_of_parameters() -> None:
    with pytest.raises(CompileError) as caught:
        check_program(files(source("0.0").replace(HEAD, f'{HEAD} |> parameters("*")')))
    assert "only a train section reads parameters" in str(caught.value.diagnostics[0].help)


def test_results_inputs_and_variables_go_before_parameters() -> None:
    text = source("sum(scale.weight)").replace("-> [B, 2]", "-> (output: [B, 2], scale: [B, 2])")
    text = text.replace(HEAD, f"{HEAD}, {HEAD.replace('head', 'other')}")
    with pytest.raises(CompileError) as caught:
        check_program(files(text))
    assert "no field `weight`" in caught.value.diagnostics[0].title


@pytest.mark.parametrize(
    ("penalty", "code", "title", "help"),
    [
        ("sum(fc.wieght)", "E0102", "no parameter `fc.wieght`", "did you mean `fc.weight`?"),
        ("sum(fc.moment)", "E0102", "no parameter `fc.moment`", "`fc` has `fc.weight`, `fc.bias`"),
        ("sum(fc)", "E0102", "the layer `fc` is not visible", 'such as `fc.weight` or `parameters("fc")`'),
        ("sum(head)", "E0102", "the layer `head` is not visible", "such as `head.weight`"),
        ("sum(parameters())", "E0201", "needs a pattern", 'parameters("*.weight")'),
        ("sum(parameters(3))", "E0202", "takes texts", 'parameters("*.weight")'),
        ('sum(parameters("body"))', "E0209", "`body` selects no parameter", "the first parameter is"),
    ],
)
def test_what_is_no_parameter_is_told(penalty: str, code: str, title: str, help: str) -> None:
    with pytest.raises(CompileError) as caught:
        check_program(files(source(penalty)))
    [found] = caught.value.diagnostics
    assert found.code == code and title in found.title, found
    assert found.help is not None and help in found.help
