"""A layer that is called several times moves its buffers once with each call, in the order of the calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dslc
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Phase
from dslc.compiler.options import Options

MOMENTUM = 0.3
ROWS = 6
HEAD = """nn 1
dim B in 1..64 = {rows}
{mirror}
block unit(x: [N, D]) -> [N, D] {{
  layer bn = batchnorm(momentum={momentum})
  return tanh(bn(x)) + bn(2 * x)
}}
model Net(a: [B, 3], b: [B, 3], deep: bool = true) -> [B, 3] {{
  layer bn = batchnorm(momentum={momentum})
  {body}
}}
train Net() {{
  loss = mean((output - 1)^2)
  optimizer = sgd(lr=0.0)
  {more}
}}
"""

Array = np.ndarray
Norm = Callable[[Array], Array]


class Running:
    """Batch normalisation with weights 1 and 0, and the running statistics, as PyTorch's documentation has them."""

    def __init__(self) -> None:
        self.mean, self.var, self.calls = np.zeros(3), np.ones(3), 0

    def __call__(self, x: Array) -> Array:
        self.calls += 1
        self.mean = (1 - MOMENTUM) * self.mean + MOMENTUM * x.mean(0)
        self.var = (1 - MOMENTUM) * self.var + MOMENTUM * x.var(0, ddof=1)
        return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)


def _unit(bn: Norm, x: Array) -> Array:
    y = np.tanh(bn(x))
    return y + bn(2 * x)


def _loop(bn: Norm, a: Array, b: Array) -> Array:
    for _ in range(3):
        a = b + np.tanh(bn(a))
    return a


#: the body of the model, the same in numpy, and how often a step calls the layer
BODIES: dict[str, tuple[str, Callable[[Norm, Array, Array], Array], int]] = {
    "once": ("return bn(a) + b", lambda bn, a, b: bn(a) + b, 1),
    "twice": ("return bn(a) * bn(b)", lambda bn, a, b: bn(a) * bn(b), 2),
    "thrice": ("return bn(b) + bn(a + 3) + bn(a * b)", lambda bn, a, b: bn(b) + bn(a + 3) + bn(a * b), 3),
    "in a loop": ("for i in 0..3 { a = b + tanh(bn(a)) }; return a", _loop, 3),
    "in a branch": ("return bn(a) * (bn(b) if deep else a)", lambda bn, a, b: bn(a) * bn(b), 2),
    "nested": ("layer u = unit(); return bn(u(a)) + u(b)", lambda bn, a, b: a, 1),
    "not in the loss": ("u = bn(a); v = bn(b + u); return u + a", lambda bn, a, b: bn(b + bn(a)), 2),
}


def started(folder: Path, body: str, *, more: str = "", mirror: str = "", **options: str) -> dslc.Session:
    """A session of the model, and the number of nodes that its step computes again."""
    path = folder / "net.nn"
    path.write_text(
        HEAD.format(body=body.replace("; ", "\n  "), more=more, mirror=mirror, momentum=MOMENTUM, rows=ROWS)
    )
    built = pipeline.build(check_file(path), Options(**options))  # type: ignore[arg-type]
    step = next(p for p in built.programs if p.entry == "train_step")
    assert any(n.phase is Phase.MIRROR for n in step.graph.nodes) == bool(mirror)
    (folder / "net.dslc").write_bytes(built.artifact)
    return dslc.load(folder / "net.dslc", weights="init", seed=1)


def batches(rows: int = ROWS, dtype: str = "f8") -> list[dict[str, Array]]:
    rng = np.random.default_rng(2)
    return [{"a": rng.normal(2, 3, (rows, 3)).astype(dtype), "b": rng.normal(size=(rows, 3)).astype(dtype)}
            for _ in range(3)]  # fmt: skip


def near(session: dslc.Session, bn: Running, path: str, limit: float) -> None:
    for leaf, expected in (("running_mean", bn.mean), ("running_var", bn.var)):
        np.testing.assert_allclose(session.weights[f"{path}.{leaf}"], expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("name", [name for name in BODIES if name != "nested"])
@pytest.mark.parametrize(("provider", "precision"), [("reference", "f64"), ("own", "f32")])
def test_each_call_moves_the_statistics(tmp_path: Path, name: str, provider: str, precision: str) -> None:
    body, meaning, calls = BODIES[name]
    bn = Running()
    with started(tmp_path, body, provider=provider, precision=precision) as session:
        for step, batch in enumerate(batches(dtype="f8" if precision == "f64" else "f4"), 1):
            session.train_step(**batch)
            meaning(bn, *batch.values())
            assert bn.calls == step * calls
            near(session, bn, "bn", 1e-12 if precision == "f64" else 2e-5)


@pytest.mark.parametrize("mirror", ["", "@mirror(always)"])
def test_what_is_computed_again_moves_nothing(tmp_path: Path, mirror: str) -> None:
    """In a block that is called twice, and calls its own layer twice."""
    outer, inner = Running(), Running()
    with started(tmp_path, BODIES["nested"][0], mirror=mirror, provider="own", precision="f64") as session:
        for batch in batches():
            session.train_step(**batch)
            outer(_unit(inner, batch["a"]))
            _unit(inner, batch["b"])
            near(session, outer, "bn", 1e-12)
            near(session, inner, "u.bn", 1e-12)


def test_micro_batches_follow_each_other(tmp_path: Path) -> None:
    bn = Running()
    with started(tmp_path, BODIES["twice"][0], more="accumulate = 2", precision="f64") as session:
        for batch in batches(2 * ROWS):
            session.train_step(**batch)
            for part in (slice(0, ROWS), slice(ROWS, None)):
                bn(batch["a"][part])
                bn(batch["b"][part])
            near(session, bn, "bn", 1e-12)


def test_evaluation_reads_and_keeps_them(tmp_path: Path) -> None:
    """Every call of an evaluation reads what training left, and none moves it."""
    [batch, *_] = batches()
    with started(tmp_path, BODIES["twice"][0], precision="f64") as session:
        session.train_step(**batch)
        mean, var = (session.weights[f"bn.{leaf}"].copy() for leaf in ("running_mean", "running_var"))
        got = session.predict(**batch)
        expected = (batch["a"] - mean) * (batch["b"] - mean) / (var + 1e-5)
        np.testing.assert_allclose(got, expected, rtol=1e-12)
        assert session.evaluate(**batch).loss == pytest.approx(np.mean((expected - 1) ** 2), rel=1e-12)
        assert np.array_equal(session.weights["bn.running_mean"], mean)


def test_a_buffer_read_between_two_calls_is_as_the_first_left_it(tmp_path: Path) -> None:
    """And no gradient flows through it."""
    body = "u = bn(a); m = bn.running_mean; return u * bn(b) + m"
    [batch, *_] = batches()
    bn = Running()
    with started(tmp_path, body, precision="f64") as session:
        loss = session.train_step(**batch).loss
        u = bn(batch["a"])
        between = bn.mean
        assert loss == pytest.approx(np.mean((u * bn(batch["b"]) + between - 1) ** 2), rel=1e-12)
        near(session, bn, "bn", 1e-12)
        outside = session.predict(**batch) - session.weights["bn.running_mean"]
        scaled = [(x - bn.mean) / np.sqrt(bn.var + 1e-5) for x in batch.values()]
        np.testing.assert_allclose(outside, scaled[0] * scaled[1], rtol=1e-9)


ASSIGNED = """nn 1
dim B in 1..64 = 8
{mesh}
model Net(x: [B, 2]) -> [B, 2] {{
  buffer centre: [2] = 0
  buffer calls: [] = 0
  y = linear(x - centre, 2) as head
  centre = 0.5 * centre + 0.5 * mean(x, over=0)
  calls = calls + 1
  return y
}}
train Net(t: [B, 2]) {{
  loss = mse(output, t)
  optimizer = sgd(lr=0.1)
  {more}
}}
"""


@pytest.mark.parametrize(
    ("mesh", "more", "parts"), [("", "", 1), ("", "accumulate = 2", 2), ("mesh {{ shards = 4 }}", "", 4)]
)
def test_a_buffer_that_a_model_assigns(tmp_path: Path, mesh: str, more: str, parts: int) -> None:
    """Micro-batches assign it one after the other; shards all begin with the same, and the mean of theirs is kept."""
    path = tmp_path / "net.nn"
    path.write_text(ASSIGNED.format(mesh=mesh.format(), more=more))
    path.with_suffix(".dslc").write_bytes(
        pipeline.build(check_file(path), Options(provider="reference", precision="f64")).artifact
    )
    rows = 16 if "accumulate" in more else 8
    x = np.random.default_rng(0).standard_normal((2, rows, 2))
    centre, calls = np.zeros(2), 0
    with dslc.load(path.with_suffix(".dslc"), weights="init") as session:
        for batch in x:
            session.train_step(x=batch, t=np.zeros((rows, 2)))
            means = [part.mean(0) for part in np.split(batch, parts)]
            for mean in means if "accumulate" in more else [np.mean(means, 0)]:
                centre, calls = 0.5 * centre + 0.5 * mean, calls + 1
        state = session.state_tensors()
        np.testing.assert_allclose(state["centre"], centre, rtol=1e-12)
        assert state["calls"] == calls
        weight, bias = state["head.weight"], state["head.bias"]
        np.testing.assert_allclose(session.predict(x=x[0][:8]), (x[0][:8] - centre) @ weight.T + bias, rtol=1e-12)
        assert np.array_equal(session.state_tensors()["centre"], state["centre"])
